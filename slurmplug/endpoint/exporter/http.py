"""The port of the metrics: anyone who reaches it may read them, so it is on loopback or behind a firewall."""

from collections.abc import Callable
from threading import Thread
from wsgiref.simple_server import WSGIServer

import prometheus_client
from prometheus_client import CollectorRegistry

from slurmplug.config.schema import Config
from slurmplug.endpoint.exporter.collector import LedgerCollector


def serve(listen: str, config: Callable[[], Config]) -> tuple[WSGIServer, Thread]:
    """Serve the metrics in threads of this process. listen: HOST:PORT. Raises OSError if it cannot listen there."""
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    registry.register(LedgerCollector(config))
    host, _, port = listen.rpartition(":")
    return prometheus_client.start_http_server(int(port), host.strip("[]"), registry)

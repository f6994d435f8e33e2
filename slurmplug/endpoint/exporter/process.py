"""The process that serves metrics: what it costs costs the daemon nothing, and it ends with it.

The daemon starts it, and another one when it has ended. It opens the ledger for reading only.
"""

import logging
import os
from importlib.util import find_spec

from slurmplug.config.schema import Config
from slurmplug.processes.child import Channel
from slurmplug.processes.supervised import SupervisedProcess

NICENESS = 10

log = logging.getLogger(__name__)


class MetricsProcess(SupervisedProcess[Config]):
    """The process, as the daemon has it."""

    def __init__(self, config: Config) -> None:
        """Start it. Raises OSError."""
        super().__init__("metrics", serve, config)


def serve(channel: Channel, config: Config) -> None:
    """The process itself. The daemon sends it a configuration that changed."""
    os.nice(NICENESS)
    in_force = [config]
    listen = config.metrics.listen
    if find_spec("prometheus_client") is None:
        log.error("metrics.listen needs prometheus-client: pip install 'slurmplug[metrics]'")
    else:
        from slurmplug.endpoint.exporter import http  # noqa: PLC0415  its library may be missing

        try:
            http.serve(listen, lambda: in_force[0])
        except OSError as error:
            log.error("metrics.listen %s: %s; there are no metrics", listen, error)
        else:
            log.info("metrics are served on %s", listen)
    while True:
        in_force[0] = channel.receive()

"""The process of the metrics: a port of its own, started again when it has ended, and never in the daemon's way."""

import logging
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmplug.config.schema import Config
from slurmplug.endpoint.exporter import process
from slurmplug.endpoint.exporter.process import MetricsProcess
from slurmplug.processes.child import Channel
from tests.ledgers import Site


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    with Site(tmp_path) as site, socket.socket() as free:
        site.cluster.submit()
        site.cycle()
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        yield Config.from_table({"metrics": {"listen": listen}, "ledger": {"path": str(site.path)}})


def text(config: Config) -> str:
    try:
        with urllib.request.urlopen(f"http://{config.metrics.listen}/metrics", timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def until(true: Callable[[], bool]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def test_another_process_serves_them_when_one_has_ended(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    served = MetricsProcess(config)
    try:
        until(lambda: 'slurmplug_jobs{state="pending"} 1.0' in text(config))
        assert os.getpriority(os.PRIO_PROCESS, served._child.pid) == process.NICENESS
        first = served._child.pid
        os.kill(first, signal.SIGKILL)
        until(lambda: served._child.pid != first and "slurmplug_jobs" in text(config))
    finally:
        served.close()
    assert "it is started again" in caplog.text
    assert not served._child.running


def test_a_configuration_that_is_read_again_is_in_force(config: Config) -> None:
    served = MetricsProcess(config)
    try:
        until(lambda: "slurmplug_cycle_interval_seconds 60.0" in text(config))
        served.use(config.replaced(interval=7.0))
        until(lambda: "slurmplug_cycle_interval_seconds 7.0" in text(config))
    finally:
        served.close()


def served_in_this_process(config: Config, caplog: pytest.LogCaptureFixture) -> str:
    """The log of a process that the daemon leaves at once."""
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.MonkeyPatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(os, "nice", lambda _: 0)
        with pytest.raises(ConnectionError):
            process.serve(Channel(theirs), config)
    return caplog.text


def test_a_port_that_is_taken_and_a_library_that_is_missing_are_logged(
    config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        other = config.replaced(metrics=config.metrics.replaced(listen=listen))
        assert f"metrics.listen {listen}: " in served_in_this_process(other, caplog)
    monkeypatch.setattr(process, "find_spec", lambda _: None)
    assert "pip install 'slurmplug[metrics]'" in served_in_this_process(config, caplog)

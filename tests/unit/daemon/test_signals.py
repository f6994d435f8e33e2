"""What waits for signals: how long it sleeps, and the watchdog meanwhile."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.signals import Signals
from slurmplug.ledger.lock import only_one
from slurmplug.spool import process
from slurmplug.spool.process import SpoolProcess


@dataclass
class SetBack:
    """A cluster whose time of day is set back by two hours in the first sleep, whose length it keeps."""

    clock: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> float:
        return time.monotonic() + self.clock

    def wait(self, until: float) -> bool:
        self.waits.append(until - self.now())
        time.sleep(min(0.05, max(0.0, self.waits[-1])))
        self.clock -= 7200.0 if len(self.waits) == 1 else 0.0
        return True


def test_a_clock_that_is_set_back_does_not_make_a_sleep_longer() -> None:
    port = SetBack()
    Signals(ServiceNotifier({})).sleep_until(time.monotonic() + 0.2, port)  # type: ignore[arg-type]
    assert len(port.waits) > 1
    assert max(port.waits) < 0.3


def test_the_watchdog_is_pinged_while_a_spool_that_hangs_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinged: list[int] = []
    notifier = ServiceNotifier({})
    monkeypatch.setattr(notifier, "ping_watchdog", lambda: pinged.append(1))
    spool = SpoolProcess(tmp_path, only_one, Signals(notifier).go_on)
    try:
        spool.begin()
        pinged.clear()
        os.kill(spool.pid, signal.SIGSTOP)
        monkeypatch.setattr(process, "ANSWER_SECONDS", 1.0)
        assert [fault.rule for fault in spool.read({}).faults] == ["spool"]
    finally:
        spool.close()
    assert len(pinged) > 2

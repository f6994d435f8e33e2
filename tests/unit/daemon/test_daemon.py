"""How long the daemon sleeps between two cycles."""

import time
from dataclasses import dataclass, field

import pytest

from slurmplug.daemon.daemon import Daemon
from slurmplug.daemon.sd_notify import ServiceNotifier


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


def test_a_clock_that_is_set_back_does_not_make_a_sleep_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    daemon, port = Daemon.__new__(Daemon), SetBack()
    daemon._notifier, daemon._port = ServiceNotifier(), port  # type: ignore[assignment]
    daemon._stopping = daemon._reloading = daemon._superseded = False
    daemon._sleep_until(time.monotonic() + 0.2)
    assert len(port.waits) > 1
    assert max(port.waits) < 0.3

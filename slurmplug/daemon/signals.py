"""What signals ask of the daemon: SIGTERM and SIGINT that it ends, SIGHUP that it reads its configuration again."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from slurmplug.cluster.port import ClusterPort
from slurmplug.daemon.lease import Lease
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.standby import FencedCluster
from slurmplug.ledger.ledger import Ledger

ENDING_SECONDS = 1.0
"""Seconds for which Slurm and other processes that use the ledger are waited for when the daemon ends."""


class Stopped(BaseException):
    """Ends a cycle where it is, however long its stage would take."""


class Signals:
    """Which signals have come, and what they end; what waits for one pings the service manager's watchdog."""

    def __init__(self, notifier: ServiceNotifier) -> None:
        self.stopping = self.reloading = False
        self.is_applying: Callable[[], bool] = lambda: False  # a signal may come before there is a scheduler
        """whether commands are being applied, which is not interrupted"""
        self._notifier = notifier
        self._may_interrupt = False
        self._wake: Callable[[], None] = lambda: None
        self._waiting: list[FencedCluster | Ledger | Lease] = []

    def handle(self, port: FencedCluster) -> None:
        """Take signals from now on; each of them wakes the port."""
        self._wake = port.wake
        self.shorten(port)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)

    def shorten(self, waiting: FencedCluster | Ledger | Lease) -> None:
        """Have SIGTERM end soon what this waits for."""
        self._waiting.append(waiting)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Have SIGTERM end what is done within this where it is, unless commands are being applied.

        Raises:
            Stopped: it has come, also before this began
        """
        self._may_interrupt = True
        try:
            if self.stopping:
                raise Stopped
            yield
        finally:
            self._may_interrupt = False

    def go_on(self) -> bool:
        """Called several times a second while something is waited for: whether to wait on."""
        self._notifier.ping_watchdog()
        return not self.stopping

    def sleep_until(self, until: float, port: ClusterPort) -> None:
        """Sleep until then, or until a signal comes.

        until: of the monotonic clock. By the time of day it would sleep for hours if that is set back.
        """
        interval = self._notifier.watchdog_interval or math.inf
        while not (self.stopping or self.reloading) and (left := until - time.monotonic()) > 0:
            self._notifier.ping_watchdog()
            port.wait(port.now() + min(left, interval))

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self._wake()
        if number == signal.SIGHUP:
            self.reloading = True
        elif not self.stopping:
            self.stopping = True
            for each in self._waiting:
                each.finish_within(ENDING_SECONDS)
            if self._may_interrupt and not self.is_applying():
                raise Stopped

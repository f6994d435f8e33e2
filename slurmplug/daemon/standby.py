"""A daemon on each controller: standing by until it may act, and copies of the ledger that a takeover starts from."""

import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.site_client import SiteClient
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config.schema import Config
from slurmplug.daemon import lease
from slurmplug.daemon.lease import Eligibility, HeartbeatMonitor, Lease
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.errors import LedgerError, NotConfirmed, ReadFailed, SteppedDown
from slurmplug.ledger import backup

CHECK_INTERVAL = 10.0
"""Seconds from one check of the controllers to the next; less if `takeover.patience` is short."""
_POLL_INTERVAL = 1.0

log = logging.getLogger(__name__)


class FencedCluster(SlurmCluster):
    """A cluster whose commands are applied only while the lease is held, so that two daemons never act at once."""

    def __init__(self, config: Config, held_lease: Lease | None) -> None:
        """`held_lease`: None at a site with one controller."""
        super().__init__(config)
        self._lease = held_lease

    def confirm(self) -> None:
        """Make sure that this daemon may act.

        Raises:
            SteppedDown: another daemon holds the lease.
            NotConfirmed: it is not known who holds the lease.
        """
        if self._lease:
            self._lease.confirm()

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As `ClusterPort.apply`.

        Raises:
            SteppedDown: another daemon holds the lease; nothing was applied.
            NotConfirmed: it is not known who holds the lease; nothing was applied.
        """
        self.confirm()
        return super().apply(commands)


class Standby:
    """Waits for the lease, on a site with several controllers."""

    def __init__(self, config: Config, folder: Path, stopping: Callable[[], bool], host: str = "") -> None:
        """`folder`: the one that the controllers share. `stopping` returns whether to give up waiting."""
        self._folder, self._patience = folder, config.takeover.patience
        self._client = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout)
        self._host = host or socket.gethostname()
        self._stopping = stopping
        self._interval = min(CHECK_INTERVAL, self._patience / lease.HEARTBEATS)

    def wait(self, notifier: ServiceNotifier) -> Lease | None:
        """The lease, once it could be acquired; None when stopping."""
        monitor, logged = HeartbeatMonitor(time.monotonic()), ""
        while not self._stopping():
            found = self._check(monitor)
            if found.eligible:
                held_lease = Lease(self._folder, self._patience, self._host)
                try:
                    held_lease.acquire()
                except (SteppedDown, NotConfirmed) as error:
                    held_lease.close()
                    found = Eligibility(False, str(error))
                else:
                    if not self._stopping():  # acquiring takes a while
                        return held_lease
                    held_lease.close()
                    return None
            if found.reason != logged:
                logged = found.reason
                log.info("standing by: %s", found.message)
            notifier.ready(f"standing by: {found.message}")
            self._sleep(notifier)
        return None

    def may_continue(self) -> bool:
        """Whether the daemon that holds the lease goes on; it does if Slurm does not answer."""
        try:
            controllers = self._client.controllers()
        except ReadFailed:
            return True
        return lease.may_continue(lease.controller_index(controllers, self._host), controllers)

    def _check(self, monitor: HeartbeatMonitor) -> Eligibility:
        try:
            heartbeat = lease.read_heartbeat(self._folder)
            age = monitor.age(heartbeat, time.monotonic())
            controllers = self._client.controllers()
        except (ReadFailed, NotConfirmed) as error:
            return Eligibility(False, str(error))
        own = lease.controller_index(controllers, self._host)
        return lease.eligibility(own, controllers, heartbeat, age, self._patience)

    def _sleep(self, notifier: ServiceNotifier) -> None:
        until = time.monotonic() + self._interval
        while not self._stopping() and time.monotonic() < until:
            notifier.ping_watchdog()
            time.sleep(min(_POLL_INTERVAL, self._interval))


def install_newer_copy(config: Config, folder: Path) -> None:
    """Replace this host's ledger by the newest copy in the shared folder, if another daemon acted after this one.

    Raises:
        LedgerError: this host's ledger is damaged, or the copy cannot be installed.
    """
    path = config.ledger.path
    found = backup.newest(folder)
    own = backup.last_cycle(path) if path.exists() else float("-inf")
    if found is None or found[1] <= own:
        return
    aside = backup.install(found[0], path, config.spool.path)
    kept = f"; the ledger that was there is now {aside}" if aside else ""
    log.warning("taking over from %s, %.0f s old%s", found[0], max(0.0, time.time() - found[1]), kept)


class Publisher:
    """Publishes copies of the ledger to the other controllers, in a thread beside the cycles."""

    def __init__(self, config: Config, folder: Path, held_lease: Lease) -> None:
        """`folder`: the one that the controllers share."""
        self._ledger, self._folder, self._interval = config.ledger.path, folder, config.takeover.every
        self._lease = held_lease
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._copy: Future[None] | None = None
        self._started_at = float("-inf")

    def tick(self, now: float) -> None:
        """Start a copy if one is due; `now` is of a monotonic clock."""
        if self._copy is not None and self._copy.done():
            self._log_failure(self._copy)
            self._copy = None
        if self._copy is None and now - self._started_at >= self._interval:
            self._started_at = now
            self._copy = self._start()

    def close(self) -> None:
        """Publish a last copy, which the next daemon starts from."""
        self._log_failure(self._start())
        self._pool.shutdown()

    def _start(self) -> "Future[None]":
        return self._pool.submit(backup.publish, self._ledger, self._folder, self._lease.is_held)

    def _log_failure(self, copy: "Future[None]") -> None:
        try:
            copy.result()
        except LedgerError as error:
            log.error("%s; a takeover would start from the copy before", error)

"""A daemon on each controller: standing by until it may act, and acting only while it holds the lease."""

import logging
import socket
import time
from collections.abc import Callable, Sequence

from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.site_client import SiteClient
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config.schema import Config
from slurmplug.daemon import lease
from slurmplug.daemon.lease import Eligibility, HeartbeatMonitor, Lease
from slurmplug.daemon.sd_notify import ServiceNotifier
from slurmplug.daemon.shared_folder import SharedFolder
from slurmplug.errors import NotConfirmed, ReadFailed, SteppedDown
from slurmplug.spool.folder import Spool

CHECK_INTERVAL = 10.0
"""Seconds from one check of the controllers to the next; less if `takeover.patience` is short."""
_POLL_INTERVAL = 1.0

log = logging.getLogger(__name__)


class FencedCluster(SlurmCluster):
    """A cluster whose commands are applied only while the lease is held, so that two daemons never act at once."""

    def __init__(self, config: Config, held_lease: Lease | None, spool: Spool | None = None) -> None:
        """`held_lease`: None at a site with one controller. `spool`: as for SlurmCluster."""
        super().__init__(config, spool)
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

    def __init__(self, config: Config, folder: SharedFolder, stopping: Callable[[], bool], host: str = "") -> None:
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
            heartbeat = self._folder.heartbeat()
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

"""A daemon on each controller: standing by until it is its turn, and what the one that acts leaves to the others."""

import logging
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from slurmplug import takeover
from slurmplug.cluster.port import Command, Outcome
from slurmplug.cluster.site_client import SiteClient
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.config import Config
from slurmplug.errors import LedgerError, NotConfirmed, ReadFailed, SteppedDown
from slurmplug.ledger import backup
from slurmplug.notify import Manager
from slurmplug.takeover import Life, Turn, Watch

LOOK = 10.0
"""Seconds from one look at the controllers to the next, or sooner where the patience is short."""
_NAP = 1.0

log = logging.getLogger(__name__)


class FencedCluster(SlurmCluster):
    """A cluster on which nothing is done before it is sure that no other daemon acts."""

    def __init__(self, config: Config, life: Life | None) -> None:
        super().__init__(config)
        self._life = life

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As `ClusterPort` says. Raises SteppedDown, NotConfirmed."""
        if self._life:
            self._life.confirm()
        return super().apply(commands)


class Standby:
    """One of the daemons of a site with several controllers."""

    def __init__(self, config: Config, folder: Path, stopping: Callable[[], bool], host: str = "") -> None:
        self._folder, self._patience = folder, config.takeover.patience
        self._client = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout)
        self._host = host or socket.gethostname()
        self._stopping = stopping
        self._pause = min(LOOK, self._patience / takeover.BEATS)

    def wait(self, manager: Manager) -> Life | None:
        """The sign of life of a daemon whose turn it is; None when told to stop."""
        watch, said = Watch(time.monotonic()), ""
        while not self._stopping():
            now = self._look(watch)
            if now.acts:
                life = Life(self._folder, self._patience, self._host)
                try:
                    life.claim()
                except (SteppedDown, NotConfirmed) as error:
                    life.close()
                    now = Turn(False, str(error))
                else:
                    if not self._stopping():  # to claim takes a while
                        return life
                    life.close()
                    return None
            if now.why.partition(" showed")[0] != said:
                said = now.why.partition(" showed")[0]
                log.info("standing by: %s", now.why)
            manager.ready(f"standing by: {now.why}")
            self._rest(manager)
        return None

    def stays(self) -> bool:
        """Whether the daemon that acts is to go on; where Slurm does not say, it is."""
        try:
            controllers = self._client.controllers()
        except ReadFailed:
            return True
        return takeover.stays(takeover.position(controllers, self._host), controllers)

    def _look(self, watch: Watch) -> Turn:
        try:
            sign = takeover.read(self._folder)
            still = watch.still(sign, time.monotonic())
            controllers = self._client.controllers()
        except (ReadFailed, NotConfirmed) as error:
            return Turn(False, str(error))
        own = takeover.position(controllers, self._host)
        return takeover.turn(own, controllers, sign, still, self._patience)

    def _rest(self, manager: Manager) -> None:
        until = time.monotonic() + self._pause
        while not self._stopping() and time.monotonic() < until:
            manager.alive()
            time.sleep(min(_NAP, self._pause))


def adopt(config: Config, folder: Path) -> None:
    """Put the newest copy in the place of this machine's ledger, where another daemon acted after it.

    Raises:
        LedgerError: this machine's ledger is damaged, or the copy cannot be put in place.
    """
    path = config.ledger.path
    found = backup.newest(folder)
    own = backup.last_cycle(path) if path.exists() else float("-inf")
    if found is None or found[1] <= own:
        return
    aside = backup.install(found[0], path, config.spool.path)
    kept = f"; what was there is {aside} now" if aside else ""
    log.warning("taking over from %s, %.0f s old%s", found[0], max(0.0, time.time() - found[1]), kept)


class Publisher:
    """Copies of the ledger for the others, made beside the cycles."""

    def __init__(self, config: Config, folder: Path, life: Life) -> None:
        self._ledger, self._folder, self._every, self._life = config.ledger.path, folder, config.takeover.every, life
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._last: Future[None] | None = None
        self._begun = float("-inf")

    def tick(self, now: float) -> None:
        """Begin a copy where one is due; `now`: a monotonic clock."""
        if self._last is not None and self._last.done():
            self._tell(self._last)
            self._last = None
        if self._last is None and now - self._begun >= self._every:
            self._begun = now
            self._last = self._pool.submit(backup.publish, self._ledger, self._folder, self._life.owns)

    def close(self) -> None:
        """A last copy: whoever acts next goes on from here."""
        self._tell(self._pool.submit(backup.publish, self._ledger, self._folder, self._life.owns))
        self._pool.shutdown()

    def _tell(self, copy: "Future[None]") -> None:
        try:
            copy.result()
        except LedgerError as error:
            log.error("%s; a takeover would begin from the copy before", error)

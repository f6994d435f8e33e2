"""Copies of the ledger in the folder that the controllers share: the newest is taken over, and others are published.

They are made by a process of its own: a copy takes as long as the ledger is large, or for as long as the folder hangs.
"""

import logging
import math
import time
from collections.abc import Callable

from slurmplug.config.schema import Config
from slurmplug.daemon.lease import Lease
from slurmplug.errors import LedgerError
from slurmplug.ledger import backup
from slurmplug.processes.worker import Worker

LAST_SECONDS = 0.5
"""in which the last copy is made as the daemon ends"""

log = logging.getLogger(__name__)


class Copies:
    """The copies of the daemon that acts."""

    def __init__(self, config: Config, held_lease: Lease) -> None:
        """Start the process. Raises OSError."""
        self._ledger, self._spool, self._interval = config.ledger.path, config.spool.path, config.takeover.every
        self._lease, self._folder = held_lease, held_lease.folder.path
        self._worker = Worker("copies")
        self._open = False
        self._started_at = -math.inf

    def take_over(self, in_spool: Callable[..., object], go_on: Callable[[], bool]) -> None:
        """Replace this host's ledger by the newest copy, if another daemon acted after this one.

        in_spool: calls a function that uses the spool, as `SpoolProcess.call`.
        go_on: called several times a second meanwhile; returns whether to wait on.

        Raises:
            LedgerError: as `backup.take_over`, or the folder does not answer.
        """
        try:
            self._worker.begin(backup.take_over, self._folder, self._ledger)
            found: backup.Installed | None = self._worker.result(None, go_on)
        except OSError as error:
            if not go_on():
                return
            raise LedgerError(f"no copy can be taken over from {self._folder}: {error}") from error
        if found is None:
            return
        try:
            in_spool(backup.withdraw_unknown, self._spool, found.expected)
        except OSError as error:
            log.warning("requests that the copy does not know cannot be withdrawn: %s", error)
        kept = f"; the ledger that was there is now {found.aside}" if found.aside else ""
        log.warning("taking over from %s, %.0f s old%s", found.copy, max(0.0, time.time() - found.last_cycle), kept)

    def tick(self, now: float) -> None:
        """Start a copy if one is due; `now` is of a monotonic clock."""
        self._take(now, lambda: True)
        if not self._open and now - self._started_at >= self._interval:
            self._started_at = now
            self._begin()

    def close(self, go_on: Callable[[], bool]) -> None:
        """Publish a last copy, which the next daemon starts from, and end the process.

        go_on: as for `take_over`; where it says no, a last copy is made only if that is a matter of a moment.
        """
        until = None if go_on() else time.monotonic() + LAST_SECONDS
        self._take(until, go_on)
        if not self._open and self._lease.is_held():
            self._begin()
            self._take(until, go_on)
        if self._open:
            log.warning("a last copy of the ledger would take too long; a takeover would start from the copy before")
        self._worker.close()

    def _begin(self) -> None:
        try:
            self._worker.begin(backup.publish, self._ledger, self._folder, self._lease.holder.acts)
            self._open = True
        except OSError as error:
            self._log_failure(error)

    def _take(self, until: float | None, go_on: Callable[[], bool]) -> None:
        """Wait for the copy that is under way, if there is one, until a time of the monotonic clock; None for any."""
        if not self._open:
            return
        try:
            if until is None:
                self._worker.result(None, go_on)
            else:
                self._worker.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            self._open = self._worker.running
            return
        except (OSError, LedgerError) as error:
            self._log_failure(error)
        self._open = False

    def _log_failure(self, error: Exception) -> None:
        log.error("%s; a takeover would start from the copy before", error)

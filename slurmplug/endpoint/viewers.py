"""Which users may see all jobs, as in Slurm: with PrivateData=jobs operators and administrators only, else all."""

import logging
import os
import pwd
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from slurmplug.errors import ReadFailed
from slurmplug.processes.background import BackgroundCall
from slurmplug.reports.viewer import Viewer

REFRESH_SECONDS = 60.0
"""Seconds after which Slurm is queried again."""
EXPIRE_SECONDS = 3_600.0
"""Seconds after which an answer expires if Slurm does not give another; then users see their own jobs only."""

log = logging.getLogger(__name__)


class VisibilitySource(Protocol):
    """What Slurm reports about the site."""

    def private_data(self) -> frozenset[str]:
        """The values of PrivateData."""
        ...

    def admin_levels(self) -> Mapping[str, str]:
        """By user, the AdminLevel in slurmdbd."""
        ...


class _Visibility(NamedTuple):
    at: float
    private: bool
    levels: Mapping[str, str]

    def operates(self, uid: int) -> bool:
        """Whether a uid is an operator or administrator."""
        return self.levels.get(account_name(uid)) in {"Operator", "Administrator"}


class Viewers:
    """Caches what Slurm reports about its users; thread-safe. Slurm is queried beside the requests."""

    def __init__(self, source: VisibilitySource) -> None:
        """`source`: Slurm's settings."""
        self._source = source
        self._visibility: _Visibility | None = None
        self._query: BackgroundCall[_Visibility] = BackgroundCall("viewers")
        self._tried = float("-inf")
        self._lock = threading.Lock()

    def viewer(self, uid: int, now: float | None = None) -> Viewer:
        """What a uid may see. `now`: of a monotonic clock, this machine's by default."""
        if uid in (0, os.geteuid()):
            return Viewer(uid, sees_all=True)
        visibility = self._current(time.monotonic() if now is None else now)
        if visibility is None:
            return Viewer(uid, sees_all=False)
        return Viewer(uid, sees_all=not visibility.private or visibility.operates(uid))

    def operates(self, uid: int, now: float | None = None) -> bool:
        """Whether a uid is an operator or administrator of Slurm, root, or this daemon's own; `now` as in `viewer`."""
        if uid in (0, os.geteuid()):
            return True
        visibility = self._current(time.monotonic() if now is None else now)
        return visibility is not None and visibility.operates(uid)

    def _current(self, now: float) -> _Visibility | None:
        with self._lock:
            if now - self._tried > REFRESH_SECONDS and not self._query.pending:
                self._tried = now
                self._query.start(lambda: self._read(now))
            try:
                self._visibility = self._query.poll() or self._visibility
            except ReadFailed as error:
                log.warning("PrivateData and admin levels cannot be read; the earlier ones are used: %s", error)
            return self._visibility if self._visibility and now - self._visibility.at <= EXPIRE_SECONDS else None

    def _read(self, now: float) -> _Visibility:
        private = bool(self._source.private_data() & {"jobs", "all"})
        return _Visibility(now, private, self._source.admin_levels())


def account_name(uid: int) -> str:
    """The name of a uid on this machine; empty where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""

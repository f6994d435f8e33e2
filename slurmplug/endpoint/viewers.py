"""Whom Slurm shows everybody's jobs: all users without PrivateData=jobs, else operators and administrators."""

import logging
import os
import pwd
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from slurmplug.errors import ReadFailed
from slurmplug.reports.service import Viewer

FRESH = 60.0
"""Seconds that Slurm's answer is believed;"""
STALE = 3_600.0
"""and this long where it gives no newer one. After that everybody sees only their own."""

log = logging.getLogger(__name__)


class Source(Protocol):
    """Slurm, asked about the site."""

    def private_data(self) -> frozenset[str]: ...

    def admin_levels(self) -> Mapping[str, str]: ...


class _Told(NamedTuple):
    at: float
    private: bool
    levels: Mapping[str, str]


class Viewers:
    """Remembers what Slurm says of its users; safe in threads, one of which asks Slurm at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._told: _Told | None = None
        self._tried = float("-inf")
        self._lock = threading.Lock()

    def of(self, uid: int, now: float | None = None) -> Viewer:
        """The viewer of a uid. `now`: a monotonic clock, this machine's by default."""
        if uid in (0, os.geteuid()):
            return Viewer(uid, sees_all=True)
        told = self._current(time.monotonic() if now is None else now)
        if told is None:
            return Viewer(uid, sees_all=False)
        return Viewer(uid, sees_all=not told.private or told.levels.get(_name(uid)) in {"Operator", "Administrator"})

    def _current(self, now: float) -> _Told | None:
        with self._lock:
            if now - self._tried > FRESH:
                self._tried = now
                try:
                    private = bool(self._source.private_data() & {"jobs", "all"})
                    self._told = _Told(now, private, self._source.admin_levels())
                except ReadFailed as error:
                    log.warning("who may see all jobs is not known anew: %s", error)
            return self._told if self._told and now - self._told.at <= STALE else None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""

"""The files of runs in the spool's folders: their names, and removing those of runs that ended.

reports/   JOBID.RESTART.RANDOM.jsonl, or JOBID.RESTART.jsonl where its user has no home; mode 3773, of the daemon
requests/  JOBID.RESTART.stop, JOBID.RESTART.checkpoint, and JOBID.RESTART.notice, which report() prints, each with .new
           while it is written; only the daemon can write here
"""

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from slurmplug.spool.values import RunId, SpoolFault

REPORTS, REQUESTS = "reports", "requests"
REPORT_NAME = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})(?:\.[0-9a-f]{1,32})?\.jsonl", re.ASCII)
UNFINISHED = ".new"
REQUEST_NAME = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})\.(?:stop|checkpoint|notice)(?:\.new)?", re.ASCII)

SWEEP_SECONDS = 1.0
"""for which one call sweeps,"""
SWEEP_NAMES = 100
"""looking at the clock after so many names"""

FaultCounts = Counter[tuple[int, str, str]]
"""How often, by job id, rule and detail of a `SpoolFault`."""


class Swept(NamedTuple):
    """What could not be removed, such as a directory with a report's name, and whether that was the last piece."""

    faults: tuple[SpoolFault, ...]
    finished: bool


class Sweeper:
    """Removes what nobody needs any more from the spool's folders, in pieces, so that others can use it meanwhile."""

    def __init__(self, spool: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._spool, self._clock = spool, clock
        self._reports = Names(spool / REPORTS)

    def sweep(self, keep: Container[RunId], asked: Container[RunId], before: float) -> Swept:
        """Remove reports that were last changed before that time, and requests that nobody waits for.

        Of reports, as many as can be in `SWEEP_SECONDS`, going on from where the call before ended, also what users
        made under another name. What counts is when a file was changed by the file server's clock, as its user can set
        the time of its last writing.

        Args:
            keep: the runs whose reports and notices stay.
            asked: the runs to which requests are open; any other may be to an earlier job with the same id.
            before: seconds since the epoch.
        """
        counts: FaultCounts = Counter()
        until, finished = self._clock() + SWEEP_SECONDS, True
        try:
            if self._reports.at_start:
                with opened_folder(self._spool / REQUESTS) as folder:
                    for entry, run in list(names_in(folder, REQUEST_NAME)):
                        if run not in (keep if entry.endswith(".notice") else asked):
                            _remove(folder, entry, run, math.inf, counts)
        except OSError as error:
            counts[0, "spool", f"{REQUESTS}: {reason_of(error)}"] += 1
        try:
            with opened_folder(self._spool / REPORTS) as folder:
                finished = self._sweep_reports(folder, keep, before, until, counts)
        except OSError as error:
            counts[0, "spool", f"{REPORTS}: {reason_of(error)}"] += 1
        return Swept(faults_of(counts), finished)

    def _sweep_reports(
        self, folder: int, keep: Container[RunId], before: float, until: float, counts: FaultCounts
    ) -> bool:
        """Whether all of the folder was looked at. Raises OSError."""
        while self._clock() < until:
            names = self._reports.next(SWEEP_NAMES)
            for name in names:
                run = run_of(name, REPORT_NAME)
                if run is None or run not in keep:
                    _remove(folder, name, run, before, counts)
            if self._reports.at_start:
                return True
        return False


class Names:
    """The names in a folder, in pieces: as long as it takes to list very many, the rest waits for a later call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: Iterator[os.DirEntry[str]] | None = None

    @property
    def at_start(self) -> bool:
        """Whether the next piece is the first one."""
        return self._entries is None

    def next(self, most: int) -> list[str]:
        """The next piece; fewer than `most` where it is the last one. Raises OSError."""
        if self._entries is None:
            self._entries = os.scandir(self._path)
        try:
            names = [entry.name for entry in islice(self._entries, most)]
        except OSError:
            self._entries = None
            raise
        if len(names) < most:
            self._entries = None
        return names


def remove_reports(spool: Path, jobs: Container[int], uids: Container[int]) -> tuple[int, Counter[str]]:
    """Remove the report files of these jobs that are of these users.

    Returns how many, and how many of them could not be removed, by the reason. Raises OSError.
    """
    removed, kept = 0, Counter[str]()
    with opened_folder(spool / REPORTS) as folder:
        for name, run in list(names_in(folder, REPORT_NAME)):
            if run.job_id not in jobs:
                continue
            try:
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid in uids:
                    os.unlink(name, dir_fd=folder)
                    removed += 1
            except FileNotFoundError:
                continue  # removed by someone else
            except OSError as error:
                kept[reason_of(error)] += 1
    return removed, kept


def _remove(folder: int, name: str, run: RunId | None, until: float, counts: FaultCounts) -> None:
    """Remove what was last changed before that time; what is of no run, only where it is a user's."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_ctime < until and (run or status.st_uid not in (0, os.geteuid())):
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return  # removed by someone else
    except OSError as error:
        counts[run.job_id if run else 0, "not removed", reason_of(error)] += 1


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """A descriptor of the folder, which is no link. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def names_in(folder: int, pattern: re.Pattern[str]) -> Iterator[tuple[str, RunId]]:
    """The names in a folder that match REPORT_NAME or REQUEST_NAME, each with its run. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if run := run_of(entry.name, pattern):
                yield entry.name, run


def run_of(name: str, pattern: re.Pattern[str]) -> RunId | None:
    """The run that a name names; None where it does not match REPORT_NAME or REQUEST_NAME."""
    match = pattern.fullmatch(name)
    return RunId(int(match[1]), int(match[2])) if match else None


def faults_of(counts: FaultCounts) -> tuple[SpoolFault, ...]:
    """The faults that were counted at least once."""
    return tuple(SpoolFault(*what, count) for what, count in counts.items() if count)


def reason_of(error: OSError) -> str:
    """The system's message for an error, without paths, which users may have chosen."""
    return error.strerror or type(error).__name__

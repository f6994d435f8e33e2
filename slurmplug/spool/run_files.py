"""The files of runs in the spool's folders: their names, and removing those of runs that ended.

reports/   JOBID.RESTART.jsonl, or JOBID.RESTART.RANDOM.jsonl where that name was taken; mode 3773, of the daemon
requests/  JOBID.RESTART.stop, JOBID.RESTART.checkpoint, and JOBID.RESTART.notice, which report() prints, each with .new
           while it is written; only the daemon can write here
"""

import math
import os
import re
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmplug.spool.report_lines import RunId, SpoolFault

REPORTS, REQUESTS = "reports", "requests"
REPORT_NAME = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})(?:\.[0-9a-f]{1,32})?\.jsonl", re.ASCII)
UNFINISHED = ".new"
REQUEST_NAME = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})\.(?:stop|checkpoint|notice)(?:\.new)?", re.ASCII)

FaultCounts = Counter[tuple[int, str, str]]
"""How often, by job id, rule and detail of a `SpoolFault`."""


def sweep(spool: Path, keep: Container[RunId], asked: Container[RunId], before: float) -> tuple[SpoolFault, ...]:
    """Remove the reports of ended runs that were last written before that time, and requests that nobody waits for.

    Args:
        spool: the spool's folder.
        keep: the runs whose reports and notices stay.
        asked: the runs to which requests are open; any other may be to an earlier job with the same id.
        before: seconds since the epoch.

    Returns:
        What could not be removed, such as a directory with a report's name.
    """
    counts: FaultCounts = Counter()
    for name, pattern, kept, until in (
        (REPORTS, REPORT_NAME, keep, before),
        (REQUESTS, REQUEST_NAME, asked, math.inf),
    ):
        try:
            with opened_folder(spool / name) as folder:
                for entry, run in list(names_in(folder, pattern)):
                    if run not in (keep if entry.endswith(".notice") else kept):
                        _remove(folder, entry, run, until, counts)
        except OSError as error:
            counts[0, "spool", f"{name}: {reason_of(error)}"] += 1
    return faults_of(counts)


def _remove(folder: int, name: str, run: RunId, until: float, counts: FaultCounts) -> None:
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < until:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return  # removed by someone else
    except OSError as error:
        counts[run.job_id, "not removed", reason_of(error)] += 1


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """A descriptor of the folder. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def names_in(folder: int, pattern: re.Pattern[str]) -> Iterator[tuple[str, RunId]]:
    """The names in a folder that match REPORT_NAME or REQUEST_NAME, each with its run. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := pattern.fullmatch(entry.name):
                yield entry.name, RunId(int(match[1]), int(match[2]))


def faults_of(counts: FaultCounts) -> tuple[SpoolFault, ...]:
    """The faults that were counted at least once."""
    return tuple(SpoolFault(*what, count) for what, count in counts.items() if count)


def reason_of(error: OSError) -> str:
    """The system's message for an error, without paths, which users may have chosen."""
    return error.strerror or type(error).__name__

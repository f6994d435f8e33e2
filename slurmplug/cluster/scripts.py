"""Reading job scripts: each once for each submission, and one that cannot be read again, at growing intervals."""

import logging
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import LIVE_STATES, JobRows, Submission
from slurmplug.errors import ReadFailed
from slurmplug.spool.report_lines import SpoolFault

SCRIPTS_PER_CYCLE = 500
"""scripts read in one cycle, at about 4 ms each; the others are read in the next"""
FAILURES_PER_CYCLE = 3
"""scripts that cannot be read in one cycle; after so many, the others are left for the next, as each failure may take
the client's whole timeout"""
FIRST_RETRY, LAST_RETRY = 5.0, 3_600.0
"""seconds until a script that could not be read is tried again, and at most; each time twice as long"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewScripts:
    """The scripts that were read, by job id, and a fault for each job whose script could not be."""

    scripts: Mapping[int, bytes] = field(default_factory=dict)
    faults: tuple[SpoolFault, ...] = ()


class _Retry(NamedTuple):
    at: float
    pause: float


class ScriptReader:
    """Reads the scripts of new submissions, and remembers which could not be read."""

    def __init__(self, client: CliClient, began: float) -> None:
        """`began`: seconds since the epoch; no script is read of a job that had ended before."""
        self._client = client
        self._began = began
        self._retries: dict[Submission, _Retry] = {}

    def read(self, jobs: JobRows, known: Container[Submission], now: float) -> NewScripts:
        """The scripts of the batch jobs whose submissions are not known; no failure makes it raise.

        An array and a heterogeneous job have one script for all. It is read once, and not again for a part of a whole
        whose submission is known.
        """
        wanted = self._wanted(jobs, known)
        self._retries = {each: retry for each, retry in self._retries.items() if each in wanted}
        due = [each for each in wanted if each not in self._retries or self._retries[each].at <= now]
        due.sort(key=self._retries.__contains__)  # those that were never tried come first
        scripts: dict[int, bytes] = {}
        faults: Counter[tuple[int, str]] = Counter()
        for submission in due[:SCRIPTS_PER_CYCLE]:
            members = wanted[submission]
            job_id = submission[0] if submission[0] in members else members[0]
            try:
                scripts |= dict.fromkeys(members, self._client.script(job_id))
                self._retries.pop(submission, None)
            except ReadFailed as error:
                pause = self._postpone(submission, now)
                log.warning("the script of job %d cannot be read: %s; tried again in %g s", job_id, error, pause)
                faults[job_id, str(error)] += 1
                if len(faults) >= FAILURES_PER_CYCLE:
                    break
        return NewScripts(scripts, tuple(SpoolFault(job, "script", why, n) for (job, why), n in faults.items()))

    def _wanted(self, jobs: JobRows, known: Container[Submission]) -> dict[Submission, list[int]]:
        """By submission of the array, the heterogeneous job or else the job: the jobs whose script is to be read."""
        wholes = np.where(jobs.array_id > 0, jobs.array_id, np.where(jobs.het_id > 0, jobs.het_id, jobs.job_id))
        over = jobs.end < self._began
        over[over] = [state not in LIVE_STATES for state in jobs.state[over].tolist()]  # not one beyond its time limit
        rows = np.flatnonzero(jobs.batch & ~over)
        columns = (jobs.job_id[rows], wholes[rows], jobs.submit[rows].astype(np.int64))
        wanted: dict[Submission, list[int]] = {}
        for job_id, whole, submit in zip(*(column.tolist() for column in columns), strict=True):
            if (job_id, submit) not in known and (whole, submit) not in known:
                wanted.setdefault((whole, submit), []).append(job_id)
        return wanted

    def _postpone(self, submission: Submission, now: float) -> float:
        before = self._retries.get(submission)
        pause = FIRST_RETRY if before is None else min(2 * before.pause, LAST_RETRY)
        self._retries[submission] = _Retry(now + pause, pause)
        return pause

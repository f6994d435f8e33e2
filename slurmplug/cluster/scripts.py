"""Reading job scripts: each once for each submission, and one that cannot be read again, at growing intervals.

They are read beside the cycles, users in turns: a cycle takes those that have been read, and waits a moment at most.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import JobRows, Submission
from slurmplug.cluster.round_robin import round_robin
from slurmplug.cluster.states import LIVE_STATES
from slurmplug.errors import ReadFailed
from slurmplug.processes.background import BackgroundCall
from slurmplug.spool.values import SpoolFault

SHARE = 0.05
"""of the time between two cycles, in which scripts are read, at about 4 ms each; the others wait for later ones"""
FIRST_SECONDS, MOST_SECONDS = 2.0, 3.0
"""of the first reading, and of one at most"""
MOST_FAILURES = 3
"""scripts of one reading that cannot be read; after so many, the others are left for the next, as each failure may take
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


class _Wanted(NamedTuple):
    uid: int
    members: list[int]
    """the jobs whose script it is"""


_Answers: TypeAlias = Mapping[Submission, bytes | ReadFailed]


class ScriptReader:
    """Reads the scripts of new submissions, and remembers which could not be read."""

    def __init__(self, client: CliClient, began: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`began`: seconds since the epoch; no script is read of a job that had ended before."""
        self._client = client
        self._began = began
        self._clock = clock
        self._retries: dict[Submission, _Retry] = {}
        self._reads: BackgroundCall[_Answers] = BackgroundCall("scripts")
        self._asked_at: float | None = None

    def read(self, jobs: JobRows, known: Container[Submission], now: float) -> NewScripts:
        """The scripts of the batch jobs whose submissions are not known, as far as they have been read.

        An array and a heterogeneous job have one script for all. It is read once, and not again for a part of a whole
        whose submission is known. No failure makes it raise.
        """
        wanted = self._wanted(jobs, known)
        self._retries = {each: retry for each, retry in self._retries.items() if each in wanted}
        answers = dict(self._reads.poll() or {})
        unread = {each: it for each, it in wanted.items() if each not in answers}
        if not self._reads.pending and self._start_reading(unread, now):
            answers |= self._reads.poll() or {}
        scripts: dict[int, bytes] = {}
        faults: Counter[tuple[int, str]] = Counter()
        for submission, answer in answers.items():
            if submission not in wanted:
                continue
            if isinstance(answer, ReadFailed):
                job_id, pause = _job_of(submission, wanted[submission]), self._postpone(submission, now)
                log.warning("the script of job %d cannot be read: %s; tried again in %g s", job_id, answer, pause)
                faults[job_id, str(answer)] += 1
            else:
                scripts |= dict.fromkeys(wanted[submission].members, answer)
                self._retries.pop(submission, None)
        return NewScripts(scripts, tuple(SpoolFault(job, "script", why, n) for (job, why), n in faults.items()))

    def _start_reading(self, wanted: Mapping[Submission, _Wanted], now: float) -> bool:
        """Start to read the scripts that are due, users in turns; returns whether there are any."""
        due = [each for each in wanted if each not in self._retries or self._retries[each].at <= now]
        due.sort(key=self._retries.__contains__)  # those that were never tried come first
        turns = {each: _job_of(each, wanted[each]) for each in round_robin(due, lambda each: wanted[each].uid)}
        if turns:
            before, self._asked_at = self._asked_at, self._clock()
            share = FIRST_SECONDS if before is None else min(SHARE * (self._asked_at - before), MOST_SECONDS)
            self._reads.start(lambda: self._read(turns, share))
        return bool(turns)

    def _read(self, turns: Mapping[Submission, int], seconds: float) -> _Answers:
        """The scripts of these jobs, as many as can be read in the time but at least one."""
        until, answers, failures = self._clock() + seconds, dict[Submission, bytes | ReadFailed](), 0
        for submission, job_id in turns.items():
            try:
                answers[submission] = self._client.script(job_id)
            except ReadFailed as error:
                answers[submission] = error
                failures += 1
            if failures >= MOST_FAILURES or self._clock() >= until:
                break
        return answers

    def _wanted(self, jobs: JobRows, known: Container[Submission]) -> dict[Submission, _Wanted]:
        """By submission of the array, the heterogeneous job or else the job: the scripts that are to be read."""
        wholes = np.where(jobs.array_id > 0, jobs.array_id, np.where(jobs.het_id > 0, jobs.het_id, jobs.job_id))
        over = jobs.end < self._began
        over[over] = [state not in LIVE_STATES for state in jobs.state[over].tolist()]  # not one beyond its time limit
        rows = np.flatnonzero(jobs.batch & ~over)
        columns = (jobs.job_id[rows], wholes[rows], jobs.submit[rows].astype(np.int64), jobs.uid[rows])
        wanted: dict[Submission, _Wanted] = {}
        for job_id, whole, submit, uid in zip(*(column.tolist() for column in columns), strict=True):
            if (job_id, submit) not in known and (whole, submit) not in known:
                wanted.setdefault((whole, submit), _Wanted(uid, [])).members.append(job_id)
        return wanted

    def _postpone(self, submission: Submission, now: float) -> float:
        before = self._retries.get(submission)
        pause = FIRST_RETRY if before is None else min(2 * before.pause, LAST_RETRY)
        self._retries[submission] = _Retry(now + pause, pause)
        return pause


def _job_of(submission: Submission, wanted: _Wanted) -> int:
    """The job by which the script is read: the whole, where that is listed."""
    return submission[0] if submission[0] in wanted.members else wanted.members[0]

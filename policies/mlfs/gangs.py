"""The jobs of each ML job, which start and are preempted together, and requests that need no less than another."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from policies.snapshot import Jobs
from predictors.arrays import Bools, Floats, Ints


class Gang(NamedTuple):
    """A gang of running jobs that can be preempted: rows, the highest of their ranks, the GPUs they hold.

    helps: whether a job could be placed on one of their nodes then; otherwise those nodes are not searched.
    """

    rows: tuple[int, ...]
    score: float
    held: int
    helps: bool


class GangRows:
    """The rows of each gang: the jobs of one ML job."""

    def __init__(self, jobs: Jobs) -> None:
        self._ml_job = jobs.ml_job
        self._sizes = np.bincount(jobs.ml_job, minlength=len(jobs))
        self._order = np.argsort(jobs.ml_job, kind="stable")
        self._first = np.cumsum(self._sizes) - self._sizes

    def size(self, row: int) -> int:
        """The number of jobs in the gang of this row."""
        return int(self._sizes[self._ml_job[row]])

    def of(self, row: int) -> Ints:
        """The rows of the gang of this row."""
        ml_job = self._ml_job[row]
        return self._order[self._first[ml_job] : self._first[ml_job] + self._sizes[ml_job]]


class GangRequests(NamedTuple):
    """What the jobs of each job's gang that may start request, columns (n,).

    gpus: in all. score: the highest. placement: the placement class of the first.
    """

    gpus: Ints
    score: Floats
    placement: Ints

    @classmethod
    def of(cls, jobs: Jobs, score: Floats, starts: Bools) -> "GangRequests":
        """By the scores of the jobs (n,), of which these may start (n,)."""
        rows = np.flatnonzero(starts)
        gangs, highest, first = jobs.ml_job[rows], np.full(len(jobs), -np.inf), np.zeros(len(jobs), dtype=np.int64)
        np.fmax.at(highest, gangs, score[rows])
        first[gangs[::-1]] = rows[::-1]
        gpus = np.bincount(gangs, jobs.gpus[rows], minlength=len(jobs)).astype(np.int64)
        return cls(gpus[jobs.ml_job], highest[jobs.ml_job], jobs.placement[first][jobs.ml_job])


def requests_no_less(jobs: Jobs, rows: Ints, row: int) -> Bools:
    """(k,) which of these rows request no less of any resource than this one, on the same nodes."""
    no_less = [column[rows] >= column[row] for column in jobs.demand.T]  # much faster than over rows of three
    return np.asarray(np.logical_and.reduce([jobs.placement[rows] == jobs.placement[row], *no_less]))


def rank_of(gang: Gang) -> float:
    """The highest rank of its jobs."""
    return gang.score


def gang_counts(lower: Sequence[Gang], missing_gpus: int) -> Iterator[int]:
    """How many gangs to try: those that hold the missing GPUs, then half more jobs each time, at last all."""
    held = jobs = enough = 0
    for count, gang in enumerate(lower, start=1):
        held, jobs = held + gang.held, jobs + len(gang.rows)
        if held >= missing_gpus and (jobs >= enough or count == len(lower)):
            yield count
            enough = max(jobs + 1, jobs * 3 // 2)

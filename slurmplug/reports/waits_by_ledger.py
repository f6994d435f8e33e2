"""What a model learns waits from, of the jobs of the ledger, and what it is told of one that might be submitted.

The jobs of each partition are a queue of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Floats
from slurmplug.forecasting.starts.live_queue import NO_LIMIT
from slurmplug.forecasting.starts.queue_history import QueueHistory
from slurmplug.forecasting.starts.wait_model import MOST, Waits
from slurmplug.ledger import run_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.run_queries import QueuedJob

_JOBS = 2 * MOST
"""the latest, beside those that wait or run"""


class NewJob(NamedTuple):
    """A job that might be submitted: its demand (resources,) in all, its time limit, and its run time as forecast, in
    seconds."""

    demand: Floats
    limit: float
    expected: float


class WaitsByLedger:
    """The queues of a ledger's partitions."""

    def __init__(self, ledger: LedgerFile, snapshot: Snapshot) -> None:
        """snapshot: by whose nodes it is told how large a job is. Raises LedgerError."""
        self._capacity = snapshot.nodes.capacity.sum(axis=0)
        self._jobs: dict[str, list[QueuedJob]] = {}
        for job in sorted(run_queries.queued_jobs(ledger, _JOBS), key=lambda job: job.queued):
            self._jobs.setdefault(job.partition, []).append(job)

    def learnt_from(self) -> tuple[list[JobKey], Waits]:
        """The latest jobs that have started, and were neither elements of an array nor requeued."""
        found: list[tuple[float, float, JobKey, list[float]]] = []
        latest = sorted((job.queued for jobs in self._jobs.values() for job in jobs if _tells(job)), reverse=True)
        since = latest[:MOST][-1] if latest else np.inf
        for jobs in self._jobs.values():
            history = self._history(jobs)
            for row, job in enumerate(jobs):
                if _tells(job) and job.queued >= since:
                    features = history.features(history.state(row))
                    found.append((job.queued, float(history.start[row]), job.key, features))
        found.sort(key=lambda each: each[:2])
        times = np.array([each[:2] for each in found], dtype=np.float64).reshape(-1, 2)
        table = np.array([each[3] for each in found], dtype=np.float64)
        return [each[2] for each in found], Waits(table, times[:, 0], times[:, 1])

    def features(self, user: str, partition: str, variants: Sequence[NewJob], now: float) -> Floats:
        """(variants, features) of a job of this user that is submitted there now."""
        jobs = [job for job in self._jobs.get(partition, []) if job.queued <= now]
        found = []
        for each in variants:
            history = self._history(jobs, (user, each, now))
            found.append(history.features(history.state(len(jobs))))
        return np.array(found, dtype=np.float64)

    def _history(self, jobs: Sequence[QueuedJob], new: tuple[str, NewJob, float] | None = None) -> QueueHistory:
        """Of these jobs, and one more of that user that is submitted last, at that time."""
        limit = [NO_LIMIT if job.time_limit is None else job.time_limit for job in jobs]
        expected = [one / 2 if job.predicted is None else job.predicted for job, one in zip(jobs, limit, strict=True)]
        demand = np.array([job.demand for job in jobs], dtype=np.float64).reshape(-1, len(self._capacity))
        users, queued = [job.user for job in jobs], [job.queued for job in jobs]
        start, end = [_or_never(job.started) for job in jobs], [_or_never(job.ended) for job in jobs]
        if new is not None:
            user, job, now = new
            users, queued, start, end = [*users, user], [*queued, now], [*start, np.inf], [*end, np.inf]
            limit, expected = [*limit, job.limit], [*expected, job.expected]
            demand = np.vstack([demand, job.demand])
        return QueueHistory(
            submit=np.array(queued, dtype=np.float64),
            start=np.array(start, dtype=np.float64),
            end=np.array(end, dtype=np.float64),
            units=self._dominant_share(demand),
            limit=np.array(limit, dtype=np.float64),
            expected=np.array(expected, dtype=np.float64),
            user=np.unique(np.array(users, dtype=np.str_), return_inverse=True)[1],
        )

    def _dominant_share(self, demand: Floats) -> Floats:
        """(n,) of the demand (n, resources): the largest share of what the cluster has of a resource."""
        there = self._capacity > 0
        return np.asarray((demand[:, there] / self._capacity[there]).max(axis=1, initial=0.0))


def _tells(job: QueuedJob) -> bool:
    return job.single and job.started is not None


def _or_never(at: float | None) -> float:
    return np.inf if at is None else at

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
        self._users: dict[str, int] = {}
        for job in sorted(run_queries.queued_jobs(ledger, _JOBS), key=lambda job: job.queued):
            self._jobs.setdefault(job.partition, []).append(job)
            self._users.setdefault(job.user, len(self._users))

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
        queue = self._history([job for job in self._jobs.get(partition, []) if job.queued <= now])
        shares = self._dominant_share(np.stack([each.demand for each in variants]))
        named = self._users.get(user, len(self._users))
        found = []
        for each, share in zip(variants, shares.tolist(), strict=True):
            with_it = QueueHistory(
                submit=np.append(queue.submit, now),
                start=np.append(queue.start, np.inf),
                end=np.append(queue.end, np.inf),
                units=np.append(queue.units, share),
                limit=np.append(queue.limit, each.limit),
                expected=np.append(queue.expected, each.expected),
                user=np.append(queue.user, named),
            )
            found.append(with_it.features(with_it.state(len(queue.submit))))
        return np.array(found, dtype=np.float64)

    def _history(self, jobs: Sequence[QueuedJob]) -> QueueHistory:
        limit = [NO_LIMIT if job.time_limit is None else job.time_limit for job in jobs]
        expected = [one / 2 if job.predicted is None else job.predicted for job, one in zip(jobs, limit, strict=True)]
        demand = np.array([job.demand for job in jobs], dtype=np.float64).reshape(-1, len(self._capacity))
        return QueueHistory(
            submit=np.array([job.queued for job in jobs], dtype=np.float64),
            start=np.array([np.inf if job.started is None else job.started for job in jobs], dtype=np.float64),
            end=np.array([np.inf if job.ended is None else job.ended for job in jobs], dtype=np.float64),
            units=self._dominant_share(demand),
            limit=np.array(limit, dtype=np.float64),
            expected=np.array(expected, dtype=np.float64),
            user=np.array([self._users[job.user] for job in jobs], dtype=np.int64),
        )

    def _dominant_share(self, demand: Floats) -> Floats:
        """(n,) of the demand (n, resources): the largest share of what the cluster has of a resource."""
        there = self._capacity > 0
        return np.asarray((demand[:, there] / self._capacity[there]).max(axis=1, initial=0.0))


def _tells(job: QueuedJob) -> bool:
    return job.single and job.started is not None

"""The allocation of one of DL2's time slots as choices: the state that its network reads, and what may be chosen (Peng
et al., arXiv 1909.06040, section 4.1). Workers synchronise by all-reduce and hold one GPU each, so there are J + 1
actions (section 7): one more worker for job i, or void.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from policies.model import Singles
from policies.placement.allocation import gang_gpus, held_gpus, movable, queue_order, startable
from policies.placement.demand import cluster_shares, remaining_seconds
from policies.placement.plans import plan_allocation
from policies.placement.pools import GPUPools
from policies.plan import Memory, Plan
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts

FEATURES = ("slots run", "remaining", "share remaining", "dominant share", "workers", "log workers", "none yet", "held",
            "least", "most", "fits", "jobs", "free", "at this", "shorter", "cluster")  # fmt: skip
"""The columns of the state after the job types. The first six are the paper's; decision 49 says what the
others are for."""
UNKNOWN_SLOTS = 6.0
"""what a job counts as when nothing is forecast of its run time"""
MOST_SLOTS = 1000.0
GPUS = 16.0
"""unit of numbers of GPUs"""
_LASTING = [
    FEATURES.index(each) for each in ("slots run", "remaining", "share remaining", "held", "least", "most", "jobs")
]
"""of them, those that do not change while a slot is allocated"""


@dataclass(frozen=True)
class Allocator:
    """What an allocation needs to know beside the cluster.

    types: the job types that have a place in the state; one more is shared by all others. jobs: J. slot: seconds.
    """

    actions: ClassVar[int] = 1
    """for each job"""
    columns: ClassVar[tuple[str, ...]] = FEATURES
    """of the state after the job types"""
    types: tuple[str, ...]
    jobs: int
    slot: float

    @property
    def features(self) -> int:
        """The number of columns of the state."""
        return len(self.types) + 1 + len(self.columns)

    def choices(self, snapshot: Snapshot, forecasts: Forecasts, *, begins: bool) -> "Allocation":
        """The allocation of a slot that `begins`; within a slot, of what is free to jobs that wait."""
        return Allocation(self, snapshot, forecasts, begins=begins)


class Allocation:
    """The allocation of one slot under way (`policies.choices.Choices`): jobs by arrival, J at a time.

    Choice i < k gives one more worker, at first its minimum, to job i of the k of the present batch; choice k is void.
    """

    def __init__(self, allocator: Allocator, snapshot: Snapshot, forecasts: Forecasts, *, begins: bool) -> None:
        jobs = snapshot.jobs
        self._snapshot, self._limit = snapshot, allocator.jobs
        alone = np.bincount(jobs.ml_job, minlength=len(jobs))[jobs.ml_job] == 1
        free = jobs.managed & alone & (jobs.gpus > 0) & (startable(jobs) | (movable(jobs) & begins))
        yields = free & jobs.running
        self.rows: Ints = np.flatnonzero(free)[np.argsort(jobs.submitted[free], kind="stable")]
        """the jobs that the network allocates, by arrival"""
        order = queue_order(jobs)
        self._others = order[~free[order]]
        self._wanted = gang_gpus(snapshot, self._others, preempt=yields)
        self._pools = GPUPools.of(snapshot, yields)
        for row in self._others[jobs.pending[self._others] & (self._wanted[self._others] > 0)].tolist():
            self._pools.take(int(jobs.placement[row]), int(self._wanted[row]))
        self._count_more(yields)
        elastic = jobs.gpus_max[self.rows] > jobs.gpus_min[self.rows]
        self._least = np.where(elastic, np.maximum(jobs.gpus_min[self.rows], 1), jobs.gpus[self.rows])
        self._most = np.where(elastic, np.maximum(jobs.gpus_max[self.rows], self._least), jobs.gpus[self.rows])
        self._classes = jobs.placement[self.rows]
        self._total = max(float(snapshot.nodes.capacity[snapshot.nodes.up, 0].sum()), 1.0)
        self.workers: Ints = np.zeros(len(self.rows), dtype=np.int64)
        """(jobs,) allocated so far"""
        self._at = len(allocator.types) + 1
        """the first column after the job types"""
        self._each = (cluster_shares(snapshot).max(axis=1) / np.maximum(jobs.gpus, 1))[self.rows]
        self._first: list[int] = []
        self._table = self._fixed(allocator, forecasts)
        self._begin = 0
        self.done = False
        self._update()

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        """`jobs` (k, features) of the present batch."""
        return {"jobs": self._state}

    @property
    def batch(self) -> Ints:
        """(k,) the rows of the present batch."""
        return self.rows[self._begin : self._begin + self._limit]

    @property
    def mask(self) -> Bools:
        """(k + 1,) the jobs that may have another worker for which there is room, and void."""
        return np.append(self._fits, True)

    def choose(self, number: int) -> None:
        """Give a worker to that job of the batch, or end the batch."""
        if number == len(self._fits):
            self._begin += self._limit
        else:
            at = self._begin + number
            step = self._step(at)
            self._pools.take(int(self._classes[at]), step)
            if not self.workers[at]:
                self._first.append(at)
            self.workers[at] += step
        self._update()

    def plan(self, memory: Memory | None = None) -> Plan:
        """The plan that gives each job its workers. Ranks go by the first worker, then by arrival."""
        wanted = self._wanted.copy()
        wanted[self.rows] = self.workers
        rest = np.flatnonzero(self.workers == 0)
        order = np.concatenate([self._others, self.rows[self._first], self.rows[rest]])
        return plan_allocation(self._snapshot, order.astype(np.int64), wanted, memory=memory or {})

    def _count_more(self, yields: Bools) -> None:
        """Count what is needed beside GPUs, where the jobs `yields` (n,) give back what they hold; nothing here."""

    def summary(self) -> Floats:
        """(f,) what tells states of training from others: the means, over the jobs, of what lasts while a slot is
        allocated. There is at least one job."""
        return np.asarray(self._table[:, self._at :][:, _LASTING].mean(axis=0), dtype=np.float64)

    def _step(self, at: int) -> int:
        return 1 if self.workers[at] else int(self._least[at])

    def _update(self) -> None:
        """Go on to the next batch with a job that fits, and bring its state up to date."""
        while self._begin < len(self.rows):
            batch = slice(self._begin, self._begin + self._limit)
            workers, least = self.workers[batch], self._least[batch]
            room = {each: self._pools.available(each) for each in set(self._classes[batch].tolist())}
            left = np.array([room[each] for each in self._classes[batch].tolist()])
            step = np.where(workers > 0, 1, least)
            self._fits = (workers + step <= self._most[batch]) & (step <= left)
            if self._fits.any():
                self._state = self._with_workers(batch, self._fits)
                return
            self._begin += self._limit
        self.done = True

    def _with_workers(self, batch: slice, fits: Bools) -> Singles:
        """The state of a batch: what does not change in a slot, and what does; fits (k,): who may have a worker."""
        workers, state, at = self.workers[batch], self._table[batch].copy(), self._at
        state[:, at + 3] = 4.0 * workers * self._each[batch]
        state[:, at + 4] = workers / GPUS
        state[:, at + 5] = np.log1p(workers) / 3.0
        state[:, at + 6] = workers == 0
        state[:, at + 10] = fits
        state[:, at + 12] = sum(self._pools.left) / self._total
        state[:, at + 13] = np.log1p(self._slots[batch] * self._requested[batch] / np.maximum(workers, 1)) / 3.0
        return state

    def _fixed(self, allocator: Allocator, forecasts: Forecasts) -> Singles:
        """(jobs, features) the columns that do not change while a slot is allocated; 0 in the others."""
        jobs, rows = self._snapshot.jobs, self.rows
        table = np.zeros((len(rows), allocator.features), dtype=np.float32)
        place = {kind: at for at, kind in enumerate(allocator.types)}
        other = len(allocator.types)
        table[np.arange(len(rows)), [place.get(kind, other) for kind in jobs.kind[rows].tolist()]] = 1.0
        remaining, share = work_left(self._snapshot, forecasts)
        run = np.maximum(self._snapshot.now - jobs.submitted - jobs.waited, 0.0)[rows] / allocator.slot
        slots = np.clip(np.nan_to_num(remaining[rows] / allocator.slot, nan=UNKNOWN_SLOTS), 0.0, MOST_SLOTS)
        self._slots, self._requested = slots, np.maximum(jobs.gpus[rows], 1)
        at = self._at
        table[:, at] = np.log1p(np.minimum(run, MOST_SLOTS)) / 3.0
        table[:, at + 1] = np.log1p(slots) / 3.0
        table[:, at + 2] = share[rows]
        table[:, at + 7] = held_gpus(self._snapshot)[rows] / GPUS
        table[:, at + 8] = self._least / GPUS
        table[:, at + 9] = np.minimum(self._most, self._total) / GPUS
        table[:, at + 11] = np.log1p(len(rows)) / 5.0
        work = slots * self._requested
        table[:, at + 14] = np.searchsorted(np.sort(work), work) / max(len(rows), 1)
        table[:, at + 15] = np.log1p(self._total) / 5.0
        return table


def work_left(snapshot: Snapshot, forecasts: Forecasts) -> tuple[Floats, Floats]:
    """(n,) seconds of work left on the GPUs that each job requests, NaN where unknown, and the share of epochs left.

    The epochs left times the forecast time of an epoch: jobs of one type have epochs of different lengths.
    """
    jobs = snapshot.jobs
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(1.0 - jobs.iteration / jobs.max_iterations, 0.0, 1.0)
    by_epochs = forecasts.total.median * share
    seconds = np.where(np.isfinite(by_epochs), by_epochs, remaining_seconds(snapshot, forecasts.remaining))
    return seconds, np.where(np.isfinite(share), share, 1.0)

"""When waiting jobs start: queues simulated forward on many samples of run times at once.

Slurm's way of starting jobs: in order of priority, and behind the first that does not fit, jobs that do not delay it by
the time limits of what runs (EASY backfill); jobs above a limit on what runs at once are passed over. Each row of the
arrays is one sample of one queue, with a clock of its own, and each turn of the loop takes every row on by one
decision, so that the cost is one of NumPy's calls and not of samples. The simulator's launcher
(`slurmplug.sim.slurm.launcher`) starts the same jobs at the same times. Here each resource is one pool, so that its
parts are never on the wrong nodes, and neither priorities change nor jobs arrive while the queue is worked off.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.forecasting.starts.limit_counts import Changes, LimitCounts
from slurmplug.forecasting.starts.queues import Running, Sums, Waiting
from slurmplug.forecasting.starts.rows import Rows
from slurmplug.forecasting.starts.running_jobs import RunningJobs
from slurmplug.forecasting.starts.waiting_jobs import WaitingJobs
from slurmplug.forecasting.starts.waiting_lists import WaitingLists

MAX_TESTED = 500
"""jobs that backfill tries behind the first that does not fit (Slurm's bf_max_job_test)"""


def start_times(
    running: Running,
    waiting: Waiting,
    free: Floats,
    *,
    sums: Sums | None = None,
    target: Ints | None = None,
    max_tested: int = MAX_TESTED,
) -> Floats:
    """Seconds from now until each waiting job starts; infinite for one that never can, NaN for padding.

    Shapes: q queues, s samples of run times of each, j waiting jobs, r resources. Returns (q, s, j).

    free: (q, r); less than 0 of a resource that is overcommitted. target: (q,) the job whose start ends the simulation
    of its queue; the starts of others may then be NaN. max_tested: jobs above a limit are not counted.
    """
    return _Simulation(running, waiting, free, sums=sums, target=target, max_tested=max_tested).run()


class _Simulation(Rows):
    """The rows that are still simulated."""

    def __init__(
        self,
        running: Running,
        waiting: Waiting,
        free: Floats,
        *,
        sums: Sums | None,
        target: Ints | None,
        max_tested: int,
    ) -> None:
        queues, samples, jobs = self._shape = waiting.seconds.shape
        self._max_tested, self._target = max_tested, target
        self._seconds = waiting.seconds.reshape(-1, jobs)
        self._demand, self._limit = np.asarray(waiting.demand, dtype=np.float64), waiting.limit
        self._starts = np.full((queues * samples, jobs), np.nan)
        self._wanted = np.asarray(waiting.demand.any(axis=2))
        lists = WaitingLists(waiting, sums)
        self._waiting = WaitingJobs(lists, samples)
        holds = np.asarray(running.demand.any(axis=2))
        of_running = np.zeros(holds.shape, dtype=np.int64)
        self._limits: LimitCounts | None = None
        if sums is not None and running.group is not None and waiting.group is not None:
            of_running = running.group
            self._group: Ints = waiting.group
            holds |= (sums.counts[of_running] >= 0).any(axis=2)
            wait = np.zeros((queues, len(sums.counts)), dtype=np.int64)
            each = np.nonzero(self._wanted)
            np.add.at(wait, (each[0], waiting.group[each]), 1)
            self._limits = LimitCounts(sums, of_running, wait, lists=lists, jobs=self._waiting, samples=samples)
        self.row = np.arange(queues * samples)
        self.queue = q = self.row // samples
        self._running = RunningJobs(
            np.asarray(running.demand, dtype=np.float64)[q],
            running.ends.reshape(len(q), -1),
            running.until[q],
            of_running[q],
            holds[q],
        )
        self.now = np.zeros(len(q))
        self.free = np.asarray(free, dtype=np.float64)[q]
        self.idle = np.zeros(len(q), dtype=bool)
        """nothing more can start at this time"""
        self.head = np.full(len(q), -1)
        """the first job, which does not fit; -1 while all do"""
        self.reserved = np.zeros(len(q), dtype=bool)
        """whether it is known when there is room for it"""
        self.spare = np.zeros_like(self.free)
        """what is free beside it then"""
        self.within = np.zeros(len(q), dtype=np.int64)
        """how many of the time limits end by then"""
        self._leave_out_what_never_fits()

    def run(self) -> Floats:
        """Simulate until nothing is left to start."""
        while self._drop_finished():
            started = self._start(*self._decide(np.flatnonzero(~self.idle)))
            ended = self._advance(np.flatnonzero(self.idle))
            if self._limits is not None:
                self._limits.count(started, ended)
        return self._starts.reshape(self._shape)

    def _drop_finished(self) -> bool:
        """Whether any row is left. Rows are dropped once they are many."""
        if self._target is None:
            done = self._waiting.left == 0
        else:
            done = ~np.isnan(self._starts[self.row, self._target[self.queue]])
        count = np.count_nonzero(done)
        if count == len(done):
            return False
        if count * 8 > len(done):
            for each in (self, self._waiting, self._running, self._limits):
                if each is not None:
                    each.keep(~done)
        return True

    def _decide(self, rows: Ints) -> tuple[Ints, Ints]:
        """Rows, and the job that starts in each. Others are idle: those behind the first were all tried."""
        waiting = self._waiting
        first = waiting.first_of_lists(rows)
        head = self.head[rows]
        head = np.where(head < 0, waiting.earliest(first), head)
        last = head + self._max_tested
        if self._limits is not None:
            last += self._limits.held[rows]
        first = waiting.fitting(first, self.free[rows], last)
        found = waiting.earliest(first)
        found[head < 0] = -1
        self.idle[rows[found < 0]] = True
        is_first = found == head
        self.head[rows] = np.where(is_first, -1, head)
        behind = np.flatnonzero((found >= 0) & ~is_first)
        if not len(behind):
            return rows[found >= 0], found[found >= 0]
        found[behind] = self._backfill(rows[behind], first[behind], last[behind])
        starts = found >= 0
        return rows[starts], found[starts]

    def _backfill(self, rows: Ints, first: Ints, last: Ints) -> Ints:
        """(n,) the first job of each row that may pass the first of all, of those up to the job `last` (n,) in the
        lists whose first ones (n, lists) fit; -1 where none may, and where the first of all was left out instead."""
        self._reserve(rows[~self.reserved[rows]])
        found = self._waiting.earliest_beside(rows, first, self.spare[rows], self.within[rows], last)
        found[~self.reserved[rows]] = -1
        self.idle[rows] = (found < 0) & self.reserved[rows]
        some = np.flatnonzero(found >= 0)
        beside = some[self._waiting.limit_rank(rows[some], found[some]) >= self.within[rows[some]]]
        self.spare[rows[beside]] -= self._demand[self.queue[rows[beside]], found[beside]]
        return found

    def _reserve(self, rows: Ints) -> None:
        """When there is room for the first job of each row by the time limits, and what is spare beside it then. One
        that never fits is left out."""
        if not len(rows):
            return
        need = self._demand[self.queue[rows], self.head[rows]]
        at, freed = self._running.room(rows, self.now[rows], self.free[rows], need)
        never = np.isinf(at)
        if never.any():
            for row in rows[never].tolist():
                self._leave_out(row, self._alike(row, int(self.head[row])))
            self.head[rows[never]] = -1
            rows, at, freed, need = rows[~never], at[~never], freed[~never], need[~never]
        self.reserved[rows] = True
        self.spare[rows] = freed - need
        self.within[rows] = self._waiting.within(self.now[rows], at)

    def _start(self, rows: Ints, jobs: Ints) -> Changes:
        """Start these jobs (n,)."""
        q, now = self.queue[rows], self.now[rows]
        demand = self._demand[q, jobs]
        group = self._group[q, jobs] if self._limits is not None else np.zeros_like(jobs)
        if len(rows):
            self.free[rows] -= demand
            self._starts[self.row[rows], jobs] = now
            self._waiting.take(rows, jobs)
            ends = now + self._seconds[self.row[rows], jobs]
            self._running.start(rows, now + self._limit[q, jobs], ends, group, demand)
            self.idle[rows] = ~self._waiting.any_fits(rows, self.free[rows])
        return Changes(rows, group)

    def _advance(self, rows: Ints) -> Changes:
        """Free what the job of each row that ends next holds; where none runs, what waits never starts."""
        if not len(rows):
            return Changes(rows, rows)
        ended, group, held, following = self._running.end_next(rows)
        never = np.isinf(ended)
        if never.any():
            for row in rows[never & (self._waiting.left[rows] > 0)].tolist():
                self._leave_out(row, self._left(row))
            some = ~never
            rows, ended, group, held, following = rows[some], ended[some], group[some], held[some], following[some]
        self.now[rows] = ended
        self.free[rows] += held
        self.head[rows], self.reserved[rows] = -1, False
        self.idle[rows] = following <= ended  # another ends at the same time
        return Changes(rows, group)

    def _leave_out_what_never_fits(self) -> None:
        """Jobs that need more than is free where nothing runs, so that it need not be known of each first job when
        there is room for it."""
        all_there_is = np.maximum(self.free + self._running.demand.sum(axis=2), 0.0)
        for row in range(len(self.row)):
            q = self.queue[row]
            never = np.flatnonzero((self._demand[q] > all_there_is[row]).any(axis=1))
            if len(never):
                self._leave_out(row, never)

    def _left(self, row: int) -> Ints:
        """The jobs that wait in this row."""
        return np.flatnonzero(self._wanted[self.queue[row]] & np.isnan(self._starts[self.row[row]]))

    def _alike(self, row: int, job: int) -> Ints:
        """The jobs that wait in this row and are like this one to Slurm."""
        q, waiting = self.queue[row], self._left(row)
        alike = (self._demand[q, waiting] == self._demand[q, job]).all(axis=1)
        alike &= self._limit[q, waiting] == self._limit[q, job]
        if self._limits is not None:
            alike &= self._group[q, waiting] == self._group[q, job]
        return np.asarray(waiting[alike])

    def _leave_out(self, row: int, jobs: Ints) -> None:
        """These jobs of a row never start."""
        self._starts[self.row[row], jobs] = np.inf
        if self._limits is not None:
            self._limits.leave_out(row, self._group[self.queue[row], jobs])
        self._waiting.drop(row, jobs)

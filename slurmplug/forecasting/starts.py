"""When waiting jobs start: queues simulated forward on many samples of run times at once.

Slurm's way of starting jobs: in order of priority, and behind the first that does not fit, jobs that do not delay it by
the time limits of what runs (EASY backfill); jobs above a limit on what runs at once are passed over. Each row of the
arrays is one sample of one queue, with a clock of its own, and each turn of the loop takes every row on by one
decision, so that the cost is one of NumPy's calls and not of samples. The simulator's launcher
(`slurmplug.sim.slurm.launcher`) starts the same jobs at the same times. Here each resource is one pool, so that its
parts are never on the wrong nodes, and neither priorities change nor jobs arrive while the queue is worked off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints

MAX_TESTED = 500
"""jobs that backfill tries behind the first that does not fit (Slurm's bf_max_job_test)"""
_NONE = np.iinfo(np.int64).max
"""after the last job of a class"""


@dataclass(frozen=True, eq=False)
class Running:
    """The k running jobs of q queues in s samples; times are seconds from now.

    demand: (q, k, r) of each of r resources, all 0 for padding. ends: (q, s, k). until: (q, k) the end by the time
    limit, by which backfill reckons. group: (q, k) its group, where there are `Sums`; one that counts in any of these
    is no padding.
    """

    demand: Floats
    ends: Floats
    until: Floats
    group: Ints | None = None


@dataclass(frozen=True, eq=False)
class Waiting:
    """The j waiting jobs of q queues in s samples, the first to be started first.

    demand: (q, j, r) of each resource, all 0 for padding. seconds: (q, s, j) run times. limit: (q, j) time limits in
    seconds. group: (q, j), as of `Running`.
    """

    demand: Floats
    seconds: Floats
    limit: Floats
    group: Ints | None = None


@dataclass(frozen=True, eq=False)
class Sums:
    """Limits that hold jobs back whatever is free, on b sums over running jobs. Jobs alike to them are a group.

    counts: (g, w) the sums in which a job of each group counts, -1 for padding, and amounts: (g, w) with how much.
    most: (g, b) what a sum may be at most before a job of the group starts, infinite where it does not matter.
    """

    counts: Ints
    amounts: Floats
    most: Floats


def start_times(
    running: Running,
    waiting: Waiting,
    free: Floats,
    *,
    sums: Sums | None = None,
    target: Ints | None = None,
    max_tested: int = MAX_TESTED,
) -> Floats:
    """(q, s, j) seconds from now until each waiting job starts; infinite for one that never can, NaN for padding.

    free: (q, r); less than 0 of a resource that is overcommitted. target: (q,) the job whose start ends the simulation
    of its queue; the starts of others may then be NaN. max_tested: jobs above a limit are not counted.
    """
    return _Simulation(running, waiting, free, sums=sums, target=target, max_tested=max_tested).run()


class _Classes:
    """The waiting jobs of each queue that are alike to Slurm but for their places in the order: of several, the first
    is started first.

    Columns (q, c) are of classes, `demand` (q, c, r); of (q, j), `of` is each job's class and `after` the next job in
    it.
    """

    def __init__(self, waiting: Waiting) -> None:
        group = np.zeros_like(waiting.limit) if waiting.group is None else waiting.group
        key = np.concatenate([waiting.demand, waiting.limit[..., None], group[..., None]], axis=2)
        self.of, self.after = np.zeros(key.shape[:2], dtype=np.int64), np.full(key.shape[:2], _NONE)
        firsts = []
        for q in range(len(key)):
            _, first, of = np.unique(key[q], axis=0, return_index=True, return_inverse=True)
            self.of[q] = of
            order = np.argsort(of, kind="stable")
            same = of[order][1:] == of[order][:-1]
            self.after[q, order[:-1][same]] = order[1:][same]
            firsts.append(first)
        width = max(map(len, firsts))
        first = np.array([np.pad(each, (0, width - len(each)), mode="edge") for each in firsts])
        padding = np.arange(width) >= np.array([[len(each)] for each in firsts])
        self.demand = np.take_along_axis(waiting.demand, first[..., None], axis=1)
        self._of_resource: Floats = np.ascontiguousarray(np.moveaxis(self.demand, 2, 0))
        self.limit = np.take_along_axis(waiting.limit, first, axis=1)
        self.first = np.where(padding | (self.demand == 0).all(axis=2), _NONE, first)
        self.group = np.take_along_axis(group, first, axis=1).astype(np.int64)
        self.count = np.array([np.bincount(of, minlength=width) for of in self.of])
        """(q, c) how many jobs are alike"""

    def fitting(self, queue: Ints, room: Floats) -> Bools:
        """(n, c) whether a job of each class of these queues (n,) fits in `room` (n, r)."""
        room = np.maximum(room, 0.0)
        fits: Bools = self._of_resource[0][queue] <= room[:, :1]
        for resource in range(1, room.shape[1]):
            fits &= self._of_resource[resource][queue] <= room[:, resource, None]
        return fits


class _Simulation:
    """The rows that are still simulated. Columns without an underscore have an entry for each of these."""

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
        self._max_tested, self._target, self._sums = max_tested, target, sums
        self._classes = _Classes(waiting)
        self._seconds = waiting.seconds.reshape(-1, jobs)
        self._starts = np.full((queues * samples, jobs), np.nan)
        self.row = np.arange(queues * samples)
        self.queue = q = self.row // samples
        self.now = np.zeros(len(q))
        self.free = np.asarray(free, dtype=np.float64)[q]
        self.next = self._classes.first[q]
        """(n, c) the next job of each class"""
        self.held = np.asarray(running.demand, dtype=np.float64)[q]
        """(n, k, r) by each running job"""
        holds = np.asarray(self.held.any(axis=2))
        if sums is not None and running.group is not None:
            holds |= np.asarray((sums.counts[running.group] >= 0).any(axis=2))[q]
            self._begin_counting(sums, running.group)
        self.ends = np.where(holds, running.ends.reshape(len(q), -1), np.inf)
        self.until = np.where(holds, running.until[q], np.inf)
        self._widen(1)
        self.idle = np.zeros(len(q), dtype=bool)
        """nothing more can start at this time"""
        self.head = np.full(len(q), -1)
        """the first job that does not fit; -1 while all do"""
        self.cursor = np.zeros(len(q), dtype=np.int64)
        """the jobs before it have been tried at this time"""
        self.shadow, self.spare = np.zeros(len(q)), np.zeros_like(self.free)

    def run(self) -> Floats:
        """Simulate until nothing is left to start."""
        while self._drop_finished():
            self._advance(np.flatnonzero(self.idle))
            deciding = np.flatnonzero(~self.idle)
            self._start_first(deciding[self.head[deciding] < 0])
            self._backfill(deciding[self.head[deciding] >= 0])
        return self._starts.reshape(self._shape)

    def _drop_finished(self) -> bool:
        """Whether any row is left. Rows are dropped once they are many."""
        if self._target is None:
            done = (self.next == _NONE).all(axis=1)
        else:
            done = ~np.isnan(self._starts[self.row, self._target[self.queue]])
        if done.all():
            return False
        if done.sum() * 8 > len(done):
            for name, column in vars(self).items():
                if not name.startswith("_"):
                    setattr(self, name, column[~done])
        return True

    def _advance(self, rows: Ints) -> None:
        """Free what the job of each row that ends next holds; where none runs, what waits never starts."""
        if not len(rows):
            return
        slot = self.ends[rows].argmin(axis=1)
        never = np.isinf(self.ends[rows, slot])
        for row in rows[never].tolist():
            for chosen in np.flatnonzero(self.next[row] != _NONE).tolist():
                self._leave_out(row, chosen)
        rows, slot = rows[~never], slot[~never]
        self.now[rows] = self.ends[rows, slot]
        if self._sums is not None:
            self._count(self._sums, rows, self.group[rows, slot], -1)
        self.free[rows] += self.held[rows, slot]
        self.held[rows, slot], self.ends[rows, slot], self.until[rows, slot] = 0.0, np.inf, np.inf
        self.head[rows], self.cursor[rows] = -1, 0
        self.idle[rows] = self.ends[rows].min(axis=1) <= self.now[rows]  # another ends at the same time

    def _start_first(self, rows: Ints) -> None:
        """Start the first job of each row, or reserve for it when there will be room."""
        following = self._following(rows)
        chosen = following.argmin(axis=1)
        first = following[np.arange(len(rows)), chosen]
        self.idle[rows[first == _NONE]] = True
        demand = self._classes.demand[self.queue[rows], chosen]
        fits = (first != _NONE) & (demand <= np.maximum(self.free[rows], 0.0)).all(axis=1)
        self._start(rows[fits], chosen[fits])
        blocked = (first != _NONE) & ~fits
        self._reserve(rows[blocked], chosen[blocked])

    def _reserve(self, rows: Ints, chosen: Ints) -> None:
        """When there is room for the next job of these classes (n,) by the time limits, and what is spare beside it
        then. One that never fits is left out."""
        if not len(rows):
            return
        until = np.maximum(self.until[rows], self.now[rows, None])
        order = np.argsort(until, axis=1)
        until = np.take_along_axis(until, order, axis=1)
        n = np.arange(len(rows))
        freed = self.free[rows, None] + np.cumsum(self.held[rows[:, None], order], axis=1)
        need = self._classes.demand[self.queue[rows], chosen]
        enough = np.isfinite(until)
        for resource in range(need.shape[1]):
            enough &= np.maximum(freed[..., resource], 0.0) >= need[:, resource, None]
        at = enough.argmax(axis=1)
        self.shadow[rows] = until[n, at]
        last = (until <= until[n, at][:, None]).sum(axis=1) - 1
        self.spare[rows] = freed[n, last] - need
        self.head[rows] = self.next[rows, chosen]
        self.cursor[rows] = self.head[rows] + 1
        for row, each in zip(rows[~enough[n, at]].tolist(), chosen[~enough[n, at]].tolist(), strict=True):
            self._leave_out(row, each)
            self.head[row] = -1

    def _backfill(self, rows: Ints) -> None:
        """Start the next job of each row that may pass the first."""
        if not len(rows):
            return
        classes, q, following = self._classes, self.queue[rows], self._following(rows)
        last = self.head[rows] + self._max_tested
        if self._sums is not None:
            last += (self.left[rows] * (self.above[rows] > 0)).sum(axis=1)
        may = (following >= self.cursor[rows, None]) & (following <= last[:, None]) & (following < _NONE)
        may &= classes.fitting(q, self.free[rows])
        outlasts = self.now[rows, None] + classes.limit[q] > self.shadow[rows, None]
        may &= ~outlasts | classes.fitting(q, self.spare[rows])
        chosen = np.where(may, following, _NONE).argmin(axis=1)
        n = np.arange(len(rows))
        found = may[n, chosen]
        self.idle[rows[~found]] = True
        beside = found & outlasts[n, chosen]
        self.spare[rows[beside]] -= classes.demand[q[beside], chosen[beside]]
        self.cursor[rows[found]] = following[n, chosen][found] + 1
        self._start(rows[found], chosen[found])

    def _start(self, rows: Ints, chosen: Ints) -> None:
        """Start the next job of these classes (n,)."""
        if not len(rows):
            return
        slot = self.ends[rows].argmax(axis=1)
        if not np.isinf(self.ends[rows, slot]).all():
            self._widen(self.ends.shape[1])
            slot = self.ends[rows].argmax(axis=1)
        classes, q, job = self._classes, self.queue[rows], self.next[rows, chosen]
        self.free[rows] -= classes.demand[q, chosen]
        self.held[rows, slot] = classes.demand[q, chosen]
        self.until[rows, slot] = self.now[rows] + classes.limit[q, chosen]
        self.ends[rows, slot] = self.now[rows] + self._seconds[self.row[rows], job]
        self._starts[self.row[rows], job] = self.now[rows]
        self.next[rows, chosen] = classes.after[q, job]
        if self._sums is not None:
            groups = classes.group[q, chosen]
            self.group[rows, slot] = groups
            self.left[rows, chosen] -= 1
            self._count(self._sums, rows, groups, 1)

    # --- limits on what runs at once -------------------------------------------------------------------------------

    def _begin_counting(self, sums: Sums, running: Ints) -> None:
        """Count what runs. `_most` (q, b, c) is of classes."""
        queues, samples, _ = self._shape
        used = np.zeros((queues, sums.most.shape[1] + 1))
        for q in range(queues):
            np.add.at(used[q], sums.counts[running[q]], sums.amounts[running[q]])  # padding is the last
        self._most = np.ascontiguousarray(np.swapaxes(sums.most[self._classes.group], 1, 2))
        above = (used[:, :-1, None] > self._most).sum(axis=1)
        self.used, self.above = np.repeat(used, samples, axis=0), np.repeat(above, samples, axis=0)
        """(n, b) each sum, and (n, c) how many of them hold a class back"""
        self.group = np.repeat(running, samples, axis=0)
        """(n, k) of each running job"""
        self.left = np.repeat(self._classes.count, samples, axis=0)
        """(n, c) how many jobs of each class wait"""

    def _count(self, sums: Sums, rows: Ints, groups: Ints, sign: int) -> None:
        """Count that a job of these groups (n,) has started, or ended."""
        for place in range(sums.counts.shape[1]):
            of = sums.counts[groups, place]
            there = of >= 0
            row, one = rows[there], of[there]
            before = self.used[row, one]
            after = before + sign * sums.amounts[groups[there], place]
            self.used[row, one] = after
            most = self._most[self.queue[row], one]
            self.above[row] += (after[:, None] > most).astype(np.int64) - (before[:, None] > most)

    def _following(self, rows: Ints) -> Ints:
        """(n, c) the next job of each class of these rows that no limit holds back."""
        following: Ints = self.next[rows]
        return following if self._sums is None else np.where(self.above[rows] > 0, _NONE, following)

    # ---------------------------------------------------------------------------------------------------------------

    def _widen(self, more: int) -> None:
        """Room for so many more running jobs."""
        self.held = np.pad(self.held, ((0, 0), (0, more), (0, 0)))
        self.ends, self.until = (
            np.pad(times, ((0, 0), (0, more)), constant_values=np.inf) for times in (self.ends, self.until)
        )
        if self._sums is not None:
            self.group = np.pad(self.group, ((0, 0), (0, more)))

    def _leave_out(self, row: int, chosen: int) -> None:
        """The next job of this class, and those after it, never start."""
        alike: Bools = self._classes.of[self.queue[row]] == chosen
        starts = self._starts[self.row[row]]
        starts[alike & np.isnan(starts)] = np.inf
        self.next[row, chosen] = _NONE

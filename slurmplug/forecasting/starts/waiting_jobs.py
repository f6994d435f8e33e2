"""The jobs that wait in each row of a simulation: which is the first, and which is the first that may start now."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.queues import Waiting
from slurmplug.forecasting.starts.rows import Rows

MOST_IN_BLOCK = 32


class WaitingJobs(Rows):
    """The jobs of each queue in blocks, each of jobs that differ in their time limits alone, in their order: so a block
    is tested by the least time limit in it, and its jobs are looked at only if one of them may start.

    Time limits, and amounts of a resource, are their ranks among those that occur, which are small integers and compare
    as the numbers do.
    """

    def __init__(self, waiting: Waiting, samples: int) -> None:
        queues, jobs, resources = waiting.demand.shape
        group = np.zeros((queues, jobs), dtype=np.int64) if waiting.group is None else waiting.group
        of_queue, job = np.nonzero(waiting.demand.any(axis=2))
        alike = np.column_stack([of_queue, waiting.demand[of_queue, job], group[of_queue, job]])
        _, kind = np.unique(alike, axis=0, return_inverse=True)
        kind = kind.ravel()
        order = np.lexsort((job, kind))  # kinds are in the order of queues
        of_queue, job, kind = of_queue[order], job[order], kind[order]
        new_kind = np.diff(kind, prepend=-1) > 0
        size = self._size = int(np.clip(-(-len(kind) // max(new_kind.sum(), 1)), 1, MOST_IN_BLOCK))
        within = np.arange(len(kind)) - np.flatnonzero(new_kind)[kind]
        opens = np.flatnonzero(within % size == 0)
        by_first = np.lexsort((job[opens], of_queue[opens]))
        column = np.empty(len(opens), dtype=np.int64)
        of_opened = of_queue[opens][by_first]
        column[by_first] = np.arange(len(opens)) - np.searchsorted(of_opened, of_opened)
        block = column[np.cumsum(within % size == 0) - 1]
        width = int(column.max(initial=0)) + 1

        self._limits = np.unique(waiting.limit[of_queue, job])
        limit = np.searchsorted(self._limits, waiting.limit[of_queue, job])
        rank = _filled((queues, width, size), len(self._limits) + 1)
        rank[of_queue, block, within % size] = limit
        self._job = _filled((queues, width, size), jobs + 1)
        """(q, blocks, size) the jobs of each block"""
        self._job[of_queue, block, within % size] = job
        self._block, self._in_block = np.zeros((2, queues, jobs), dtype=np.int64)
        self._block[of_queue, job], self._in_block[of_queue, job] = block, within % size
        self._amounts, self._demand = [], []
        """by resource: those that occur, and (q, blocks) the rank of what one job of each block needs"""
        opened = of_queue[opens], column
        for resource in range(resources):
            of_blocks = waiting.demand[of_queue[opens], job[opens], resource]
            amounts = np.unique(of_blocks)
            needs = _filled((queues, width), len(amounts) + 1)
            needs[opened] = np.searchsorted(amounts, of_blocks)
            self._amounts.append(amounts)
            self._demand.append(needs)
        self._group = np.zeros((queues, width), dtype=np.int64)
        self._group[opened] = group[of_queue[opens], job[opens]]
        self._opens = self._job.min(axis=2).min(axis=0)
        """(blocks,) the first job of each block in any of the queues"""
        self._none, self._no_limit = np.iinfo(self._job.dtype).max, np.iinfo(rank.dtype).max

        self.queue = np.repeat(np.arange(queues), samples)
        self.rank = np.repeat(rank, samples, axis=0)
        """(n, blocks, size) that of the time limit of each job that waits"""
        self.least = self.rank.min(axis=2)
        """(n, blocks) the least of them"""
        self.first = np.repeat(self._job.min(axis=2), samples, axis=0)
        """(n, blocks) the first job that waits"""
        self.left = np.repeat(np.bincount(of_queue, minlength=queues), samples)
        """(n,) how many wait"""

    def first_of_blocks(self, rows: Ints, held: Bools | None) -> Ints:
        """(n, blocks) the first job that waits in each block of these rows (n,) whose group is not held back (n, g)."""
        first = self.first[rows]
        if held is not None:
            first = np.where(self._of_blocks(held, rows), self._none, first)
        return first

    def earliest(self, first: Ints) -> Ints:
        """(n,) the first of these jobs (n, blocks), -1 where there is none."""
        found = first.min(axis=1, initial=self._none)
        return np.where(found == self._none, -1, found.astype(np.int64))

    def fitting(self, rows: Ints, first: Ints, room: Floats, last: Ints) -> Ints:
        """The first jobs (n, blocks) of these rows (n,) that fit in `room` (n, r) and are not behind `last` (n,)."""
        last = np.minimum(last, self._none - 1)
        near = slice(0, int(np.searchsorted(self._opens, last.max(initial=0), side="right")))
        first = first[:, near]
        fits = self._fit(rows, room, near)
        fits &= first <= last.astype(first.dtype)[:, None]
        return np.where(fits, first, self._none)

    def within(self, now: Floats, time: Floats) -> Ints:
        """(n,) how many of the time limits end a job by this time (n,) that starts now (n,)."""
        limits = np.concatenate([self._limits, [np.inf]])
        found = np.searchsorted(self._limits, time - now, side="right")
        while (more := now + limits[found] <= time).any():  # where the difference was rounded
            found += more
        while (fewer := (found > 0) & (now + limits[found - 1] > time)).any():
            found -= fewer
        return found

    def earliest_beside(self, rows: Ints, first: Ints, spare: Floats, within: Ints, last: Ints) -> Ints:
        """(n,) the first job in each of these rows (n,) that is in a block of these first ones (n, blocks), that fits
        in `spare` (n, r) unless its time limit is one of the first `within` (n,), and that is not behind the job `last`
        (n,); -1 where there is none."""
        near = slice(0, first.shape[1])
        by_limit = within.astype(self.rank.dtype)
        beside = self._fit(rows, spare, near)
        first = np.where(beside | (self.least[rows, near] < by_limit[:, None]), first, self._none)
        found = np.full(len(rows), self._none, dtype=first.dtype)
        left = np.arange(len(rows))
        while len(left):
            every = np.arange(len(left))
            block = first.argmin(axis=1)
            nearer = np.flatnonzero(first[every, block] < found[left])
            first[every, block] = self._none
            first, left, block = first[nearer], left[nearer], block[nearer]
            below = np.where(beside[left, block], self._no_limit, by_limit[left])
            place = (self.rank[rows[left], block] < below[:, None]).argmax(axis=1)
            found[left] = np.minimum(found[left], self._job[self.queue[rows[left]], block, place])
        return np.where(found > np.minimum(last, self._none - 1), -1, found.astype(np.int64))

    def limit_rank(self, rows: Ints, jobs: Ints) -> Ints:
        """(n,) that of the time limit of this job of each of these rows (n,), which waits."""
        q = self.queue[rows]
        return self.rank[rows, self._block[q, jobs], self._in_block[q, jobs]]

    def take(self, rows: Ints, jobs: Ints) -> None:
        """This job of each of these rows (n,) waits no more."""
        q = self.queue[rows]
        block = self._block[q, jobs]
        self.rank[rows, block, self._in_block[q, jobs]] = self._no_limit
        ranks = self.rank[rows, block]
        least = ranks.min(axis=1)
        self.least[rows, block] = least
        following = self._job[q, block, (ranks != self._no_limit).argmax(axis=1)]
        self.first[rows, block] = np.where(least == self._no_limit, self._none, following)
        self.left[rows] -= 1

    def drop(self, row: int, jobs: Ints) -> None:
        """These jobs of the row wait no more."""
        q = self.queue[row]
        self.rank[row, self._block[q, jobs], self._in_block[q, jobs]] = self._no_limit
        self.least[row] = self.rank[row].min(axis=1)
        self.first[row] = np.where(self.rank[row] == self._no_limit, self._none, self._job[q]).min(axis=1)
        self.left[row] -= len(jobs)

    def waiting(self, row: int) -> Ints:
        """The jobs that wait in this row."""
        return np.sort(self._job[self.queue[row]][self.rank[row] != self._no_limit]).astype(np.int64)

    def _fit(self, rows: Ints, room: Floats, blocks: slice) -> Bools:
        """(n, blocks) whether a job of each block fits in `room` (n, r)."""
        room = np.maximum(room, 0.0)
        found: Bools | None = None
        for resource, (amounts, demand) in enumerate(zip(self._amounts, self._demand, strict=True)):
            rank = np.searchsorted(amounts, room[:, resource], side="right").astype(demand.dtype)
            fits = self._by_queue(demand, rows, blocks) < rank[:, None]
            found = fits if found is None else np.logical_and(found, fits, out=found)
        assert found is not None
        return found

    def _of_blocks(self, by_group: Bools, rows: Ints) -> Bools:
        """(n, blocks) of (n, g)."""
        if len(self._group) == 1:
            return np.asarray(np.take(by_group, self._group[0], axis=1))
        return np.asarray(np.take_along_axis(by_group, self._group[self.queue[rows]], axis=1))

    def _by_queue(self, table: Ints, rows: Ints, blocks: slice) -> Ints:
        return table[:, blocks] if len(table) == 1 else table[self.queue[rows], blocks]


def _filled(shape: tuple[int, ...], most: int) -> Ints:
    """An array of the smallest integer type that holds all numbers below `most`, filled with its largest value."""
    kind = np.min_scalar_type(most)
    return np.full(shape, np.iinfo(kind).max, dtype=kind)

"""Which groups of jobs a limit on running jobs holds back in each row of a simulation, as jobs start and end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.queues import Sums
from slurmplug.forecasting.starts.rows import Rows


class Changes(NamedTuple):
    """Rows (n,), and the group of the job that started or ended in each."""

    rows: Ints
    groups: Ints


class LimitCounts(Rows):
    """The sums, and who is above one of them.

    The groups that a sum can hold back are in the order of what it may be at most, so that those before one place are
    held back by it. As a job starts or ends, only the groups between the old and the new place are looked at.
    """

    def __init__(self, sums: Sums, running: Ints, waiting: Ints, samples: int) -> None:
        """running: (q, k) the groups of what runs. waiting: (q, g) how many wait of each group."""
        self._sums, count = sums, sums.most.shape[1]
        of_group, of_sum = np.nonzero(np.isfinite(sums.most) & np.asarray(waiting.any(axis=0))[:, None])
        most = sums.most[of_group, of_sum]
        self._most, rank = np.unique(most, return_inverse=True)
        keys = of_sum * (len(self._most) + 1) + rank
        order = np.argsort(keys, kind="stable")
        self._keys, self._groups = keys[order], of_group[order]
        used = np.zeros((len(running), count + 1))
        for q, of in enumerate(running):
            np.add.at(used[q], sums.counts[of], sums.amounts[of])  # padding is the last
        above = (used[:, None, :-1] > sums.most).sum(axis=2)
        self.used = np.repeat(used, samples, axis=0)
        """(n, b + 1) each sum"""
        self.above = np.repeat(above, samples, axis=0)
        """(n, g) how many of them hold a group back"""
        self.place = self._places(np.arange(count), self.used[:, :-1])
        """(n, b) of each sum, behind the groups that it holds back"""
        self.waiting = np.repeat(waiting, samples, axis=0)
        """(n, g) how many wait of each group"""
        self.held = (self.waiting * (self.above > 0)).sum(axis=1)
        """(n,) how many of them are held back"""
        self._seen = np.zeros(self.above.size, dtype=np.int64)

    def held_back(self, rows: Ints) -> Bools:
        """(n, g) whether each group is in these rows."""
        return np.asarray(self.above[rows] > 0)

    def count(self, started: Changes, ended: Changes) -> None:
        """One job has started in each of some rows, and one has ended in each of some others."""
        self.waiting[started] -= 1
        rows, groups = (np.concatenate(each) for each in zip(started, ended, strict=True))
        sign = np.where(np.arange(len(rows)) < len(started.rows), 1.0, -1.0)
        counts = self._sums.counts[groups]
        n, which = np.nonzero(counts >= 0)
        if not len(n):
            return
        row, of_sum = rows[n], counts[n, which]
        used = self.used[row, of_sum] + sign[n] * self._sums.amounts[groups[n], which]
        self.used[row, of_sum] = used
        old, new = self.place[row, of_sum], self._places(of_sum, used)
        changed = np.flatnonzero(old != new)
        if not len(changed):
            return
        row, old, new = row[changed], old[changed], new[changed]
        self.place[row, of_sum[changed]] = new
        first, length = np.minimum(old, new), np.abs(new - old)
        ends = np.cumsum(length)
        between = np.arange(ends[-1]) + np.repeat(first - ends + length, length)
        pair = np.repeat(row * self.above.shape[1], length) + self._groups[between]
        above, waiting = self.above.reshape(-1), self.waiting.reshape(-1)
        before = above[pair] > 0
        np.add.at(above, pair, np.repeat(np.where(new > old, 1, -1), length))
        turned = pair[before != (above[pair] > 0)]
        if len(turned):
            every = np.arange(len(turned))
            self._seen[turned] = every
            turned = turned[self._seen[turned] == every]  # once, if more than one sum turned it
            more = np.where(above[turned] > 0, waiting[turned], -waiting[turned])
            np.add.at(self.held, turned // self.above.shape[1], more)

    def leave_out(self, row: int, groups: Ints) -> None:
        """One job of each of these groups (n,) waits no more in this row."""
        np.subtract.at(self.waiting[row], groups, 1)
        self.held[row] -= np.count_nonzero(self.above[row, groups] > 0)

    def _places(self, of_sum: Ints, used: Floats) -> Ints:
        smaller = np.searchsorted(self._most, used)
        return np.searchsorted(self._keys, of_sum * (len(self._most) + 1) + smaller)

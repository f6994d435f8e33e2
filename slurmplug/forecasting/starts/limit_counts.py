"""Which groups of jobs a limit on running jobs holds back in each row of a simulation, as jobs start and end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.forecasting.starts.queues import Sums
from slurmplug.forecasting.starts.rows import Rows
from slurmplug.forecasting.starts.waiting_jobs import Turned, WaitingJobs
from slurmplug.forecasting.starts.waiting_lists import WaitingLists


class Changes(NamedTuple):
    """Rows (n,), and the group of the job that started or ended in each."""

    rows: Ints
    groups: Ints


class LimitCounts(Rows):
    """The sums, and who is above one of them.

    Small sums hold back groups, and large ones sets of groups (`waiting_lists`). Those that a sum can hold back are in
    the order of what it may be at most, so that those before one place are held back by it. As a job starts or ends,
    only those between the old and the new place are looked at.
    """

    def __init__(
        self, sums: Sums, running: Ints, waiting: Ints, *, lists: WaitingLists, jobs: WaitingJobs, samples: int
    ) -> None:
        """running: (q, k) the groups of what runs. waiting: (q, g) how many wait of each group. jobs: those that do,
        which are told who is held back."""
        self._sums, self._jobs = sums, jobs
        self._set_of, self._groups = lists.set_of, lists.groups
        some = np.asarray(waiting.any(axis=0))
        most = np.where(some[:, None], sums.most, np.inf)
        of_sets = np.full((lists.sets, most.shape[1]), np.inf)
        np.minimum.at(of_sets, self._set_of, most)
        most = np.concatenate([np.where(lists.large, np.inf, most), np.where(lists.large, of_sets, np.inf)])
        who, of_sum = np.nonzero(np.isfinite(most))
        self._most, rank = np.unique(most[who, of_sum], return_inverse=True)
        keys = of_sum * (len(self._most) + 1) + rank
        order = np.argsort(keys, kind="stable")
        self._keys, self._who = keys[order], who[order]
        used = np.zeros((len(running), most.shape[1] + 1))
        for q, of in enumerate(running):
            np.add.at(used[q], sums.counts[of], sums.amounts[of])  # padding is the last
        above = (used[:, None, :-1] > most).sum(axis=2)
        self.used = np.repeat(used, samples, axis=0)
        """(n, b + 1) each sum"""
        self.above = np.repeat(above, samples, axis=0)
        """(n, groups and sets) how many of them hold each back"""
        self.place = self._places(np.arange(most.shape[1]), self.used[:, :-1])
        """(n, b) of each sum, behind those that it holds back"""
        self.waiting = np.repeat(waiting, samples, axis=0)
        """(n, g) how many wait of each group"""
        free = np.zeros((len(running), lists.sets), dtype=np.int64)
        np.add.at(free.T, self._set_of, (waiting * (above[:, : self._groups] == 0)).T)
        self.beside = np.repeat(free, samples, axis=0)
        """(n, sets) how many wait of the groups of each that small sums do not hold back"""
        self.held = self.waiting.sum(axis=1) - (self.beside * (self.above[:, self._groups :] == 0)).sum(axis=1)
        """(n,) how many wait that are held back"""
        self._seen = np.zeros(max(self.above.size, self.used.size), dtype=np.int64)
        rows, who = np.nonzero(self.above)
        self._tell(Turned(rows, who, np.ones(len(rows), dtype=bool)))

    def count(self, started: Changes, ended: Changes) -> None:
        """One job has started in each of some rows, and after that one has ended in each of some."""
        self.waiting[started] -= 1
        self.beside[started.rows, self._set_of[started.groups]] -= 1
        rows, groups = (np.concatenate(each) for each in zip(started, ended, strict=True))
        sign = np.where(np.arange(len(rows)) < len(started.rows), 1.0, -1.0)
        counts = self._sums.counts[groups]
        n, which = np.nonzero(counts >= 0)
        if not len(n):
            return
        pair = rows[n] * self.used.shape[1] + counts[n, which]
        np.add.at(self.used.reshape(-1), pair, sign[n] * self._sums.amounts[groups[n], which])
        row, of_sum = np.divmod(self._once(pair), self.used.shape[1])
        used = self.used[row, of_sum]
        old, new = self.place[row, of_sum], self._places(of_sum, used)
        changed = np.flatnonzero(old != new)
        if not len(changed):
            return
        row, old, new = row[changed], old[changed], new[changed]
        self.place[row, of_sum[changed]] = new
        first, length = np.minimum(old, new), np.abs(new - old)
        ends = np.cumsum(length)
        between = np.arange(ends[-1]) + np.repeat(first - ends + length, length)
        pair = np.repeat(row * self.above.shape[1], length) + self._who[between]
        above = self.above.reshape(-1)
        before = above[pair] > 0
        np.add.at(above, pair, np.repeat(np.where(new > old, 1, -1), length))
        turned = pair[before != (above[pair] > 0)]
        if len(turned):
            turned = self._once(turned)
            rows, who = np.divmod(turned, self.above.shape[1])
            self._count_held(*self._tell(Turned(rows, who, above[turned] > 0)))

    def leave_out(self, row: int, groups: Ints) -> None:
        """One job of each of these groups (n,) waits no more in this row."""
        np.subtract.at(self.waiting[row], groups, 1)
        beside = groups[self.above[row, groups] == 0]
        np.subtract.at(self.beside[row], self._set_of[beside], 1)
        free = np.count_nonzero(self.above[row, self._groups + self._set_of[beside]] == 0)
        self.held[row] -= len(groups) - free

    def _tell(self, turned: Turned) -> tuple[Turned, Turned]:
        """What waits is told which sets and which groups have turned."""
        of_sets = turned.which >= self._groups
        sets = Turned(turned.rows[of_sets], turned.which[of_sets] - self._groups, turned.held[of_sets])
        groups = Turned(turned.rows[~of_sets], turned.which[~of_sets], turned.held[~of_sets])
        self._jobs.turn_sets(sets)
        self._jobs.turn_groups(groups)
        return sets, groups

    def _count_held(self, sets: Turned, groups: Turned) -> None:
        if len(sets.rows):
            waiting = self.beside[sets.rows, sets.which]
            np.add.at(self.held, sets.rows, np.where(sets.held, waiting, -waiting))
        waiting = self.waiting[groups.rows, groups.which]
        more, of = np.where(groups.held, waiting, -waiting), self._set_of[groups.which]
        np.subtract.at(self.beside, (groups.rows, of), more)
        np.add.at(self.held, groups.rows, np.where(self.above[groups.rows, self._groups + of] == 0, more, 0))

    def _once(self, places: Ints) -> Ints:
        """These (n,), each only once."""
        every = np.arange(len(places))
        self._seen[places] = every
        return np.asarray(places[self._seen[places] == every])

    def _places(self, of_sum: Ints, used: Floats) -> Ints:
        smaller = np.searchsorted(self._most, used)
        return np.searchsorted(self._keys, of_sum * (len(self._most) + 1) + smaller)

"""The waiting jobs of queues in lists, as a simulation looks for the first of them that may start."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.queues import Sums, Waiting

MOST_KINDS = 64
"""that a sum may hold back without lists of their own for its groups"""
WIDTHS = (8, 16, 32, 64, 128)
"""of chunks"""


class WaitingLists:
    """The jobs of q queues by what they need, each list in the order of the queue and cut into chunks of places.

    Jobs that are alike in what they need, their group and their time limit are of a kind. A sum that may hold back many
    kinds is a large one; groups that are alike to these are a set, with lists of their own, which are left out as a
    whole while they are held back. The last chunk is of no list, and has no jobs.
    """

    def __init__(self, waiting: Waiting, sums: Sums | None) -> None:
        queues, jobs, resources = waiting.demand.shape
        of_queue, job = np.nonzero(waiting.demand.any(axis=2))
        group = np.zeros(len(job), dtype=np.int64) if waiting.group is None else waiting.group[of_queue, job]
        demand, by_demand = np.unique(waiting.demand[of_queue, job], axis=0, return_inverse=True)
        by_demand = by_demand.ravel()
        self.limits, limit = np.unique(waiting.limit[of_queue, job], return_inverse=True)
        """those that occur; others are told by their ranks among these"""
        kind = self._kinds(of_queue, [by_demand, group, limit])
        self.kinds = int(kind.max(initial=-1)) + 1
        opens = np.unique(of_queue * self.kinds + kind, return_index=True)[1]
        self.groups = int(group.max(initial=0)) + 1 if sums is None else len(sums.most)
        kinds = np.bincount(of_queue[opens] * self.groups + group[opens], minlength=queues * self.groups)
        self._sets(sums, kinds.reshape(queues, -1).max(axis=0))
        which = by_demand * self.sets + self.set_of[group]
        found, first, of_list = np.unique(which, return_index=True, return_inverse=True)
        opening = np.full(len(found), jobs)
        np.minimum.at(opening, of_list, job)
        order = np.argsort(opening, kind="stable")
        of_list = np.argsort(order)[of_list]
        self.opens, self.lists = opening[order], len(found)
        """(lists,) the first job of each in any of the queues"""
        self.amounts = [np.unique(demand[:, resource]) for resource in range(resources)]
        """by resource: those that occur"""
        needs = demand[by_demand[first][order]]
        ranks = [np.searchsorted(amounts, needs[:, r]) for r, amounts in enumerate(self.amounts)]
        self.needs = [filled(len(found), len(a) + 1, rank) for a, rank in zip(self.amounts, ranks, strict=True)]
        """by resource: (lists,) the rank of what one job of each list needs"""

        self._place(queues, jobs, of_queue, job, of_list)
        self.kind_of = np.zeros((queues, self.places), dtype=np.int64)
        """(q, places)"""
        self.kind_of[of_queue, self.place[of_queue, job]] = kind
        self.limit = filled((queues, self.kinds), len(self.limits) + 1)
        """(q, kinds) the rank of the time limit"""
        self.limit[of_queue, kind] = limit
        self.first, self.next = (np.full(shape, self.nowhere) for shape in ((queues, self.kinds), self.job.shape))
        """(q, kinds) the place of the first job of each kind, and (q, places) of the next one of the same"""
        self._chain(of_queue, kind, self.place[of_queue, job])
        self.kinds_of = Members(queues * self.groups, of_queue[opens] * self.groups + group[opens], kind[opens])
        """of each queue and group"""
        self.lists_of = Members(self.sets, (which % self.sets)[first][order], np.arange(self.lists))
        """of each set"""
        self.count = np.bincount(of_queue, minlength=queues)
        """(q,) how many jobs wait"""

    def _sets(self, sums: Sums | None, kinds: Ints) -> None:
        """kinds: (groups,) of each."""
        self.large = np.zeros(0 if sums is None else sums.most.shape[1], dtype=bool)
        """(sums,)"""
        self.set_of, self.sets = np.zeros(self.groups, dtype=np.int64), 1
        """(groups,)"""
        if sums is not None:
            self.large = (np.isfinite(sums.most) * kinds[:, None]).sum(axis=0) > MOST_KINDS
        if sums is not None and self.large.any():
            found, of = np.unique(sums.most[:, self.large], axis=0, return_inverse=True)
            self.set_of, self.sets = of.ravel(), len(found)

    def _kinds(self, of_queue: Ints, alike: list[Ints]) -> Ints:
        """(m,) of each job, numbered in each queue."""
        keys = of_queue
        for each in alike:
            keys = np.unique(keys * (int(each.max(initial=0)) + 1) + each, return_inverse=True)[1]
        if not len(keys):
            return keys
        queue_of = np.zeros(int(keys.max()) + 1, dtype=np.int64)
        queue_of[keys] = of_queue
        return np.asarray(keys - np.searchsorted(queue_of, np.arange(int(of_queue.max()) + 1))[of_queue])

    def _place(self, queues: int, jobs: int, of_queue: Ints, job: Ints, of_list: Ints) -> None:
        order = np.lexsort((job, of_list, of_queue))
        part = of_queue[order] * max(self.lists, 1) + of_list[order]
        within = np.arange(len(order)) - np.searchsorted(part, part)
        most = np.zeros(self.lists, dtype=np.int64)
        np.maximum.at(most, of_list[order], within + 1)
        fitting = [width for width in WIDTHS if (-(-most // width) * width).sum() <= 4 * most.sum()]
        root = np.sqrt(most.max(initial=1))
        self.width = min(fitting or WIDTHS[:1], key=lambda width: abs(np.log(width / root)))
        chunks = -(-most // self.width)
        self.chunks = int(chunks.sum()) + 1
        self.chunks_from = np.cumsum(chunks) - chunks
        """(lists,) the first chunk of each"""
        every = np.arange(int(chunks.max(initial=1)))
        self.chunks_of = np.where(every < chunks[:, None], self.chunks_from[:, None] + every, self.chunks - 1)
        """(lists, most) the chunks of each, and then that of no list"""
        self.places, self.nowhere = self.chunks * self.width, (self.chunks - 1) * self.width
        self.place = np.full((queues, jobs), self.nowhere)
        """(q, jobs)"""
        at = self.chunks_from[of_list[order]] * self.width + within
        self.place[of_queue[order], job[order]] = at
        self.job = filled((queues, self.places), jobs + 1)
        """(q, places)"""
        self.job[of_queue[order], at] = job[order]
        self.list_of = np.zeros(self.chunks, dtype=np.int64)
        """(chunks,)"""
        self.list_of[:-1] = np.repeat(np.arange(self.lists), chunks)

    def _chain(self, of_queue: Ints, kind: Ints, place: Ints) -> None:
        order = np.lexsort((place, kind, of_queue))
        of_queue, kind, place = of_queue[order], kind[order], place[order]
        same = (np.diff(kind) == 0) & (np.diff(of_queue) == 0)
        self.next[of_queue[:-1][same], place[:-1][same]] = place[1:][same]
        opens = np.concatenate([[True], ~same])[: len(kind)]
        self.first[of_queue[opens], kind[opens]] = place[opens]

    def fit(self, room: Floats, near: int) -> Bools:
        """(n, near) whether a job of each of the first lists fits in `room` (n, r)."""
        room = np.maximum(room, 0.0)
        found: Bools | None = None
        for resource, (amounts, needs) in enumerate(zip(self.amounts, self.needs, strict=True)):
            rank = np.searchsorted(amounts, room[:, resource], side="right").astype(needs.dtype)
            fits = needs[:near] < rank[:, None]
            found = fits if found is None else np.logical_and(found, fits, out=found)
        assert found is not None
        return found


class Members:
    """Which members (m,) each of some groups has."""

    def __init__(self, groups: int, of: Ints, members: Ints) -> None:
        """of: (m,) the group of each."""
        self._members = members[np.argsort(of, kind="stable")]
        self._count = np.bincount(of, minlength=groups)
        self._end = np.cumsum(self._count)

    def of(self, groups: Ints) -> tuple[Ints, Ints]:
        """All members of these groups (n,): the place (k,) among these, and the member (k,)."""
        count = self._count[groups]
        ends = np.cumsum(count)
        every = np.arange(int(ends[-1]) if len(ends) else 0)
        return np.repeat(np.arange(len(groups)), count), self._members[
            every + np.repeat(self._end[groups] - ends, count)
        ]


def filled(shape: int | tuple[int, ...], most: int, values: Ints | None = None) -> Ints:
    """An array of the smallest integer type that holds all numbers below `most`, with these values, or the type's
    largest."""
    kind = np.min_scalar_type(most)
    return np.full(shape, np.iinfo(kind).max if values is None else values, dtype=kind)

"""The jobs that run in each row of a simulation: which ends next, and when there is room by their time limits."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.rows import Rows

_MORE = 16
"""places that are added where all are taken"""


class RunningJobs(Rows):
    """A row's jobs have k places; the order of their ends by the time limit is kept, so that they are not sorted each
    time that there has to be room."""

    def __init__(self, demand: Floats, ends: Floats, until: Floats, group: Ints, holds: Bools) -> None:
        """demand: (n, k, r) in all. ends, until, group, holds: (n, k); where it does not hold there is no job."""
        self.until, self.ends = np.where(holds, until, np.inf), np.where(holds, ends, np.inf)
        """(n, k) infinite where there is no job"""
        self.group = group
        self.demand = np.ascontiguousarray(np.moveaxis(np.where(holds[:, :, None], demand, 0.0), 2, 1))
        """(n, r, k)"""
        self.count = np.count_nonzero(holds, axis=1)
        order = np.lexsort((~holds, self.until))
        self.order = order.astype(np.min_scalar_type(order.shape[1]))
        """(n, k) the places in the order of `until`, those without a job last"""
        self._widen()

    def end_next(self, rows: Ints) -> tuple[Floats, Ints, Floats, Floats]:
        """Take out the job of each of these rows (n,) that ends first: when it does, infinite where none runs, its
        group, what it held (n, r), and when the next one ends."""
        n, ends = np.arange(len(rows)), self.ends[rows]
        place = ends.argmin(axis=1)
        ended, demand = ends[n, place], self.demand[rows, :, place]
        ends[n, place] = np.inf
        self.ends[rows, place], self.until[rows, place], self.demand[rows, :, place] = np.inf, np.inf, 0.0
        self.count[rows] -= ended < np.inf
        before = self.order[rows]
        after, at = before.copy(), (before == place.astype(before.dtype)[:, None]).argmax(axis=1)
        np.copyto(after[:, :-1], before[:, 1:], where=np.arange(before.shape[1] - 1) >= at[:, None])
        after[:, -1] = place
        self.order[rows] = after
        return ended, self.group[rows, place], demand, ends.min(axis=1)

    def start(self, rows: Ints, until: Floats, ends: Floats, group: Ints, demand: Floats) -> None:
        """One more job in each of these rows (n,)."""
        if self.count[rows].max() == self.order.shape[1]:
            self._widen()
        at = np.count_nonzero(self.until[rows] <= until[:, None], axis=1)
        at = np.minimum(at, self.count[rows])  # infinite is not after no job
        before = self.order[rows]
        after, place = before.copy(), before[:, -1].astype(np.int64)
        np.copyto(after[:, 1:], before[:, :-1], where=np.arange(before.shape[1] - 1) >= at[:, None])
        after[np.arange(len(rows)), at] = place
        self.order[rows] = after
        self.until[rows, place], self.ends[rows, place], self.group[rows, place] = until, ends, group
        self.demand[rows, :, place] = demand
        self.count[rows] += 1

    def room(self, rows: Ints, now: Floats, free: Floats, need: Floats) -> tuple[Floats, Floats]:
        """When there is room by the time limits for `need` (n, r) in each of these rows (n,), where (n, r) is free
        `now` (n,), infinite for never; and (n, r) what is free then."""
        n, (resources, places) = np.arange(len(rows)), self.demand.shape[1:]
        order = self.order[rows, : int(self.count[rows].max()) + 1].astype(np.int64)
        until = np.maximum(self.until.ravel().take(order + (rows * places)[:, None]), now[:, None])
        enough, freed = until < np.inf, []
        for resource in range(resources):
            held = self.demand.ravel().take(order + ((rows * resources + resource) * places)[:, None])
            np.cumsum(held, axis=1, out=held)
            held += free[:, resource, None]
            enough &= held >= np.where(need[:, resource] > 0, need[:, resource], -np.inf)[:, None]
            freed.append(held)
        place = enough.argmax(axis=1)
        at = np.where(enough[n, place], until[n, place], np.inf)
        last = (until > at[:, None]).argmax(axis=1) - 1  # behind all there is no job, and it is later
        return at, np.stack([held[n, last] for held in freed], axis=1)

    def _widen(self) -> None:
        """More places."""
        places = self.order.shape[1]
        more = max(_MORE, places // 4)
        wider = ((0, 0), (0, more))
        self.until, self.ends = (np.pad(each, wider, constant_values=np.inf) for each in (self.until, self.ends))
        self.group, self.demand = np.pad(self.group, wider), np.pad(self.demand, ((0, 0), *wider))
        added = np.broadcast_to(np.arange(places, places + more), (len(self.order), more))
        self.order = np.concatenate([self.order, added], axis=1).astype(np.min_scalar_type(places + more))

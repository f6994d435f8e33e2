"""EASY backfill (Lifka, JSSPP 1995): only the first job of each set of nodes is promised a start.

It is the earliest that the time limits of what runs allow, to the second; a later job starts now only where it does not
delay such a promise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.slurm.queue import HeldResources, Start, joined
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass


@dataclass(eq=False)
class Promise:
    """A job of these nodes (a set of `JobPartitions`) can start then; `spare` (m, resources) is free beside it."""

    where: int
    time: float
    spare: Floats


class Easy:
    """The backfill of one scheduling pass."""

    def __init__(self, of: SchedulingPass) -> None:
        self._pass, self._placement = of, of.placement
        self._planned = HeldResources(of.held.node[:0], of.held.amount[:0], of.held.until[:0])
        """of the jobs with a promise, as if they held it from now on"""

    def run(self, rows: Sequence[int]) -> Iterator[Start]:
        """Starts beside the promises: jobs that end by then, and jobs in what is spare beside them."""
        one, pending = self._pass, self._pass.pending
        units_of = pending.units
        promises: dict[int, Promise] = {}
        failed: dict[tuple[int, int, bool, tuple[int, ...], bytes], int] = {}
        tested = 0
        for row in rows:
            where, units, nodes = int(self._placement.where[row]), int(units_of[row]), int(pending.nodes[row])
            if where in promises:
                if tested == one.settings.bf_max_job_test:
                    return
                tested += 1
            end = one.now + one.limit[row]
            still = [each for each in promises.values() if end > each.time and self._share_nodes(where, each.where)]
            spreads = self._placement.spreads(row)
            kind = (where, nodes, spreads, tuple(each.where for each in still), pending.demand[row].tobytes())
            if units >= failed.get(kind, units + 1):
                continue  # as many, or fewer, of the same did not fit, and room only shrinks
            free = one.free
            for each in still:
                free = np.minimum(free, each.spare)
            if start := one.start(row, free):
                local = one.number(start)
                for each in still:
                    each.spare = self._placement.less(each.spare, row, local, np.array(start.shares))
                yield start
            elif not one.holds_back(row):
                failed[kind] = units
                if where not in promises and (promised := self.promise(row)):
                    promises[where] = promised

    def promise(self, row: int) -> Promise | None:
        """When the job can start by the time limits of what runs and of the jobs with a promise already."""
        times = np.unique(np.concatenate([self._pass.held.until, self._planned.until]))
        low, high = 0, len(times)  # the first time at which it fits: what is free only grows
        found = None
        while low < high:
            middle = (low + high) // 2
            free = self._free_at(float(times[middle]))
            if placed := self._placement.place(row, free):
                found, high = (float(times[middle]), free, *placed), middle
            else:
                low = middle + 1
        if found is None:
            return None
        time, free, nodes, shares = found
        spare = self._placement.less(free, row, nodes, shares)
        until = np.full(len(nodes), time + self._pass.limit[row])
        self._planned = joined(self._planned, nodes, (free - spare)[nodes], until)
        return Promise(int(self._placement.where[row]), time, spare)

    def _share_nodes(self, one: int, other: int) -> bool:
        """Whether these sets of nodes do."""
        sets = self._placement.sets
        return one == other or bool((sets[one] & sets[other]).any())

    def _free_at(self, time: float) -> Floats:
        """(m, resources) beside what has a promise, by the time limits."""
        free = self._pass.free_at(time)
        np.subtract.at(free, self._planned.node, self._planned.amount)
        ended = self._planned.until <= time
        np.add.at(free, self._planned.node[ended], self._planned.amount[ended])
        return free

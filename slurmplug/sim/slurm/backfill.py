"""Slurm's own backfill: each waiting job that it looks at has a reservation (sched/backfill, `_attempt_backfill`).

In order of priority, each job gets the earliest start that the time limits of what runs and the reservations before it
allow, and a reservation of all of its nodes (`node_space`). A job whose start is now starts. Which waiting jobs run at
once is thus decided from whole nodes alone: one that needs half of a reserved node does not start there.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.sim.slurm.node_space import NodeSpace, bits
from slurmplug.sim.slurm.queue import Start
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass
from slurmplug.sim.slurm.settings import Reservations

_WINDOW = 30.0
"""seconds: jobs that end so close to the first are taken to end together, and ever longer windows after it"""
Kind = tuple[int, int, bytes]
"""of jobs that differ only in how many GPUs, or nodes, they request: their nodes' set, how many nodes, and demand"""


@dataclass(frozen=True)
class Reservation:
    """The job of that row is to start then on these nodes (k,), numbered as in its `SchedulingPass`."""

    row: int
    time: float
    nodes: Ints


class Backfill:
    """The backfill of one scheduling pass."""

    def __init__(self, of: SchedulingPass, settings: Reservations) -> None:
        self._pass, self._placement, self._settings = of, of.placement, settings
        self._space = NodeSpace(len(of.free), of.now, of.now + settings.window, settings.resolution)
        self._sets = [bits(each) for each in self._placement.sets]
        self._all = [np.flatnonzero(each) for each in self._placement.sets]
        """by set of nodes (of `JobPartitions`), as bits and by number"""
        self._units = of.pending.units
        self._by_end()
        self._no_start: dict[Kind, list[tuple[int, float]]] = {}
        """by kind, the units and limits of jobs that cannot start now: nor can a job with as much of both"""
        self._not_before: dict[Kind, list[tuple[int, float, float]]] = {}
        """by kind, units, limits and starts of reservations: a job with as much of both starts no sooner"""
        self._of_partition: dict[str, int] = {}
        """reservations by partition"""

    def run(self, rows: Sequence[int]) -> Iterator[Start]:
        """The starts. Reservations are made only while a job behind them could start now."""
        hopeful = 0
        left = self._pass.settings.bf_max_job_test
        for at, row in enumerate(rows):
            hopeful = max(hopeful, at)
            while hopeful < len(rows) and not self._may_start(rows[hopeful]):
                hopeful += 1
            if hopeful >= min(len(rows), at + left):
                return
            if hopeful == at:
                if start := self._start(row):
                    yield start
                left -= 1
            elif self._is_full():
                return
            elif not self._pass.holds_back(row):
                left -= self._reserve(row) is not None

    def plan(self, rows: Sequence[int]) -> Iterator[Reservation | Start]:
        """What becomes of each of these jobs; nothing of one that gets no reservation."""
        for row in rows:
            found = self._start(row) if self._may_start(row) else self._reserve(row)
            if found:
                yield found

    def _is_full(self) -> bool:
        """Whether the table has as many slots as it may (bf_node_space_size, by default bf_max_job_test)."""
        return len(self._space) >= max(self._pass.settings.bf_max_job_test, 2)

    def _start(self, row: int) -> Start | None:
        start = self._pass.start(row, self._pass.free, self._free_now(row))
        if start:
            self._by_end()
        return start

    def _may_start(self, row: int) -> bool:
        """Whether the job could start now, beside the reservations that there are."""
        if self._pass.holds_back(row):
            return False
        kind, units, limit = self._kind(row), int(self._units[row]), float(self._pass.limit[row])
        failed = self._no_start.setdefault(kind, [])
        if any(units >= least and limit >= shortest for least, shortest in failed):
            return False
        room = self._room_after(row, 0)
        if not self._placement.fits(row, room, self._all[self._placement.where[row]]):
            limit = 0.0  # nor could a shorter job
        elif self._placement.fits(row, room, self._free_now(row)):
            return True
        failed[:] = [each for each in failed if each[0] < units or each[1] < limit] + [(units, limit)]
        return False

    def _free_now(self, row: int) -> Ints:
        """The nodes (k,) without a reservation before the job's limit."""
        now = self._pass.now
        return self._space.free(self._inside(row), now, now + float(self._pass.limit[row]))[0]

    def _reserve(self, row: int) -> Reservation | None:
        """The reservation of a job that cannot start now, None where it gets none."""
        partition, most = str(self._pass.pending.partition[row]), self._settings.of_partition
        if most and self._of_partition.get(partition, 0) >= most:
            return None
        kind, units, limit = self._kind(row), int(self._units[row]), float(self._pass.limit[row])
        known = self._not_before.setdefault(kind, [])
        soonest = max((time for least, shortest, time in known if units >= least and limit >= shortest), default=0.0)
        found = self._earliest(row, max(self._pass.now, soonest))
        start = found.time if found else np.inf
        known[:] = [each for each in known if each[0] < units or each[1] < limit or each[2] > start]
        known.append((units, limit, start))
        if found is None or found.time > self._pass.now + self._settings.window:
            return None
        self._space.reserve(found.nodes, *self._space.slot(found.time, limit))
        self._of_partition[partition] = self._of_partition.get(partition, 0) + 1
        return found

    def _earliest(self, row: int, soonest: float) -> Reservation | None:
        """The first start within the window from then on."""
        limit, inside, space = float(self._pass.limit[row]), self._inside(row), self._space
        least = max(int(self._pass.pending.nodes[row]), 1)
        later = soonest
        while later <= space.end:
            start = later
            nodes, later = space.free(inside, start, start + limit)
            found = self._will_run(row, nodes, start, later) if len(nodes) >= least else None
            if found and space.overlaps(found.nodes, *space.slot(found.time, limit)):
                later = found.time + (self._settings.resolution if found.time == start else 0.0)
            elif found and not 0.0 < later < found.time:
                return found
            if not later:
                return None
        return None

    def _will_run(self, row: int, nodes: Ints, start: float, until: float) -> Reservation | None:
        """When the job could start on these nodes (k,), as what runs ends; what ends after `until`, if it is not 0, is
        not considered (select/cons_tres, `_future_run_test`)."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, until, side="right")) if until else len(self._ends)
        if not self._fits(row, last, nodes):
            return None
        if self._fits(row, first, nodes):
            return Reservation(row, start, self._place(row, first, nodes))
        here = np.zeros(len(self._pass.free), dtype=bool)
        here[nodes] = True
        groups = self._groups(float(self._ends[first + here[self._nodes[first:last]].argmax()]), first, last)
        ended = groups[bisect_left(groups, True, key=lambda each: self._fits(row, each, nodes))]
        found = self._place(row, ended, nodes)
        here[:] = False
        here[found] = True
        relevant = np.flatnonzero(here[self._nodes[first:ended]])
        return Reservation(row, float(self._ends[first + relevant[-1]]), found)

    def _place(self, row: int, ended: int, nodes: Ints) -> Ints:
        """Where the job runs, which fits, once so many of `_ends` are over."""
        placed = self._placement.place(row, self._free_after(ended), nodes, self._room_after(row, ended))
        if placed is None:
            raise AssertionError(f"{row} fits and has no place")
        return placed[0]

    def _groups(self, first_end: float, first: int, last: int) -> list[int]:
        """How many of `_ends` are over after each group of jobs that are taken to end together."""
        base, window, found = (first_end // _WINDOW + 1) * _WINDOW, _WINDOW, [first]
        while found[-1] < last:
            found.append(min(int(np.searchsorted(self._ends, base + window, side="right")), last))
            window = window + self._settings.window_linear if self._settings.window_linear else window * 2
        return sorted(set(found[1:]))

    def _fits(self, row: int, ended: int, nodes: Ints) -> bool:
        return self._placement.fits(row, self._room_after(row, ended), nodes)

    def _by_end(self) -> None:
        """What is held, in order of its end, after a start too."""
        held, now = self._pass.held, self._pass.now
        order = np.argsort(held.until, kind="stable")
        self._ends: Floats = np.maximum(held.until[order], now + 1)
        self._nodes: Ints = held.node[order]
        self._amounts: Floats = held.amount[order]
        self._free_by_count: dict[int, Floats] = {}
        self._room_by_count: dict[tuple[bytes, int], Floats] = {}

    def _free_after(self, ended: int) -> Floats:
        """(m, resources) once so many of `_ends` are over."""
        if ended not in self._free_by_count:
            free = self._pass.free.copy()
            np.add.at(free, self._nodes[:ended], self._amounts[:ended])
            self._free_by_count[ended] = free
        return self._free_by_count[ended]

    def _room_after(self, row: int, ended: int) -> Floats:
        """(m,) as `Placement.room`, once so many of `_ends` are over."""
        kind = (self._pass.pending.demand[row].tobytes(), ended)
        if kind not in self._room_by_count:
            self._room_by_count[kind] = self._placement.room(row, self._free_after(ended))
        return self._room_by_count[kind]

    def _inside(self, row: int) -> int:
        """The nodes of the job's partition."""
        return self._sets[int(self._placement.where[row])]

    def _kind(self, row: int) -> Kind:
        pending = self._pass.pending
        return int(self._placement.where[row]), int(pending.nodes[row]), pending.demand[row].tobytes()

"""Slurm's own backfill: each waiting job that it looks at has a reservation (sched/backfill, `_attempt_backfill`).

In order of priority, each job gets the earliest start that the time limits of what runs and the reservations before it
allow, and a reservation of all of its nodes (`node_space`). A job whose start is now starts. Which waiting jobs run at
once is thus decided from whole nodes alone: one that needs half of a reserved node does not start there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.sim.slurm.node_sets import NodeSet, each_of, first_of, node_set, numbers
from slurmplug.sim.slurm.node_space import NodeSpace
from slurmplug.sim.slurm.queue import Demand, Start
from slurmplug.sim.slurm.room_by_end import RoomByEnd
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass
from slurmplug.sim.slurm.settings import Reservations

_WINDOW = 30.0
"""seconds: jobs that end so close to the first are taken to end together, and ever longer windows after it"""


class Reservation(NamedTuple):
    """The job of that row is to start then on these nodes, numbered as in its `SchedulingPass`."""

    row: int
    time: float
    of: NodeSet

    @property
    def nodes(self) -> Ints:
        """(k,)"""
        return numbers(self.of)


@dataclass(frozen=True, eq=False)
class Kind:
    """Of jobs that differ only in how many GPUs, or nodes, they request and for how long.

    inside: the nodes of their partition. nodes: how many they request. spreads: whether over several, though they
    request none. no_start: units and limits of jobs that cannot start now: nor can a job with as much of both.
    not_before: units, limits and starts of reservations: a job with as much of both starts no sooner.
    """

    inside: NodeSet
    nodes: int
    spreads: bool
    demand: Demand
    no_start: list[tuple[int, float]] = field(default_factory=list)
    not_before: list[tuple[int, float, float]] = field(default_factory=list)


class Backfill:
    """The backfill of one scheduling pass."""

    def __init__(self, of: SchedulingPass, settings: Reservations) -> None:
        self._pass, self._placement, self._settings = of, of.placement, settings
        self._space = NodeSpace(len(of.free), of.now, of.now + settings.window, settings.resolution)
        self._sets = [node_set(each) for each in self._placement.sets]
        self._units: list[int] = of.pending.units.tolist()
        self._limit: list[float] = of.limit.tolist()
        self._kinds: dict[tuple[int, int, bool, Demand], Kind] = {}
        pending = of.pending
        demand = map(tuple, pending.demand.tolist())
        self._requests: list[tuple[int, int, int, Demand]] = list(
            zip(self._placement.where.tolist(), pending.nodes.tolist(), pending.gpus.tolist(), demand, strict=True)
        )
        """of each job: the set of its partition's nodes, its nodes and GPUs, and what each of these needs"""
        self._kind_of: dict[tuple[int, int, int, Demand], Kind] = {}
        """by request"""
        self._room: RoomByEnd | None = None
        """None where a job has started since it was computed"""
        self._now: dict[tuple[Demand, int], NodeSet] = {}
        """by demand and number of parts, the nodes with room for as many now"""
        self._parts: dict[Demand, Floats] = {}
        self._of_partition: dict[str, int] = {}
        """reservations by partition"""

    def run(self, rows: Sequence[int]) -> Iterator[Start]:
        """The starts. Reservations are made only while a job behind them could start now."""
        for each in self._plan(rows, only_starts=True):
            if isinstance(each, Start):
                yield each

    def plan(self, rows: Sequence[int]) -> Iterator[Reservation | Start]:
        """What becomes of each of these jobs; nothing of one that gets no reservation."""
        return self._plan(rows, only_starts=False)

    def _plan(self, rows: Sequence[int], *, only_starts: bool) -> Iterator[Reservation | Start]:
        """A job counts as tested (bf_max_job_test) whether it gets a reservation or not."""
        hopeful = 0
        left = self._pass.settings.bf_max_job_test
        for at, row in enumerate(rows):
            hopeful = max(hopeful, at)
            while hopeful < len(rows) and not self._may_start(rows[hopeful]):
                hopeful += 1
            if not left or (only_starts and hopeful >= min(len(rows), at + left)):
                return
            if hopeful == at:
                if start := self._start(row):
                    yield start
                left -= 1
            elif not self._pass.holds_back(row):
                left -= 1
                if found := self._earliest_reservation(row):
                    if self._is_full():
                        return
                    self._reserve(found)
                    yield found

    def _is_full(self) -> bool:
        """Whether the table has as many slots as it may (bf_node_space_size, by default bf_max_job_test)."""
        return len(self._space) >= max(self._pass.settings.bf_max_job_test, 2)

    def _start(self, row: int) -> Start | None:
        free = self._space.free_until(self._pass.now + self._limit[row]) & self._kind(row).inside
        start = self._pass.start(row, self._pass.free, numbers(free))
        if start:
            self._room = None
            self._now.clear()
            self._parts.clear()
        return start

    def _may_start(self, row: int) -> bool:
        """Whether the job could start now, beside the reservations that there are."""
        if self._pass.holds_back(row):
            return False
        kind, units, limit = self._kind(row), self._units[row], self._limit[row]
        for least, shortest in kind.no_start:
            if units >= least and limit >= shortest:
                return False
        if not self._has_room_now(kind, units, kind.inside):
            limit = 0.0  # nor could a shorter job
        elif self._has_room_now(kind, units, kind.inside & self._space.free_until(self._pass.now + limit)):
            return True
        kind.no_start[:] = [each for each in kind.no_start if each[0] < units or each[1] < limit] + [(units, limit)]
        return False

    def _has_room_now(self, kind: Kind, units: int, nodes: NodeSet) -> bool:
        """Whether one of the kind finds its place on these nodes now."""
        if kind.spreads:
            return bool(self._parts_now(kind.demand)[numbers(nodes)].clip(0).sum() >= units)
        key = (kind.demand, _parts(kind, units))
        if key not in self._now:
            self._now[key] = node_set(self._parts_now(kind.demand) >= key[1])
        fitting = self._now[key] & nodes
        return fitting.bit_count() >= kind.nodes if kind.nodes > 1 else bool(fitting)

    def _parts_now(self, demand: Demand) -> Floats:
        """(m,) how many such parts each node has room for now."""
        if demand not in self._parts:
            self._parts[demand] = self._placement.room_of(demand, self._pass.free)
        return self._parts[demand]

    def _earliest_reservation(self, row: int) -> Reservation | None:
        """The reservation of a job that cannot start now, None where it gets none."""
        most = self._settings.of_partition
        if most and self._of_partition.get(str(self._pass.pending.partition[row]), 0) >= most:
            return None
        kind, units, limit = self._kind(row), self._units[row], self._limit[row]
        soonest, known = self._pass.now, kind.not_before
        for least, shortest, time in known:
            if time > soonest and units >= least and limit >= shortest:
                soonest = time
        found = self._earliest(row, kind, soonest)
        start = found.time if found else inf
        known[:] = [each for each in known if each[0] < units or each[1] < limit or each[2] > start]
        known.append((units, limit, start))
        return found if found and found.time <= self._pass.now + self._settings.window else None

    def _reserve(self, made: Reservation) -> None:
        self._space.reserve(made.of, *self._space.slot(made.time, self._limit[made.row]))
        if not self._settings.of_partition:
            return
        partition = str(self._pass.pending.partition[made.row])
        self._of_partition[partition] = self._of_partition.get(partition, 0) + 1

    def _earliest(self, row: int, kind: Kind, soonest: float) -> Reservation | None:
        """The first start within the window from then on."""
        limit, space, least = self._limit[row], self._space, max(kind.nodes, 1)
        later = soonest
        while later <= space.end:
            start = later
            nodes, later = space.free(kind.inside, start, start + limit)
            found = self._will_run(row, kind, nodes, start, later) if nodes.bit_count() >= least else None
            if found and space.overlaps(found.of, *space.slot(found.time, limit)):
                later = found.time + (self._settings.resolution if found.time == start else 0.0)
            elif found and not 0.0 < later < found.time:
                return found
            if not later:
                return None
        return None

    def _will_run(self, row: int, kind: Kind, nodes: NodeSet, start: float, until: float) -> Reservation | None:
        """When the job could start on these nodes, as what runs ends; what ends after `until`, if it is not 0, is not
        considered (select/cons_tres, `_future_run_test`)."""
        if self._room is None:
            self._room = RoomByEnd(self._pass.free, self._pass.held, self._pass.now)
        room, units = self._room, self._units[row]
        if kind.spreads:
            fits_at = room.soonest_spread(kind.demand, units, nodes)
        else:
            fits_at = room.soonest(kind.demand, _parts(kind, units), max(kind.nodes, 1), nodes)
        first, last = room.over(start), room.over(until) if until else len(room.times)
        if fits_at is None or fits_at > last:
            return None
        if fits_at <= first:
            return Reservation(row, start, self._place(kind, units, first, nodes))
        together = self._end_of_window(room.first_end(nodes, first, last), room.times[fits_at - 1])
        over = min(room.over(together), last)
        found = self._place(kind, units, over, nodes)
        return Reservation(row, room.last_end(each_of(found), over), found)

    def _end_of_window(self, first_end: float, end: float) -> float:
        """Until when jobs are taken to end together with the one that ends at `end`, the windows being counted from the
        first end on."""
        begin, more = (first_end // _WINDOW + 1) * _WINDOW, self._settings.window_linear
        if more:
            return begin + _WINDOW + max(ceil((end - begin - _WINDOW) / more), 0) * more
        window = _WINDOW
        while begin + window < end:
            window *= 2
        return begin + window

    def _place(self, kind: Kind, units: int, over: int, nodes: NodeSet) -> NodeSet:
        """Where the job runs, which fits, once so many entries of what is held are over."""
        assert self._room
        if not any(kind.demand):
            return first_of(nodes, 1)
        if kind.spreads:
            return self._emptiest(kind.demand, units, over, nodes)
        fitting = nodes & self._room.nodes(kind.demand, _parts(kind, units), over)
        return first_of(fitting, kind.nodes) if kind.nodes > 1 else self._one_of(fitting, over)

    def _one_of(self, fitting: NodeSet, over: int) -> NodeSet:
        """The first node of that row of neighbours whose free CPUs are fewest."""
        assert self._room
        begins = fitting & ~(fitting << 1 & self._placement.behind_another)
        if not begins & begins - 1:
            return begins
        cpus: dict[int, float] = {}
        for node in each_of(fitting):
            if begins >> node & 1:
                begin = node
                cpus[begin] = 0.0
            cpus[begin] += self._room.cpus(node, over)
        return 1 << min(cpus, key=cpus.__getitem__)

    def _emptiest(self, demand: Demand, units: int, over: int, nodes: NodeSet) -> NodeSet:
        """As few nodes as hold so many units together."""
        assert self._room
        here = numbers(nodes)
        parts = self._room.parts(demand, over)[here]
        order = np.argsort(-parts, kind="stable")
        count = int(np.searchsorted(np.cumsum(parts[order]), units)) + 1
        return sum(1 << node for node in here[order[:count]].tolist())

    def _kind(self, row: int) -> Kind:
        request = self._requests[row]
        if request not in self._kind_of:
            where, nodes, _, demand = request
            key = where, nodes, self._placement.spreads(row), demand
            if key not in self._kinds:
                self._kinds[key] = Kind(self._sets[where], *key[1:])
            self._kind_of[request] = self._kinds[key]
        return self._kind_of[request]


def _parts(kind: Kind, units: int) -> int:
    """For how many parts of the request a node must have room."""
    return -(-units // kind.nodes) if kind.nodes > 1 else units

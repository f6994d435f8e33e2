"""Which pending jobs Slurm would start now, and where: priority order and EASY backfill on time limits.

As Slurm's job_scheduler.c and sched/backfill do it, without what a simulation of training does not need: jobs start in
order of their partitions' PriorityTier and then of priority. Where one does not fit, no later job of its partition, nor
of another on nodes of that partition, starts in that order any more; it is promised the earliest start that the time
limits of what runs allow, and a later job starts now only where it does not delay such a promise (Lifka, JSSPP 1995). A
job that would be above a limit of its QOS or associations is passed over, whether there is room for it or not, and is
promised nothing. Pure: clock and queue are the caller's.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster.limits import Limits
from slurmplug.sim.engine.workload_table import units
from slurmplug.sim.slurm.fair_tree import Shares
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.multifactor import Billing, Weights, priority, size_factor
from slurmplug.sim.slurm.partitions import JobPartitions, Partition, one_for_all

_SLACK = 1e-6
"""of a CPU or a MiB, lost to rounding"""


@dataclass(frozen=True)
class LauncherSettings:
    """The scheduling parameters of the simulated Slurm.

    `bf_max_job_test`: how many jobs backfill tries behind the first that must wait; `default_limit`: seconds.

    `pace`: seconds between two scheduling passes, as by batch_sched_delay and sched_min_interval.
    `bf_interval`: seconds between two rounds of backfill, between which jobs start in order of priority alone; 0: each
    pass backfills. `launch_seconds`: from a start until the job's program runs; `release_seconds`: from a job's end
    until others can have what it held. A site can take both from its accounting (docs/simulator.md). `limits`: of QOS
    and associations. `shares`: of accounts and users, for Fair Tree; without them all users are equal.
    `fairshare_interval`: seconds from one computation of Fair Tree's fairshare to the next, as PriorityCalcPeriod.
    `partitions`: by name; a job of another runs on all nodes.
    """

    weights: Weights = field(default_factory=Weights)
    backfill: bool = True
    bf_max_job_test: int = 500
    default_limit: float = 7 * 86_400.0
    pace: float = 3.0
    bf_interval: float = 0.0
    launch_seconds: float = 0.0
    release_seconds: float = 0.0
    limits: Limits = field(default_factory=Limits)
    shares: Shares | None = None
    billing: Billing = field(default_factory=Billing)
    fairshare_interval: float = 300.0
    partitions: Mapping[str, Partition] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, eq=False)
class Pending:
    """The queue, a column a property (n,), in order of submission; times are seconds.

    nodes: it requests this number, and as much of each; up to 1: as few as can hold it. demand: (n, resources) of each
    of its GPUs, the first being the GPU itself, or of each of its nodes where `gpus` is 0. eligible: since when it has
    waited. begin: not before. reservation: its name, or empty.
    """

    gpus: Ints
    nodes: Ints
    demand: Floats
    time_limit: Floats
    eligible: Floats
    begin: Floats
    qos: Texts
    partition: Texts
    reservation: Texts
    nice: Floats
    site_factor: Floats

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def units(self) -> Ints:
        """(n,) what a job requests so many times `demand` of: its GPUs, else its nodes."""
        return units(self.gpus, self.nodes)


@dataclass(frozen=True, eq=False)
class HeldResources:
    """What running jobs hold, an entry (k,) a job and node: amounts (k, resources), and until when by time limit."""

    node: Ints
    amount: Floats
    until: Floats


@dataclass(frozen=True, eq=False)
class NodeResources:
    """Nodes: what is free (m, resources), all there is (m, resources), the name of the reservation on each or empty.

    A node that takes no job has nothing free and is not `up`.
    """

    free: Floats
    total: Floats
    reservation: Texts
    up: Bools


@dataclass(frozen=True)
class Start:
    """The job of that row starts on `nodes` with `shares` GPUs each."""

    row: int
    nodes: tuple[int, ...]
    shares: tuple[int, ...]


def priorities(
    pending: Pending, room: NodeResources, fairshare: Floats, now: float, settings: LauncherSettings
) -> Ints:
    """The priority of each pending job (n,). fairshare: (n,) from 0 to 1.

    A job requests as few nodes as can hold it.
    """
    least = np.ceil(pending.gpus / max(room.total[:, 0].max(initial=0.0), 1.0))
    nodes = np.maximum.reduce([least, pending.nodes, np.ones(len(pending))])
    requested = pending.demand[:, :3] * pending.units[:, None]
    weights, limit = settings.weights, np.where(pending.time_limit > 0, pending.time_limit, settings.default_limit)
    of_nodes, of_cpus = nodes / max(len(room.total), 1), requested[:, 1] / max(room.total[:, 1].sum(), 1.0)
    return priority(
        weights,
        waited=now - np.maximum(pending.eligible, pending.begin),
        fairshare=fairshare,
        size=size_factor(weights, of_nodes, of_cpus, limit),
        qos=pending.qos,
        partition=pending.partition,
        nice=pending.nice,
        site_factor=pending.site_factor,
        requested=np.column_stack([requested, nodes]) if weights.tres else None,
    )


def jobs_to_start(
    pending: Pending,
    held: HeldResources,
    room: NodeResources,
    of_priority: Ints,
    *,
    now: float,
    settings: LauncherSettings | None = None,
    limited: Limited | None = None,
    partitions: JobPartitions | None = None,
) -> tuple[Start, ...]:
    """The jobs to start now, in that order. of_priority: (n,) of `priorities`. limited: what the limits of QOS and
    associations leave to each (n,); what starts is added to it. partitions: of each (n,), None for one with all nodes.

    Nodes with a reservation are for the jobs that name it, and these run nowhere else; so each reservation is a queue
    of its own. The same priority: first submitted, first started.
    """
    settings = settings or LauncherSettings()
    if not len(pending):
        return ()
    partitions = partitions or one_for_all(len(pending), len(room.free))
    ranked = np.lexsort((-of_priority, -partitions.tier))
    ranked = ranked[pending.begin[ranked] <= now]
    if limited is not None:
        ranked = ranked[~limited.held_back()[ranked]]
    started: list[Start] = []
    names = np.unique(pending.reservation[ranked]).tolist() if (pending.reservation != "").any() else [""]
    for name in names:
        rows = ranked[pending.reservation[ranked] == name] if len(names) > 1 or name else ranked
        nodes = np.flatnonzero((room.reservation == name) & room.up)
        if len(nodes):
            one = _SchedulingPass(pending, held, room, nodes, partitions, now=now, settings=settings, limited=limited)
            started += one.run(rows)
    if len(names) == 1:
        return tuple(started)
    order = {int(row): place for place, row in enumerate(ranked)}
    return tuple(sorted(started, key=lambda start: order[start.row]))


def earliest_start(
    pending: Pending,
    row: int,
    held: HeldResources,
    room: NodeResources,
    now: float,
    *,
    partitions: JobPartitions | None = None,
) -> float:
    """When the job could start at the latest, if nothing else started: by the time limits; infinite where never."""
    nodes = np.flatnonzero((room.reservation == pending.reservation[row]) & room.up)
    partitions = partitions or one_for_all(len(pending), len(room.free))
    one = _SchedulingPass(pending, held, room, nodes, partitions, now=now, settings=LauncherSettings())
    promised = one.promise(row)
    return promised.time if promised else math.inf


@dataclass(eq=False)
class _Promise:
    """A job of these nodes (a set of `JobPartitions`) can start then; `spare` (m, resources) is free beside it."""

    where: int
    time: float
    spare: Floats


class _SchedulingPass:
    """One scheduling pass over the queue of one reservation and its nodes."""

    def __init__(
        self,
        pending: Pending,
        held: HeldResources,
        room: NodeResources,
        nodes: Ints,
        partitions: JobPartitions,
        *,
        now: float,
        settings: LauncherSettings,
        limited: Limited | None = None,
    ) -> None:
        self._pending, self._nodes, self._now, self._settings = pending, nodes, now, settings
        self._limited = limited
        self._where, self._sets = partitions.where, partitions.nodes[:, nodes]
        self._index = np.arange(len(nodes))
        self._inside = [slice(None) if each.all() else np.flatnonzero(each) for each in self._sets]
        """by set, which of `nodes` are in it"""
        place = np.full(len(room.free), -1)
        place[nodes] = np.arange(len(nodes))
        here = place[held.node] >= 0 if len(held.node) else np.zeros(0, dtype=bool)
        self._held = HeldResources(place[held.node[here]], held.amount[here], np.maximum(held.until[here], now))
        self._planned = HeldResources(self._held.node[:0], self._held.amount[:0], self._held.until[:0])
        """of the jobs with a promise, as if they held it from now on"""
        self._free, self._total = room.free[nodes].astype(np.float64), room.total[nodes]
        limit = pending.time_limit
        self._limit = np.where(limit > 0, limit, settings.default_limit)  # NaN is not above 0
        self._units = pending.units

    def run(self, rows: Ints) -> Iterator[Start]:
        """The starts, in order of priority, then those of backfill."""
        sets = set(self._where[rows].tolist())
        failed: set[int] = set()
        left: list[int] = []
        free = self._free
        for at, row in enumerate(rows.tolist()):
            if failed == sets:
                left += rows[at:].tolist()
                break
            where = int(self._where[row])
            if where in failed:
                left.append(row)
                continue
            if start := self._start(row, free):
                yield start
            elif self._holds_back(row) or self._place(row, self._free_at(math.inf)) is None:
                continue  # for a limit, or as it requests more than there is: later jobs need not wait for it
            else:
                failed.add(where)
                left.append(row)
            free = self._free
            if failed:
                free = np.where(np.any(self._sets[sorted(failed)], axis=0)[:, None], 0.0, free)
        if self._settings.backfill:
            yield from self._backfill(left)

    def promise(self, row: int) -> _Promise | None:
        """When the job can start by the time limits of what runs and of the jobs with a promise already."""
        times = np.unique(np.concatenate([self._held.until, self._planned.until]))
        low, high = 0, len(times)  # the first time at which it fits: what is free only grows
        found = None
        while low < high:
            middle = (low + high) // 2
            free = self._free_at(float(times[middle]))
            if placed := self._place(row, free):
                found, high = (float(times[middle]), free, *placed), middle
            else:
                low = middle + 1
        if found is None:
            return None
        time, free, nodes, shares = found
        spare = self._less(free, row, nodes, shares)
        until = np.full(len(nodes), time + self._limit[row])
        self._planned = _with(self._planned, nodes, (free - spare)[nodes], until)
        return _Promise(int(self._where[row]), time, spare)

    def _backfill(self, rows: Sequence[int]) -> Iterator[Start]:
        """Starts beside the promise to the first job of each set of nodes: jobs that end by then, and jobs in what is
        spare beside it."""
        promises: dict[int, _Promise] = {}
        failed: dict[tuple[int, int, tuple[int, ...], bytes], int] = {}
        tested = 0
        for row in rows:
            where, units, nodes = int(self._where[row]), int(self._units[row]), int(self._pending.nodes[row])
            if where in promises:
                if tested == self._settings.bf_max_job_test:
                    return
                tested += 1
            end = self._now + self._limit[row]
            still = [each for each in promises.values() if end > each.time and self._share_nodes(where, each.where)]
            kind = (where, nodes, tuple(each.where for each in still), self._pending.demand[row].tobytes())
            if units >= failed.get(kind, units + 1):
                continue  # as many, or fewer, of the same did not fit, and room only shrinks
            free = self._free
            for each in still:
                free = np.minimum(free, each.spare)
            if start := self._start(row, free):
                local = np.searchsorted(self._nodes, start.nodes)
                for each in still:
                    each.spare = self._less(each.spare, row, local, np.array(start.shares))
                yield start
            elif not self._holds_back(row):
                failed[kind] = units
                if where not in promises and (promised := self.promise(row)):
                    promises[where] = promised

    def _share_nodes(self, one: int, other: int) -> bool:
        """Whether these sets of nodes do."""
        return one == other or bool((self._sets[one] & self._sets[other]).any())

    def _start(self, row: int, free: Floats) -> Start | None:
        placed = None if self._holds_back(row) else self._place(row, free)
        if placed is None:
            return None
        nodes, shares = placed
        if self._limited is not None:
            self._limited.start(row)
        after = self._less(self._free, row, nodes, shares)
        until = np.full(len(nodes), self._now + self._limit[row])
        self._held = _with(self._held, nodes, (self._free - after)[nodes], until)
        self._free = after
        return Start(row, tuple(self._nodes[nodes].tolist()), tuple(shares.tolist()))

    def _holds_back(self, row: int) -> bool:
        """Whether a limit of its QOS or associations does."""
        return self._limited is not None and self._limited.holds_back(row)

    def _less(self, free: Floats, row: int, nodes: Ints, shares: Ints) -> Floats:
        left = free.copy()
        units = shares if self._pending.gpus[row] else np.ones(len(nodes))
        left[nodes] -= self._pending.demand[row] * np.asarray(units)[:, None]
        return left

    def _free_at(self, time: float) -> Floats:
        """(m, resources) beside what has a promise, by the time limits."""
        free = self._free.copy()
        np.subtract.at(free, self._planned.node, self._planned.amount)
        for held in (self._held, self._planned):
            ended = held.until <= time
            np.add.at(free, held.node[ended], held.amount[ended])
        return free

    def _place(self, row: int, free: Floats) -> tuple[Ints, Ints] | None:
        """Nodes, and GPUs on each: as many nodes as it requests, else one where one could hold it, else the emptiest.

        Of single nodes cons_tres takes the first of that row of neighbours, all with room, whose free CPUs are fewest.
        """
        inside = self._inside[self._where[row]]
        of_all, free, total = self._index[inside], free[inside], self._total[inside]
        demand = self._pending.demand[row]
        requested = demand > 0
        units, nodes = int(self._units[row]), int(self._pending.nodes[row])
        if not len(of_all):
            return None
        if not requested.any():
            return of_all[:1], np.zeros(1, dtype=np.int64)
        room = np.floor((free[:, requested] + _SLACK) / demand[requested]).min(axis=1)
        if nodes > 1:
            fitting = np.flatnonzero(room >= -(-units // nodes))[:nodes]
            if len(fitting) < nodes:
                return None
            return of_all[fitting], np.diff(units * np.arange(nodes + 1) // nodes) * bool(self._pending.gpus[row])
        fitting = np.flatnonzero(room >= units)
        if len(fitting):
            rows = np.flatnonzero(np.diff(self._nodes[of_all[fitting]], prepend=-2) > 1)
            node = fitting[rows[[np.add.reduceat(free[fitting, 1], rows).argmin()]]]
            return of_all[node], np.array([units if self._pending.gpus[row] else 0])
        if not self._pending.gpus[row] or room.clip(0).sum() < units:
            return None
        if units <= np.floor((total[:, requested] + _SLACK) / demand[requested]).min(axis=1).max():
            return None
        order = np.lexsort((np.arange(len(room)), -room))
        reached = np.cumsum(room[order].clip(0))
        count = int(np.searchsorted(reached, units)) + 1
        shares = room[order[:count]].astype(np.int64)
        shares[-1] -= int(reached[count - 1]) - units
        by_node = np.argsort(order[:count])
        return of_all[order[:count][by_node]], shares[by_node]


def _with(held: HeldResources, nodes: Ints, amounts: Floats, until: Floats) -> HeldResources:
    """What is held, and these amounts (k, resources) of these nodes (k,) until then (k,)."""
    return HeldResources(
        node=np.concatenate([held.node, nodes]),
        amount=np.concatenate([held.amount, amounts]),
        until=np.concatenate([held.until, until]),
    )

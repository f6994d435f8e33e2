"""Which pending jobs Slurm would start now, and where: priority order and EASY backfill on time limits.

As sched/backfill of Slurm does it, without what a simulation of training does not need: jobs start in order of priority
until one does not fit; that one is promised the earliest start that the time limits of what runs allow, and a later
job starts now only where it does not delay this promise (Lifka, JSSPP 1995). A job that would be above a limit of its
QOS or associations is passed over, whether there is room for it or not, and is promised nothing. Pure: clock and queue
are the caller's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster.limits import Limits
from slurmplug.sim.slurm.fair_tree import Shares
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.multifactor import Billing, Weights, priority

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


@dataclass(frozen=True, eq=False)
class Pending:
    """The queue, a column a property (n,), in order of submission; times are seconds.

    demand: (n, resources) of each of its GPUs, the first being the GPU itself, or of the whole job where `gpus` is 0:
    then it needs one node. eligible: since when it has waited. begin: not before. reservation: its name, or empty.
    """

    gpus: Ints
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

    A job's size is the mean of its shares of the nodes and of the CPUs.
    """
    nodes = np.ceil(np.maximum(pending.gpus, 1) / max(room.total[:, 0].max(initial=0.0), 1.0))
    cpus = pending.demand[:, 1] * np.maximum(pending.gpus, 1)
    size = (nodes / max(len(room.total), 1) + cpus / max(room.total[:, 1].sum(), 1.0)) / 2
    return priority(
        settings.weights,
        waited=now - np.maximum(pending.eligible, pending.begin),
        fairshare=fairshare,
        size=size,
        qos=pending.qos,
        partition=pending.partition,
        nice=pending.nice,
        site_factor=pending.site_factor,
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
) -> tuple[Start, ...]:
    """The jobs to start now, in that order. of_priority: (n,) of `priorities`. limited: what the limits of QOS and
    associations leave to each (n,); what starts is added to it.

    Nodes with a reservation are for the jobs that name it, and these run nowhere else; so each reservation is a queue
    of its own. The same priority: first submitted, first started.
    """
    settings = settings or LauncherSettings()
    if not len(pending):
        return ()
    ranked = np.argsort(-of_priority, kind="stable")
    ranked = ranked[pending.begin[ranked] <= now]
    if limited is not None:
        ranked = ranked[~limited.held_back()[ranked]]
    started: list[Start] = []
    names = np.unique(pending.reservation[ranked]).tolist() if (pending.reservation != "").any() else [""]
    for name in names:
        rows = ranked[pending.reservation[ranked] == name] if len(names) > 1 or name else ranked
        nodes = np.flatnonzero((room.reservation == name) & room.up)
        if len(nodes):
            one = _SchedulingPass(pending, held, room, nodes, now=now, settings=settings, limited=limited)
            started += one.run(rows)
    if len(names) == 1:
        return tuple(started)
    order = {int(row): place for place, row in enumerate(ranked)}
    return tuple(sorted(started, key=lambda start: order[start.row]))


def earliest_start(pending: Pending, row: int, held: HeldResources, room: NodeResources, now: float) -> float:
    """When the job could start at the latest, if nothing else started: by the time limits; infinite where never."""
    nodes = np.flatnonzero((room.reservation == pending.reservation[row]) & room.up)
    promised = _SchedulingPass(pending, held, room, nodes, now=now, settings=LauncherSettings()).promise(row)
    return promised[0] if promised else math.inf


class _SchedulingPass:
    """One scheduling pass over the queue of one reservation and its nodes."""

    def __init__(
        self,
        pending: Pending,
        held: HeldResources,
        room: NodeResources,
        nodes: Ints,
        *,
        now: float,
        settings: LauncherSettings,
        limited: Limited | None = None,
    ) -> None:
        self._pending, self._nodes, self._now, self._settings = pending, nodes, now, settings
        self._limited = limited
        place = np.full(len(room.free), -1)
        place[nodes] = np.arange(len(nodes))
        here = place[held.node] >= 0 if len(held.node) else np.zeros(0, dtype=bool)
        self._node = place[held.node[here]]
        self._amount = held.amount[here]
        self._until = np.maximum(held.until[here], now)
        self._free, self._total = room.free[nodes].astype(np.float64), room.total[nodes]
        limit = pending.time_limit
        self._limit = np.where(limit > 0, limit, settings.default_limit)  # NaN is not above 0

    def run(self, rows: Ints) -> Iterator[Start]:
        """The starts, in order of priority."""
        waiting = iter(rows.tolist())
        for row in waiting:
            if start := self._start(row, self._free):
                yield start
                continue
            if self._holds_back(row):
                continue
            if self._place(row, self._free_at(math.inf)) is None:
                continue  # it requests more than there is: later jobs need not wait for it
            if self._settings.backfill and (promised := self.promise(row)):
                yield from self._backfill(waiting, *promised)
            return

    def promise(self, row: int) -> tuple[float, Floats] | None:
        """When the job can start by the time limits, and what is then free beside it (m, resources)."""
        times = np.unique(self._until)
        low, high = 0, len(times)  # the first time at which it fits: what is free only grows
        found = None
        while low < high:
            middle = (low + high) // 2
            free = self._free_at(float(times[middle]))
            if placed := self._place(row, free):
                found, high = (float(times[middle]), self._less(free, row, *placed)), middle
            else:
                low = middle + 1
        return found

    def _backfill(self, waiting: Iterator[int], shadow: float, spare: Floats) -> Iterator[Start]:
        """Starts behind a promise at `shadow`: jobs that end by then, and jobs in what is spare beside it."""
        failed: dict[tuple[bool, bytes], int] = {}
        for _, row in zip(range(self._settings.bf_max_job_test), waiting, strict=False):
            ends_before = self._now + self._limit[row] <= shadow
            kind = (bool(ends_before), self._pending.demand[row].tobytes())
            units = max(int(self._pending.gpus[row]), 1)
            if units >= failed.get(kind, units + 1):
                continue  # as many, or fewer, of the same did not fit, and room only shrinks
            start = self._start(row, self._free if ends_before else np.minimum(self._free, spare))
            if start is None:
                if not self._holds_back(row):
                    failed[kind] = units
                continue
            if not ends_before:
                local = np.searchsorted(self._nodes, start.nodes)
                spare = self._less(spare, row, local, np.array(start.shares))
            yield start

    def _start(self, row: int, free: Floats) -> Start | None:
        placed = None if self._holds_back(row) else self._place(row, free)
        if placed is None:
            return None
        nodes, shares = placed
        if self._limited is not None:
            self._limited.start(row)
        after = self._less(self._free, row, nodes, shares)
        self._node = np.concatenate([self._node, nodes])
        self._amount = np.concatenate([self._amount, (self._free - after)[nodes]])
        self._until = np.concatenate([self._until, np.full(len(nodes), self._now + self._limit[row])])
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
        free = self._free.copy()
        ended = self._until <= time
        np.add.at(free, self._node[ended], self._amount[ended])
        return free

    def _place(self, row: int, free: Floats) -> tuple[Ints, Ints] | None:
        """Nodes, and GPUs on each: one node where one could hold it, else the emptiest nodes one by one.

        Of single nodes cons_tres takes the first of that row of neighbours, all with room, whose free CPUs are fewest.
        """
        demand = self._pending.demand[row]
        requested = demand > 0
        units = max(int(self._pending.gpus[row]), 1)
        if not requested.any():
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        room = np.floor((free[:, requested] + _SLACK) / demand[requested]).min(axis=1)
        fitting = np.flatnonzero(room >= units)
        if len(fitting):
            rows = np.flatnonzero(np.diff(self._nodes[fitting], prepend=-2) > 1)
            node = fitting[rows[[np.add.reduceat(free[fitting, 1], rows).argmin()]]]
            return node, np.array([units if self._pending.gpus[row] else 0])
        if not self._pending.gpus[row] or room.clip(0).sum() < units:
            return None
        if units <= np.floor((self._total[:, requested] + _SLACK) / demand[requested]).min(axis=1).max():
            return None
        order = np.lexsort((np.arange(len(room)), -room))
        reached = np.cumsum(room[order].clip(0))
        count = int(np.searchsorted(reached, units)) + 1
        shares = room[order[:count]].astype(np.int64)
        shares[-1] -= int(reached[count - 1]) - units
        by_node = np.argsort(order[:count])
        return order[:count][by_node], shares[by_node]

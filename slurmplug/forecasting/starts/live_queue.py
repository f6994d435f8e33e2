"""When the jobs of a snapshot start, and when one more would: its queue simulated forward on samples of run times.

Jobs that wait for room, or for what runs under a limit of their QOS or associations to end, are started in the order of
their priorities (`simulation`). A resource is one pool over the nodes on which a job may run: how the GPUs in use lie
on nodes is not simulated; a job that might be submitted starts no sooner than what runs now leaves its parts room on
nodes (`node_room`), one that gets whole nodes no sooner than as many are idle (`whole_nodes`). Not simulated are jobs
that wait for something else, such as a dependency, those that will be submitted, changes of priorities, and who else
waits for a limit on nodes that have none in common with the job's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from policies.placement.allocation import startable
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts
from slurmplug.cluster.limits import Limits, ResourceUse
from slurmplug.forecasting.starts.limit_sums import QueueLimits
from slurmplug.forecasting.starts.node_room import Parts, room_at
from slurmplug.forecasting.starts.queues import Running, Sums, Waiting
from slurmplug.forecasting.starts.run_time_samples import SHORTEST, samples_of
from slurmplug.forecasting.starts.simulation import start_times
from slurmplug.forecasting.starts.whole_nodes import demand_with_nodes, gets_whole_nodes, with_shares_of_nodes

Number = TypeVar("Number", np.float64, np.int64)

SAMPLES = 30
"""of run times"""
MOST_WAITING = 10_000
"""Jobs, each element of an array one, that are simulated; those behind them are left out."""
NO_LIMIT = 365 * 86_400.0
"""Seconds; the time limit that Slurm gives a job without one while it runs."""


@dataclass(frozen=True, eq=False)
class OneMore:
    """A job that might be submitted.

    demand: (resources,) in all. limit: its time limit in seconds. seconds: (samples,) its run time. parts: how it is
    spread over nodes, None where that does not matter.
    """

    demand: Floats
    limit: float
    seconds: Floats
    parts: Parts | None = None


class LiveQueue:
    """The queue of a snapshot. Times are seconds after it."""

    def __init__(
        self,
        snapshot: Snapshot,
        forecasts: Forecasts,
        *,
        limits: Limits | None = None,
        samples: int = SAMPLES,
        seed: int = 0,
    ) -> None:
        """forecasts: of the snapshot's jobs, `total` and `remaining`. limits: None where they are not known; then jobs
        that wait for one are left out."""
        jobs, random = snapshot.jobs, np.random.default_rng(seed)
        limit = np.where(np.isnan(jobs.time_limit), NO_LIMIT, jobs.time_limit)
        self._snapshot, self._samples = snapshot, samples
        self._demand = demand_with_nodes(snapshot, gets_whole_nodes(jobs, limits))
        """(n, resources), and nodes if any job gets whole ones"""
        self._limits = QueueLimits(limits, snapshot) if limits and (limits.qos or limits.assocs) else None
        self._waiting = waiting_in_order(jobs, self._limits.held_back(snapshot) if self._limits else None)
        self._limit = limit[self._waiting]
        self._seconds = samples_of(forecasts.total[self._waiting], self._limit, samples, random)
        self._running = np.flatnonzero(~jobs.pending)
        left = limit[self._running] - snapshot.elapsed[self._running]
        self._left = np.maximum(left, SHORTEST)
        ends = np.minimum(
            samples_of(forecasts.remaining[self._running], self._left, samples, random), self._left[:, None]
        )
        self._ends = np.where((jobs.state[self._running] == "completing")[:, None], SHORTEST, ends)

    def starts(self) -> Floats:
        """(n, samples) when each job starts; of an array that waits its first element. Infinite where it never can, NaN
        where it does not wait for room."""
        found = np.full((len(self._snapshot.jobs), self._samples), np.nan)
        where = self._snapshot.fits & self._snapshot.nodes.up
        parts = _connected(where)[self._snapshot.jobs.placement[self._waiting]]
        for part in np.unique(parts).tolist():
            places = np.flatnonzero(parts == part)
            running, waiting, free, sums = self._simulated(places)
            [simulated] = start_times(running, waiting, free, sums=sums)
            found[self._waiting[places[::-1]]] = simulated.T[::-1]  # of an array, what is written last is its first
        return found

    def run_times(self) -> Floats:
        """(n, samples) seconds that a job that waits for room would run, one that runs still will; NaN for others."""
        found = np.full((len(self._snapshot.jobs), self._samples), np.nan)
        found[self._running] = self._ends
        found[self._waiting[::-1]] = self._seconds[::-1]
        return found

    def starts_of(
        self,
        requests: Sequence[OneMore],
        place: int,
        nodes: Bools,
        *,
        whose: ResourceUse | None = None,
        gpu_type: str = "",
    ) -> Floats:
        """(requests, samples) when each of these would start on some of these nodes (nodes,) if it alone were submitted
        now, behind `place` of the jobs that wait. whose: it would be, None for nobody with limits."""
        where = np.vstack([self._snapshot.fits, nodes]) & self._snapshot.nodes.up
        parts = _connected(where)
        places = np.flatnonzero(parts[self._snapshot.jobs.placement[self._waiting]] == parts[-1])
        before = int((places < place).sum())
        added = _Added(requests, before, nodes, whose or ResourceUse("", "", "", "", {}), gpu_type)
        running, waiting, free, sums = self._simulated(places, added)
        found = start_times(running, waiting, free, sums=sums, target=np.full(len(requests), before))
        rooms = [self._room_at(nodes, each.parts) for each in requests]
        return np.maximum(found[:, :, before], np.stack(rooms))

    def _room_at(self, nodes: Bools, parts: Parts | None) -> Floats:
        """(samples,) when these nodes (nodes,) have room for a job in these parts, beside what runs."""
        if parts is None:
            return np.zeros(self._samples)
        return room_at(self._snapshot, nodes, self._running, self._ends, parts)

    def place_of(self, user: str, partition: str) -> int:
        """Behind how many of the jobs that wait one more of this user would be: right behind those of the user in the
        partition, who has the same share; without one, behind all, as one that has not waited at all."""
        jobs = self._snapshot.jobs
        own = np.flatnonzero((jobs.user[self._waiting] == user) & (jobs.partition[self._waiting] == partition))
        return int(own[-1]) + 1 if len(own) else len(self._waiting)

    def _simulated(self, places: Ints, added: _Added | None = None) -> tuple[Running, Waiting, Floats, Sums | None]:
        """The running and the waiting jobs to simulate, a queue for each request that is added; one without any."""
        jobs, queues = self._snapshot.jobs, len(added.requests) if added else 1
        classes, where = np.unique(jobs.placement[self._waiting[places]], return_inverse=True)
        nodes = np.vstack([self._snapshot.fits[classes], *([added.nodes] if added else [])])
        pools = _Pools(self._snapshot, nodes, count_nodes=self._demand.shape[1] > jobs.demand.shape[1])
        needs = _repeated(queues, pools.needed(self._demand[self._waiting[places]], where))
        seconds, limit = _repeated(queues, self._seconds[places].T), _repeated(queues, self._limit[places])
        if added:
            demands = np.stack([each.demand for each in added.requests])
            of_added = np.full(queues, len(classes))
            beside = np.pad(demands, ((0, 0), (0, self._demand.shape[1] - demands.shape[1])))
            needs = _with(needs, added.place, pools.needed(beside, of_added), axis=1)
            seconds = _with(seconds, added.place, np.stack([each.seconds for each in added.requests]), axis=2)
            limit = _with(limit, added.place, np.array([each.limit for each in added.requests]), axis=1)
        used = np.flatnonzero(needs.any(axis=(0, 1)))
        held = pools.held(self._running)[:, used]
        inside = held.any(axis=1)
        sums = of_running = of_waiting = None
        more = (added.whose, demands, added.gpu_type) if added else ()
        if self._limits and (found := self._limits.sums(*more)):
            sums, group = found
            inside |= (sums.counts[group[self._running]] >= 0).any(axis=1)
            of_running = _repeated(queues, group[self._running[inside]])
            of_waiting = _repeated(queues, group[self._waiting[places]])
            if added:
                of_waiting = _with(of_waiting, added.place, group[len(jobs) :], axis=1)
        running = Running(
            _repeated(queues, held[inside]),
            _repeated(queues, self._ends[inside].T),
            _repeated(queues, self._left[inside]),
            of_running,
        )
        waiting = Waiting(needs[..., used], seconds, limit, of_waiting)
        return running, waiting, _repeated(queues, pools.free[used]), sums


class _Added(NamedTuple):
    """Jobs of which each is added alone, behind `place` others; nodes: (nodes,) on which they may run; whose they are,
    and the type of their GPUs."""

    requests: Sequence[OneMore]
    place: int
    nodes: Bools
    whose: ResourceUse
    gpu_type: str


class _Pools:
    """The resources of the sets of nodes on which jobs may run, a column for each set and resource.

    A job needs what it requests from each set that contains all of its nodes: where one partition is part of another,
    what runs in it is missing in both.
    """

    def __init__(self, snapshot: Snapshot, where: Bools, *, count_nodes: bool = False) -> None:
        """where: (k, nodes) on which jobs of each class may run. count_nodes: nodes are a resource, too."""
        nodes, up = snapshot.nodes, where & snapshot.nodes.up
        self._jobs = len(snapshot.jobs)
        self._sets = np.unique(up, axis=0)
        """(sets, nodes)"""
        self._inside = up.astype(np.float64) @ (~self._sets).T == 0
        """(k, sets) whether all nodes of a class are in the set"""
        self._job, self._node = snapshot.runs_on[:, 0], snapshot.runs_on[:, 1]
        on = np.bincount(self._job, minlength=self._jobs)
        self._amounts = snapshot.jobs.demand[self._job] / on[self._job, None]
        self._amounts[:, 0] = snapshot.runs_on[:, 2]
        held = np.zeros_like(nodes.used)
        np.add.at(held, self._node, self._amounts)
        free = nodes.capacity - np.maximum(nodes.used, held)
        if count_nodes:
            idle = np.asarray((nodes.used <= 0).all(axis=1))
            idle[self._node] = False
            free = np.column_stack([free, idle])
            self._amounts = with_shares_of_nodes(self._amounts, self._node, len(idle))
        self.free = (self._sets @ free).ravel()
        """(columns,)"""

    def needed(self, demand: Floats, classes: Ints) -> Floats:
        """(n, columns) of the demand (n, resources) of jobs of these classes (n,)."""
        return np.asarray((self._inside[classes, :, None] * demand[:, None]).reshape(len(demand), len(self.free)))

    def held(self, jobs: Ints) -> Floats:
        """(n, columns) what these rows hold."""
        found = np.zeros((self._jobs, len(self._sets), self._amounts.shape[1]))
        np.add.at(found, self._job, self._sets[:, self._node].T[:, :, None] * self._amounts[:, None])
        return found[jobs].reshape(len(jobs), len(self.free))


def _connected(where: Bools) -> Ints:
    """(k,) a number for each of the sets of nodes (k, nodes), the same for those that are connected by common nodes."""
    common = where.astype(np.float64)
    return np.asarray(connected_components(common @ common.T > 0, directed=False)[1])


def _repeated(count: int, table: NDArray[Number]) -> NDArray[Number]:
    return np.broadcast_to(table, (count, *table.shape))


def _with(table: NDArray[Number], place: int, one: NDArray[Number], axis: int) -> NDArray[Number]:
    """The table with one more entry at that place of an axis."""
    before, after = np.split(table, [place], axis=axis)
    return np.concatenate([before, np.expand_dims(one, axis), after], axis=axis)


def waiting_in_order(jobs: Jobs, held_back: Bools | None = None) -> Ints:
    """The rows of the jobs that wait for room, the first to be started first; of an array that waits one for each
    element. held_back: (n,) further jobs, that wait for a limit."""
    rows = np.flatnonzero(startable(jobs) if held_back is None else startable(jobs) | held_back)
    ids = np.array([jobs.keys[row].job_id for row in rows.tolist()], dtype=np.int64)
    rows = rows[np.lexsort((ids, jobs.submitted[rows], -jobs.priority[rows]))]
    first = np.concatenate([[0], np.cumsum(jobs.elements[rows])])
    elements = np.minimum(jobs.elements[rows], np.maximum(MOST_WAITING - first[:-1], 0))
    return np.repeat(rows, elements)

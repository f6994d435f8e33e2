"""What running rows hold of nodes as the simulated Slurm counts it, and what is free.

Resources are GPUs, CPUs and memory, the GPUs of each type that jobs request, and where jobs hold nodes whole, the node
itself.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.engine.allocations import GpusByNode
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.slurm.held_by_row import HeldByRow, Releasing
from slurmplug.sim.slurm.job_requests import OF_NODE, JobRequests
from slurmplug.sim.slurm.partitions import JobPartitions
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending

_ALL = slice(None)


class NodeUse:
    """The nodes of an engine; `total`: (m, resources) of each. `nothing`: what is held where nothing runs."""

    def __init__(self, engine: Engine, requests: JobRequests, *, release_seconds: float, default_limit: float) -> None:
        """release_seconds: from a job's end until others can have what it held. default_limit: seconds."""
        self._engine, self._requests = engine, requests
        self._release_seconds, self._default_limit = release_seconds, default_limit
        self._releasing: list[Releasing] = []
        capacity = engine.nodes.capacity
        self._of_type: Bools = engine.nodes.gpu_type[:, None] == requests.gpu_types
        """(m, types) whether the GPUs of each node are of each type that jobs request"""
        self.total = self._columns(capacity, np.ones(len(capacity)))
        self._held = HeldByRow(self.total.shape[1])
        self.nothing = self._held.resources([], np.zeros((0, self.total.shape[1])), [])

    def start(self, row: int) -> None:
        """Note what a row that has started holds, and until when by its time limit."""
        engine, holds = self._engine, self._engine.allocations.holds
        limit = float(engine.table.columns["time_limit"][row])
        until = float(engine.started[row]) + (self._default_limit if limit != limit else limit)
        self._held.add(row, [node for node, _ in holds[row]], self._amounts(row, holds[row]), until)

    def release(self, row: int, where: GpusByNode) -> None:
        """Note that a row no longer holds this, which is held back for `release_seconds`."""
        self._held.remove(row)
        if self._release_seconds:
            until = self._engine.now + self._release_seconds
            amounts = zip(where, self._amounts(row, where), strict=True)
            self._releasing += [Releasing(node, amount, until) for (node, _), amount in amounts]

    def clean_up(self) -> None:
        """Give back what is held back no longer."""
        engine = self._engine
        left = [each for each in self._releasing if each.until > engine.now]
        engine.changes += len(left) < len(self._releasing)
        self._releasing = left

    def next_release(self) -> float:
        """When something that is held back is free; infinite where nothing is."""
        return min((each.until for each in self._releasing), default=np.inf)

    def held(self) -> HeldResources:
        """What running rows hold, and what is held back."""
        amounts = np.array([each.amount for each in self._releasing]).reshape(-1, self.total.shape[1])
        nodes = [each.node for each in self._releasing]
        return self._held.resources(nodes, amounts, [each.until for each in self._releasing])

    def room(self, reserved: Mapping[str, Iterable[int]]) -> NodeResources:
        """The nodes. reserved: those of each reservation, by its name."""
        nodes = self._engine.nodes
        longest = max(map(len, reserved), default=1)
        names = np.zeros(len(nodes), dtype=f"U{longest}")
        for name, aside in reserved.items():
            names[list(aside)] = name
        used = nodes.used.copy()
        for each in self._releasing:
            used[each.node] += each.amount[:3]
        free = self._columns(np.maximum(nodes.capacity - used, 0.0), self._of_node_free())
        if self._requests.any_whole:
            free[free[:, -1] <= 0] = 0.0
        up = np.ones(len(nodes), dtype=bool)
        return NodeResources(free=free, total=self.total, reservation=names, up=up)

    def allocated(self, rows: Ints) -> Floats:
        """(n, 3) the GPUs, CPUs and MiB that these running rows (n,) are charged for: of whole nodes, all but MiB."""
        engine, table = self._engine, self._engine.table
        found: Floats = table.per_gpu[rows] * table.units(rows, engine.gpus[rows])[:, None]
        if not self._requests.any_whole:
            return found
        for place in np.flatnonzero(self._requests.whole[table.training[rows]]).tolist():
            on = [node for node, _ in engine.allocations.holds[int(rows[place])]]
            found[place, :2] = engine.nodes.capacity[on, :2].sum(axis=0)
        return found

    def requested(self, pending: Pending, partitions: JobPartitions) -> Floats:
        """(n, resources) what pending jobs (n,) would be charged for: who gets whole nodes, for the smallest of its
        partition at least."""
        found = pending.demand[:, : self._requests.demand.shape[1]] * pending.units[:, None]
        if pending.whole is not None:
            least = np.stack([self.total[each, :2].min(axis=0, initial=np.inf) for each in partitions.nodes])
            whole = pending.whole
            nodes = np.maximum(pending.nodes[whole], 1)[:, None]
            found[whole, :2] = np.maximum(found[whole, :2], nodes * least[partitions.where[whole]])
        return found

    def _amounts(self, row: int, where: GpusByNode) -> Floats:
        """(k, resources) what a row holds of each of its nodes (k,)."""
        nodes, allocations = [node for node, _ in where], self._engine.allocations
        if self._requests.whole[self._engine.table.training[row]]:
            return self.total[nodes]
        amounts = np.array([allocations.demand(row, share) for _, share in where]).reshape(-1, 3)
        return self._columns(amounts, OF_NODE * np.array([max(share, 1) for _, share in where]), nodes)

    def _of_node_free(self) -> Floats:
        """(m,) how much of each node no row holds."""
        free = np.ones(len(self._engine.nodes))
        if self._requests.any_whole:
            held = self.held()
            np.subtract.at(free, held.node, held.amount[:, -1])
        return free

    def _columns(self, amounts: Floats, of_node: Floats, nodes: list[int] | slice = _ALL) -> Floats:
        """(k, resources) of amounts (k, 3) on these nodes (k,), of each of which this is so much (k,)."""
        of_type = self._of_type[nodes] * amounts[:, :1]
        node = [of_node[:, None]] if self._requests.any_whole else []
        return np.concatenate([amounts, of_type, *node], axis=1)

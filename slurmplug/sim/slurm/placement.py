"""On which nodes the simulated Slurm puts a job, as select/cons_tres does."""

from functools import cached_property

import numpy as np

from policies.placement.parts import parts_on
from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.slurm.node_sets import NodeSet, node_set
from slurmplug.sim.slurm.partitions import JobPartitions
from slurmplug.sim.slurm.queue import Demand, NodeResources, Pending


class Placement:
    """The pending jobs, and those m nodes of the cluster that they may have; nodes are numbered among these.

    `total`: (m, resources) all there is of each.
    """

    def __init__(self, pending: Pending, room: NodeResources, nodes: Ints, partitions: JobPartitions) -> None:
        self._pending, self._nodes, self.total = pending, nodes, room.total[nodes]
        self.where: Ints = partitions.where
        self.sets: Bools = partitions.nodes[:, nodes]
        self._units = pending.units
        self._index = np.arange(len(nodes))
        self._inside = [slice(None) if each.all() else np.flatnonzero(each) for each in self.sets]
        """by set, which of the nodes are in it"""
        self._most: dict[tuple[Demand, int], float] = {}
        """by demand and set, how many such parts its largest node could hold if nothing else ran"""

    @cached_property
    def behind_another(self) -> NodeSet:
        """Those whose left neighbour in the cluster is there too."""
        return node_set(np.diff(self._nodes, prepend=self._nodes[:1]) == 1)

    def room_of(self, demand: Demand, free: Floats) -> Floats:
        """(m,) how many parts that need so much each node has room for; infinite for one that needs nothing."""
        return parts_on(free, np.array(demand))

    def spreads(self, row: int) -> bool:
        """Whether the job runs on as few nodes as hold its GPUs together, as no node of its partition alone could."""
        if self._pending.nodes[row] > 1 or not self._pending.gpus[row]:
            return False
        where, demand = int(self.where[row]), tuple(self._pending.demand[row].tolist())
        key = (demand, where)
        if key not in self._most:
            self._most[key] = float(self.room_of(demand, self.total)[self._inside[where]].max(initial=0.0))
        return bool(self._units[row] > self._most[key])

    def place(self, row: int, free: Floats, among: Ints | None = None) -> tuple[Ints, Ints] | None:
        """Nodes, and GPUs on each: as many nodes as it requests, else one where one could hold it, else the emptiest.

        Of single nodes cons_tres takes the first of that row of neighbours, all with room, whose free CPUs are fewest.
        among: only these of the nodes of its partition.
        """
        inside = self._inside[self.where[row]] if among is None else among
        of_all = self._index[inside]
        units, nodes = int(self._units[row]), int(self._pending.nodes[row])
        if not len(of_all):
            return None
        if not (self._pending.demand[row] > 0).any():
            return of_all[:1], np.zeros(1, dtype=np.int64)
        demand: Demand = tuple(self._pending.demand[row].tolist())
        room = self.room_of(demand, free)[inside]
        if nodes > 1:
            fitting = np.flatnonzero(room >= -(-units // nodes))[:nodes]
            if len(fitting) < nodes:
                return None
            return of_all[fitting], np.diff(units * np.arange(nodes + 1) // nodes) * bool(self._pending.gpus[row])
        fitting = np.flatnonzero(room >= units)
        if len(fitting):
            numbers = self._nodes[of_all[fitting]]
            rows = np.flatnonzero(np.concatenate([[True], numbers[1:] > numbers[:-1] + 1]))
            node = of_all[fitting[rows[[np.add.reduceat(free[of_all[fitting], 1], rows).argmin()]]]]
            return node, np.array([units if self._pending.gpus[row] else 0])
        if not self.spreads(row) or room.clip(0).sum() < units:
            return None
        order = np.lexsort((np.arange(len(room)), -room))
        reached = np.cumsum(room[order].clip(0))
        count = int(np.searchsorted(reached, units)) + 1
        shares = room[order[:count]].astype(np.int64)
        shares[-1] -= int(reached[count - 1]) - units
        by_node = np.argsort(order[:count])
        return of_all[order[:count][by_node]], shares[by_node]

    def less(self, free: Floats, row: int, nodes: Ints, shares: Ints) -> Floats:
        """What is free (m, resources) beside the job on these nodes (k,) with these shares (k,)."""
        left = free.copy()
        if self._pending.whole is not None and self._pending.whole[row]:
            left[nodes] = 0.0
            return left
        units = shares if self._pending.gpus[row] else np.ones(len(nodes))
        left[nodes] -= self._pending.demand[row] * np.asarray(units)[:, None]
        return left

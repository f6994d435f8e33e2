"""What the jobs of a workload request of Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.sim.engine.workload_table import WorkloadTable, units

OF_NODE = 2.0**-12
"""of a node for each GPU, or node, of a job that shares nodes: too little to matter, but a node with it is not whole"""


def nodes_to_give(gpus: Ints, nodes: Ints, most_gpus: float) -> Ints:
    """The number of nodes of each job (n,), as `queue.Pending.nodes`: as few as can hold it for one that had more
    GPUs on each than the `most_gpus` of a node, or fewer GPUs than nodes."""
    return np.asarray(np.where((gpus > nodes * most_gpus) | ((gpus > 0) & (gpus < nodes)), 0, nodes))


@dataclass(frozen=True, eq=False)
class JobRequests:
    """Columns (trainings,) as in `queue.Pending`; a training of several parts requests what they do together.

    `gpu_types`: those that any requests; each is a further resource of `demand` and of the nodes, beside GPUs, CPUs and
    memory. `whole`: who gets whole nodes; if `any_whole`, the node itself is the last resource, which `demand` lacks.
    `most_gpus`: of a node. `columns`: QOS, partition, user and account.
    """

    gpus: Ints
    nodes: Ints
    demand: Floats
    time_limit: Floats
    gpu_types: Texts
    whole: Bools
    any_whole: bool
    most_gpus: float
    columns: Mapping[str, Texts]

    @classmethod
    def of(cls, table: WorkloadTable, most_gpus: float) -> "JobRequests":
        """most_gpus: of a node."""
        first = table.first_row[:-1]
        gpus, rows = table.requested, np.arange(len(table.nodes))
        demand = table.per_gpu * table.units(rows, gpus)[:, None]
        if len(first):
            gpus, demand = np.add.reduceat(gpus, first), np.add.reduceat(demand, first)
        nodes = nodes_to_give(gpus, table.nodes[first], most_gpus)
        nodes = np.where(table.exclusive & (nodes < 1), _fewest(gpus, most_gpus), nodes)
        types = table.columns["gpu_type"]
        gpu_types = np.unique(types[types != ""])
        return cls(
            gpus=gpus,
            nodes=nodes,
            demand=np.concatenate([demand / units(gpus, nodes)[:, None], types[first][:, None] == gpu_types], axis=1),
            time_limit=table.columns["time_limit"][first],
            gpu_types=gpu_types,
            whole=table.exclusive,
            any_whole=bool(table.exclusive.any()),
            most_gpus=most_gpus,
            columns={name: table.columns[name][first] for name in ("qos", "partition", "user", "account")},
        )

    def nodes_of(self, rows: Ints, gpus: Ints) -> Ints:
        """The number of nodes of these trainings (n,) with so many GPUs (n,)."""
        other = np.where(self.whole[rows], _fewest(gpus, self.most_gpus), 0) if self.any_whole else 0
        return np.asarray(np.where(gpus == self.gpus[rows], self.nodes[rows], other))

    def demand_of(self, rows: Ints, gpus: Ints, nodes: Ints) -> Floats:
        """(n, resources) of each unit of these trainings (n,) with so many GPUs and nodes (n,)."""
        if not self.any_whole:
            return self.demand[rows]
        on_each = -(-units(gpus, nodes) // np.maximum(nodes, 1))
        of_node = np.where(self.whole[rows], 1.0 / np.maximum(on_each, 1), OF_NODE)
        return np.column_stack([self.demand[rows], of_node])


def _fewest(gpus: Ints, most_gpus: float) -> Ints:
    """(n,) nodes, of so many GPUs each, that hold so many (n,)."""
    return np.ceil(gpus / max(most_gpus, 1.0)).clip(1).astype(np.int64)

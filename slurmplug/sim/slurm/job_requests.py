"""What the jobs of a workload request of Slurm."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, Ints, Texts
from slurmplug.sim.engine.workload_table import WorkloadTable, units


def nodes_to_give(gpus: Ints, nodes: Ints, most_gpus: float) -> Ints:
    """The number of nodes of each job (n,), as `queue.Pending.nodes`: as few as can hold it for one that had more
    GPUs on each than the `most_gpus` of a node, or fewer GPUs than nodes."""
    return np.asarray(np.where((gpus > nodes * most_gpus) | ((gpus > 0) & (gpus < nodes)), 0, nodes))


@dataclass(frozen=True, eq=False)
class JobRequests:
    """Columns (trainings,) as in `queue.Pending`; a training of several parts requests what they do together.

    `gpu_types`: those that any requests; each is a further resource of `demand` and of the nodes, beside GPUs, CPUs and
    memory. `columns`: QOS and partition.
    """

    gpus: Ints
    nodes: Ints
    demand: Floats
    time_limit: Floats
    gpu_types: Texts
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
        types = table.columns["gpu_type"]
        gpu_types = np.unique(types[types != ""])
        return cls(
            gpus=gpus,
            nodes=nodes,
            demand=np.concatenate([demand / units(gpus, nodes)[:, None], types[first][:, None] == gpu_types], axis=1),
            time_limit=table.columns["time_limit"][first],
            gpu_types=gpu_types,
            columns={name: table.columns[name][first] for name in ("qos", "partition")},
        )

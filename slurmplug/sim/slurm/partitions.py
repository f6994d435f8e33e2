"""The partitions of a simulated Slurm: on which nodes their jobs run, and whose jobs it considers first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.placement.parts import parts_on
from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.workload_table import units
from slurmplug.sim.slurm.job_requests import nodes_to_give


@dataclass(frozen=True)
class Partition:
    """`nodes`: the numbers of its nodes. `tier`: PriorityTier; jobs of a higher one are considered first.

    `exclusive`: OverSubscribe=EXCLUSIVE; jobs get whole nodes.
    """

    nodes: frozenset[int]
    tier: int = 1
    exclusive: bool = False


@dataclass(frozen=True, eq=False)
class JobPartitions:
    """The partitions of n jobs.

    Partitions with the same nodes are one set of nodes, and the first set has all. `where` (n,): the set of each job;
    `nodes` (sets, m): which nodes a set has; `tier` (n,): PriorityTier. `strays` (n,): whether a job may run on any
    node, as there is no partition with its name that could hold it.
    """

    where: Ints
    nodes: Bools
    tier: Ints
    strays: Bools

    def of(self, rows: Ints) -> "JobPartitions":
        """Those of these jobs."""
        return JobPartitions(self.where[rows], self.nodes, self.tier[rows], self.strays[rows])


def one_for_all(jobs: int, nodes: int) -> JobPartitions:
    """So many jobs, each of which may run on any of so many nodes."""
    zeros = np.zeros(jobs, dtype=np.int64)
    return JobPartitions(zeros, np.ones((1, nodes), dtype=bool), zeros, np.zeros(jobs, dtype=bool))


def job_partitions(
    partitions: Mapping[str, Partition], names: Texts, *, gpus: Ints, nodes: Ints, demand: Floats, total: Floats
) -> JobPartitions:
    """The partitions of jobs by their names (n,).

    gpus, nodes (n,), demand (n, resources): as of `queue.Pending`. total: (m, resources) all there is of each node.
    """
    if not partitions:
        return one_for_all(len(names), len(total))
    sets: list[Bools] = [np.ones(len(total), dtype=bool)]
    where, tier, strays = (np.zeros(len(names), dtype=kind) for kind in (np.int64, np.int64, bool))
    listed, of = np.unique(names, return_inverse=True)
    for number, name in enumerate(listed.tolist()):
        jobs = np.flatnonzero(of == number)
        partition = partitions.get(name)
        tier[jobs] = partition.tier if partition else Partition.tier
        inside = np.zeros(len(total), dtype=bool)
        inside[list(partition.nodes if partition else ())] = True
        held = _holds(total[inside], gpus[jobs], nodes[jobs], demand[jobs])
        strays[jobs[~held]] = True
        where[jobs[held]] = _number(sets, inside)
    return JobPartitions(where, np.stack(sets), tier, strays)


def _number(sets: list[Bools], nodes: Bools) -> int:
    """That of the set with these nodes, which is added where there is none."""
    for number, each in enumerate(sets):
        if np.array_equal(each, nodes):
            return number
    sets.append(nodes)
    return len(sets) - 1


def _holds(total: Floats, gpus: Ints, nodes: Ints, demand: Floats) -> Bools:
    """(n,) whether these nodes could hold each job, if nothing else ran."""
    kinds, counts = np.unique(total, axis=0, return_counts=True)
    shared = (gpus > 0) & (nodes <= 1)
    on_each = np.ceil(gpus / np.maximum(nodes, 1)).clip(1)
    found = np.zeros(len(gpus))
    for kind, count in zip(kinds, counts.tolist(), strict=True):
        room = parts_on(kind, demand)
        found += np.where(shared, room, room >= on_each) * count
    return np.asarray(found >= np.where(shared, gpus, np.maximum(nodes, 1)))


def strays(jobs: Sequence[SimJob], nodes: SimNodes, partitions: Mapping[str, Partition]) -> dict[str, int]:
    """How many of these jobs may run on any node, by the name of their partition."""
    if not partitions or not jobs:
        return {}
    types = sorted({*nodes.gpu_type} - {""})
    kind = np.array(nodes.gpu_type or ("",) * len(nodes), dtype=np.str_)[:, None] == types
    total = np.column_stack([nodes.gpus, nodes.cpus, nodes.memory])
    gpus = np.array([job.gpus for job in jobs], dtype=np.int64)
    of_nodes = nodes_to_give(gpus, np.array([job.nodes for job in jobs], dtype=np.int64), max(nodes.gpus))
    demand = np.array([(job.gpus, job.cpus, job.memory) for job in jobs]) / units(gpus, of_nodes)[:, None]
    wants = np.array([job.gpu_type for job in jobs], dtype=np.str_)[:, None] == types
    names = np.array([job.partition for job in jobs], dtype=np.str_)
    total, demand = np.hstack([total, kind * total[:, :1]]), np.hstack([demand, wants])
    made = job_partitions(partitions, names, gpus=gpus, nodes=of_nodes, demand=demand, total=total)
    found, counts = np.unique(names[made.strays], return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))

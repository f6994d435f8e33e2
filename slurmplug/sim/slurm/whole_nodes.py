"""Jobs that Slurm gives whole nodes: of partitions with OverSubscribe=EXCLUSIVE, with --exclusive, by select/linear.

What such a job requests decides where it may run and its priority; limits and fairshare count all GPUs and CPUs of its
nodes (node_scheduler.c, `_resolve_shared_status`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.slurm.settings import LauncherSettings


def with_whole_nodes(jobs: Sequence[SimJob], nodes: SimNodes, settings: LauncherSettings) -> Iterator[SimJob]:
    """The jobs, `exclusive` where Slurm gives them whole nodes, and then with the CPUs that they request.

    A job that was given all CPUs of its nodes and requested fewer had --exclusive. One of several parts shares nodes.
    """
    kinds = np.unique(nodes.cpus)
    for job in jobs:
        partition = settings.partitions.get(job.partition)
        more = 0 < job.cpus_requested < job.cpus
        given = more and bool((kinds * max(job.nodes, 1) == job.cpus).any())
        whole = job.exclusive or settings.whole_nodes or given or (partition is not None and partition.exclusive)
        if job.parts or not whole:
            yield job
        else:
            yield replace(job, exclusive=True, cpus=job.cpus_requested if more else job.cpus)

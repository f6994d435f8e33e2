"""Directives and learning curves assumed for a share of the jobs that have none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.directives import with_directives

OURS = "curves of plausible shapes that slurmplug draws, not measured"
ITERATIONS = 60
_STREAM = 0x73686172


def with_assumed_directives(
    workload: Workload, share: float, seed: int, curves: Sequence[Floats] = (), curves_of: str = OURS
) -> Workload:
    """The workload with directives and curves for that share of its jobs on GPUs that are not managed.

    Each such job trains along one of the curves (n,) of accuracies, drawn by the seed, for as long as it ran, and as
    fast on any number of GPUs. Its directives are drawn as MLFS' users give them (`with_directives`), and its time
    limit is its own. A larger share has the jobs of a smaller one.
    """
    draws = np.random.default_rng([_STREAM, seed]).random((len(workload.jobs), 2))
    chosen = [
        not job.managed and job.gpus > 0 and bool(draw < share)
        for job, draw in zip(workload.jobs, draws[:, 0], strict=True)
    ]
    library = [(1.0 - accuracies, accuracies) for accuracies in curves] or synthetic.library(ITERATIONS)
    jobs = [
        _trains(job, *library[int(draw * len(library))]) if takes else job
        for job, takes, draw in zip(workload.jobs, chosen, draws[:, 1], strict=True)
    ]
    made = with_directives(jobs, seed, gpus_a_node=max(workload.gpus_a_node, 1))
    assumed = (
        f"{sum(chosen)} jobs have directives, drawn as those of MLFS (deadline, urgency, optstop with a target at 99%"
        f" of the best of its curve), and train along {curves_of}",
    )
    return replace(
        workload,
        jobs=tuple(new if takes else old for new, takes, old in zip(made, chosen, workload.jobs, strict=True)),
        assumed=(*workload.assumed, *assumed),
    )


def _trains(job: SimJob, losses: Floats, accuracies: Floats) -> SimJob:
    """The job with so many iterations in the same time."""
    count = len(accuracies)
    return replace(
        job,
        managed=True,
        iterations=count,
        speed=Speed(job.speed.gpus, job.speed.nodes, job.speed.rate * count / job.iterations),
        curve_at=np.arange(1.0, count + 1),
        losses=losses,
        accuracies=accuracies,
    )

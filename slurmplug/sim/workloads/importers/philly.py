"""The Philly trace of Microsoft (Jeon et al., USENIX ATC 2019): `num_gpus,submit_s,duration_s` and perhaps `job_id,vc`.

It has neither model nor accuracy. As MLFS does (section 4.1), each job is taken for one of a few models; its run time
on its own GPUs is the recorded one, its curve one of a library of drawn ones.
"""

from functools import lru_cache

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated

NODES, GPUS_A_NODE = 309, 8
"""2,472 GPUs"""
ITERATIONS = (20, 40, 60)
KINDS = ("alexnet", "resnet50", "lstm", "mlp", "vgg16", "transformer")
_STREAM = 0x7068696C


def workload(request: WorkloadRequest) -> Workload:
    """Jobs that took no time are left out.

    Raises:
        WorkloadError
    """
    rng = np.random.default_rng([_STREAM, request.seed])

    def read(row: Row) -> SimJob | None:
        gpus, seconds = row.integer("num_gpus", least=1, most=10_000), row.number("duration_s", most=1e10)
        draw = rng.random(3)
        return None if seconds == 0 else _job(row, gpus, seconds, KINDS[int(draw[0] * len(KINDS))], draw[1:])

    rows = comma_separated(request.path, ("num_gpus", "submit_s", "duration_s"))
    jobs, skipped = collect(rows, read, skip_bad=request.skip_bad)
    jobs.sort(key=lambda job: job.submit)
    jobs_with_directives = with_directives(jobs, request.seed, gpus_a_node=GPUS_A_NODE)
    return Workload(str(request.path), jobs_with_directives, NODES, GPUS_A_NODE, skipped)


def _job(row: Row, gpus: int, seconds: float, kind: str, draw: Floats) -> SimJob:
    iterations = ITERATIONS[int(draw[0] * len(ITERATIONS))]
    curves = synthetic.library(iterations)
    losses, accuracies = curves[int(draw[1] * len(curves))]
    group = row.text("vc", "vc")
    return SimJob(
        name=row.text("job_id", f"line{row.line}"),
        submit=row.number("submit_s"),
        gpus=gpus,
        iterations=iterations,
        speed=synthetic.lasting(kind, gpus, iterations, seconds, GPUS_A_NODE),
        user=group,
        account=group,
        kind=kind,
        curve_at=_every_iteration(iterations),
        losses=losses,
        accuracies=accuracies,
        params=synthetic.MODELS[kind].params,
    )


@lru_cache(maxsize=8)
def _every_iteration(iterations: int) -> Floats:
    return synthetic.sampled(iterations)

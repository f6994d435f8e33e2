"""The Philly trace of Microsoft (Jeon et al., USENIX ATC 2019): `num_gpus,submit_s,duration_s` and perhaps `job_id,vc`.

It has neither model nor accuracy. As MLFS does (section 4.1), each job is taken for one of a few models; its run time
on its own GPUs is the recorded one, its curve one of a library of drawn ones.

With `elastic=on` the models are those measured for Pollux, so that a job can train on other numbers of GPUs, as fast as
measured relative to its own. By GPU hours it is a small, medium, large or very large one (Pollux, OSDI 2021, table 1).
(choices) Its batch is the largest measured one that its GPUs hold at once; nodes have as many GPUs as those of the
profiles, and the cluster as many as Philly.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.importers import measured
from slurmplug.sim.workloads.importers.trainings import Trainings
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, WorkloadError, collect, comma_separated

NODES, GPUS_A_NODE = 309, 8
"""2,472 GPUs"""
ITERATIONS = (20, 40, 60)
KINDS = ("alexnet", "resnet50", "lstm", "mlp", "vgg16", "transformer")
MEASURED = (
    (("cifar10", "ncf"), 1.0), (("bert", "deepspeech2"), 10.0), (("yolov3",), 100.0), (("imagenet",), math.inf),
)  # fmt: skip
"""measured models, and below how many GPU hours a job is taken for one of them"""
_STREAM = 0x7068696C


def workload(request: WorkloadRequest) -> Workload:
    """`?elastic=on` gives elastic ranges; `&gpu=` is the profiles' type of GPU. Jobs that took no time are left out.

    Raises:
        WorkloadError
    """
    rng = np.random.default_rng([_STREAM, request.seed])
    make, nodes, a_node = _maker(request)

    def read(row: Row) -> SimJob | None:
        gpus, seconds = row.integer("num_gpus", least=1, most=10_000), row.number("duration_s", most=1e10)
        draw = rng.random(3)
        if seconds == 0:
            return None
        group = row.text("vc", "vc")
        name, submit = row.text("job_id", f"line{row.line}"), row.number("submit_s")
        return SimJob(name=name, submit=submit, user=group, account=group, **make(gpus, seconds, draw))

    rows = comma_separated(request.path, ("num_gpus", "submit_s", "duration_s"))
    jobs, skipped = collect(rows, read, skip_bad=request.skip_bad)
    jobs.sort(key=lambda job: job.submit)
    jobs_with_directives = with_directives(jobs, request.seed, gpus_a_node=a_node)
    return Workload(str(request.path), jobs_with_directives, nodes, a_node, skipped)


Maker: TypeAlias = Callable[[int, float, Floats], dict[str, Any]]
"""The fields of a `SimJob` that say how it trains, by its GPUs, its seconds on them, and three draws from [0, 1)."""


def _maker(request: WorkloadRequest) -> tuple[Maker, int, int]:
    """What makes jobs, and the nodes and GPUs of each.

    Raises:
        WorkloadError
    """
    if request.options.text("elastic", "off", ("off", "on")) == "off":
        return _drawn, NODES, GPUS_A_NODE
    profiles = measured.folder(request.data, request.path)
    trainings = Trainings(measured.models(profiles, request.options.text("gpu", "aws")))
    return partial(_measured, trainings), NODES * GPUS_A_NODE // trainings.gpus_a_node, trainings.gpus_a_node


def _drawn(gpus: int, seconds: float, draw: Floats) -> dict[str, Any]:
    kind, iterations = KINDS[int(draw[0] * len(KINDS))], ITERATIONS[int(draw[1] * len(ITERATIONS))]
    curves = synthetic.library(iterations)
    losses, accuracies = curves[int(draw[2] * len(curves))]
    return {
        "gpus": gpus,
        "iterations": iterations,
        "speed": synthetic.lasting(kind, gpus, iterations, seconds, GPUS_A_NODE),
        "kind": kind,
        "curve_at": _every_iteration(iterations),
        "losses": losses,
        "accuracies": accuracies,
        "params": synthetic.MODELS[kind].params,
    }


def _measured(trainings: Trainings, gpus: int, seconds: float, draw: Floats) -> dict[str, Any]:
    """Raises WorkloadError."""
    sized = next(names for names, hours in MEASURED if gpus * seconds < 3600 * hours)
    alike = [name for name in sized if name in trainings.models]
    if not alike:
        raise WorkloadError(
            f"the profiles of this type of GPU have none of {', '.join(sized)}: name another with ?gpu="
        )
    name = alike[int(draw[0] * len(alike))]
    return trainings.of(name, trainings.filling(name, gpus), gpus).fields_lasting(gpus, seconds)


@lru_cache(maxsize=8)
def _every_iteration(iterations: int) -> Floats:
    return synthetic.sampled(iterations)

"""Tiresias' traces (Gu et al., NSDI 2019): `60_job.csv`, and the GPU times of the YARN logs.

`num_gpu,submit_time,iterations,model_name,duration`: the model is known, its curve is not and is drawn. A table of
`gpu_time_s` alone has no arrivals: each is taken for a job of one GPU, one every `?interval=` seconds in the mean.
"""

import numpy as np

from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated, open_lines

NODES, GPUS_A_NODE = 15, 4
"""the 60 GPUs of its testbed"""
INTERVAL = 30.0
_STREAM = 0x746972
_YARN_ITERATIONS = 40
_MODEL_OF_PREFIX = (
    ("vgg", "vgg16"), ("resnet", "resnet50"), ("inception", "inception4"), ("googlenet", "inception4"),
    ("alexnet", "alexnet"), ("lstm", "lstm"), ("bert", "transformer"), ("transformer", "transformer"),
)  # fmt: skip


def workload(request: WorkloadRequest) -> Workload:
    """The jobs of either kind of trace, by its heading.

    Raises:
        WorkloadError
    """
    rng = np.random.default_rng([_STREAM, request.seed])
    interval = request.options.number("interval", INTERVAL, least=1e-3)
    if _has_only_times(request):
        rows = comma_separated(request.path, ("gpu_time_s",))
        times, skipped = collect(rows, _gpu_time, skip_bad=request.skip_bad)
        # The file is sorted by GPU time, which no arrivals are.
        mixed = rng.permutation(np.array(times))
        arrivals = np.cumsum(rng.exponential(interval, len(mixed)))
        jobs = [
            _job(
                rng,
                name=f"job{number}",
                submit=float(at),
                gpus=1,
                iterations=_YARN_ITERATIONS,
                kind="resnet50",
                seconds=float(seconds),
            )
            for number, (at, seconds) in enumerate(zip(arrivals, mixed, strict=True))
        ]
    else:
        rows = comma_separated(request.path, ("num_gpu", "submit_time", "duration"))
        jobs, skipped = collect(rows, lambda row: _recorded(row, rng), skip_bad=request.skip_bad)
        jobs.sort(key=lambda job: job.submit)
    jobs_with_directives = with_directives(jobs, request.seed, gpus_a_node=GPUS_A_NODE)
    return Workload(str(request.path), jobs_with_directives, NODES, GPUS_A_NODE, skipped)


def _has_only_times(request: WorkloadRequest) -> bool:
    with open_lines(request.path) as lines:
        return next(lines, "").strip() == "gpu_time_s"


def _gpu_time(row: Row) -> float | None:
    return row.number("gpu_time_s", most=1e10) or None


def _recorded(row: Row, rng: np.random.Generator) -> SimJob | None:
    seconds, model = row.number("duration", most=1e10), row.text("model_name", "resnet50").lower()
    kind = next((like for start, like in _MODEL_OF_PREFIX if model.startswith(start)), "resnet50")
    made = _job(
        rng,
        name=f"{model}-{row.text('job_id', str(row.line))}",
        submit=row.number("submit_time"),
        gpus=row.integer("num_gpu", least=1, most=10_000),
        iterations=row.integer("iterations", _YARN_ITERATIONS, least=1, most=10**9),
        kind=kind,
        seconds=max(seconds, 1e-3),
    )
    return made if seconds else None


def _job(
    rng: np.random.Generator, *, name: str, submit: float, gpus: int, iterations: int, kind: str, seconds: float
) -> SimJob:
    at = synthetic.sampled(iterations)
    losses, accuracies = synthetic.learning(rng, len(at))
    return SimJob(
        name=name,
        submit=submit,
        gpus=gpus,
        iterations=iterations,
        speed=synthetic.lasting(kind, gpus, iterations, seconds, GPUS_A_NODE),
        kind=kind,
        curve_at=at,
        losses=losses,
        accuracies=accuracies,
        params=synthetic.MODELS[kind].params,
    )

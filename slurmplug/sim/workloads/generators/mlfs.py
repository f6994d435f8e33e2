"""The workload of MLFS (Wang, Liu, Shen, CoNEXT 2020, section 4.1): 620 x jobs in one week on 80 GPUs.

From the paper: GPUs from {1, 2, 4, 8, 16, 32} and as many partitions of the model, one of five algorithms each, SVM not
partitioned, AlexNet and MLP in sequence, LSTM and ResNet each layer in parts; volumes of communication from [50, 100]
MB; urgency from 1 to 10; deadline max(1.1 t_e, U[0.5, 24] h); OptStop, with the required accuracy as a downgrade.

(choices) The paper takes arrivals and accuracies from one week of the Philly trace that it does not name. Here arrivals
follow the hours of a week, run times are log-normal with a median of 30 minutes and a mean of 80, which loads 80 GPUs
by about two thirds at x = 1, and curves and speeds are drawn (`synthetic`). An iteration communicates ten times.
A GPU comes with up to 8 CPUs and 30 GB.
"""

import math

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import Part, SimJob, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.load import MOST_JOBS, WorkloadRequest

JOBS = 620
WEEK = 7 * 86_400.0
NODES, GPUS_A_NODE = 20, 4
GPUS = (1, 2, 4, 8, 16, 32)
ALGORITHMS = ("alexnet", "resnet50", "mlp", "lstm", "svm")
MEDIAN, SIGMA = 1_800.0, 1.4
MAX_SECONDS = 3 * 86_400.0
_COMMUNICATIONS = 10
_CPUS_A_GPU = 8
_MEMORY_A_GPU = 30_000.0
"""MiB"""


def workload(request: WorkloadRequest) -> Workload:
    """`?x=` scales the number of jobs (1/4, 1/2, 1, 2, 3); `&partitions=on` makes each partition a Slurm job;
    `&shapes=drawn` draws each algorithm's speeds by the seed.

    Raises:
        WorkloadError
    """
    x = request.options.number("x", 1.0, least=0.001, most=MOST_JOBS / JOBS)
    partitioned = request.options.text("partitions", "off", ("off", "on")) == "on"
    elastic = request.options.text("elastic", "on", ("off", "on")) == "on"
    drawn_by = synthetic.shapes_drawn_by(request)
    rng = np.random.default_rng(request.seed)
    count = max(round(JOBS * x), request.jobs or 1)
    arrivals = week_arrivals(rng, count, WEEK * max(count / (JOBS * x), 1))
    jobs = [
        _job(rng, number, at, partitioned=partitioned, elastic=elastic, drawn_by=drawn_by)
        for number, at in enumerate(arrivals)
    ]
    return Workload(
        f"gen:mlfs?x={x:g}", with_directives(jobs, request.seed, gpus_a_node=GPUS_A_NODE), NODES, GPUS_A_NODE
    )


def week_arrivals(rng: np.random.Generator, count: int, span: float) -> list[float]:
    """Arrival times in `span` seconds from 0, in order, as people submit: most in the afternoon, few at weekends."""
    grid = np.arange(0.0, span + 600, 600.0)
    hour, day = grid / 3600 % 24, grid // 86_400 % 7
    rate = (1 + 0.7 * np.cos((hour - 15) * math.pi / 12)) * np.where(day < 5, 1.0, 0.5)
    passed = np.concatenate([[0.0], np.cumsum(rate[:-1])])
    times = np.interp(np.sort(rng.random(count)) * passed[-1], passed, grid)
    return [float(time) for time in times]


def _job(
    rng: np.random.Generator, number: int, at: float, *, partitioned: bool, elastic: bool, drawn_by: int | None
) -> SimJob:
    gpus = int(rng.choice(GPUS))
    algorithm = str(rng.choice(ALGORITHMS))
    takes = float(np.clip(MEDIAN * math.exp(SIGMA * rng.standard_normal()), 60.0, MAX_SECONDS))
    iterations = int(rng.integers(20, 121))
    sampled = synthetic.sampled(iterations)
    losses, accuracies = synthetic.learning(rng, len(sampled))
    volumes = rng.uniform(50e6, 100e6, 2)
    cpus, memory = int(rng.integers(2, _CPUS_A_GPU + 1)), float(rng.uniform(0.1, 1.0)) * _MEMORY_A_GPU
    parts = _parts(rng, algorithm, gpus, cpus, memory)
    return SimJob(
        name=f"{algorithm}-{number}",
        submit=at,
        gpus=gpus,
        iterations=iterations,
        speed=synthetic.lasting(algorithm, gpus, iterations, takes, GPUS_A_NODE, drawn_by=drawn_by),
        kind=algorithm,
        gpus_min=1 if elastic else 0,
        gpus_max=min(2 * gpus, GPUS[-1]) if elastic else 0,
        cpus=gpus * cpus,
        memory=gpus * memory,
        curve_at=sampled,
        losses=losses,
        accuracies=accuracies,
        params=synthetic.MODELS[algorithm].params,
        traffic=float(volumes.sum()) * gpus * _COMMUNICATIONS,
        parts=parts if partitioned else (),
    )


def _parts(rng: np.random.Generator, algorithm: str, count: int, cpus: int, memory: float) -> tuple[Part, ...]:
    """A partition on each GPU, with its share of the model's parameters."""
    if algorithm == "svm" or count == 1:
        return ()
    weights: Floats = rng.gamma(2.0, size=count)
    shares = weights / weights.sum()
    width = 1 if algorithm in {"alexnet", "mlp"} else max(count // 4, 2)
    return tuple(
        Part(1, cpus, memory, "worker", float(shares[row]), _parents(row // width, width)) for row in range(count)
    )


def _parents(layer: int, width: int) -> tuple[int, ...]:
    """Every partition of the layer before."""
    return tuple(range((layer - 1) * width, layer * width)) if layer else ()

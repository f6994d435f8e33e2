"""The workload of ML-SJF (Sherman et al., section 5): Flask, MapReduce and scikit-learn jobs, all there at once.

From the paper: equal numbers of the three types, 600 in all, on one agent of four vCPUs and 15 GB; features drawn
uniformly; Flask sorts (Timsort, bubble, insertion) or counts words in a part of a text, MapReduce takes one of 30
inputs with its mappers and reducers, scikit-learn a data set by its rows, dimensions and classes. Run times of the
three types lie in three ranges, those of MapReduce the highest, and depend on the features, sorts quadratically.

(choices) A vCPU is a GPU here, and a job takes one. Its features are what its user declares of its work, and its kind
is its type. MapReduce jobs get in each other's way by their memory: of 15 GB (`--cluster 1x4x4x15000`) two or three
have enough, and beside them only others can run. It is the memory of their containers, which whoever submits them
requests, not of their input: were it by the input, a random order would start short ones in the gaps that long ones
leave, and 11% instead of 18% would be gained on it (three seeds, 300 jobs started as they fit). Bogosort, which need
not end, is left out.
"""

import math
from collections.abc import Callable

import numpy as np

from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads.load import WorkloadRequest

JOBS = 600
TYPES = ("flask", "mapreduce", "sklearn")
TIME_LIMIT = 300.0
"""ten times what the longest take"""
_NOISE = 0.08
_SORTS = ("timsort", "bubble", "insertion", "words")


def workload(request: WorkloadRequest) -> Workload:
    """`?type=` mixed, flask, mapreduce or sklearn (Table 2).

    Raises:
        WorkloadError
    """
    kind = request.options.text("type", "mixed", ("mixed", *TYPES))
    rng = np.random.default_rng(request.seed)
    count = request.jobs or JOBS
    kinds = rng.permutation([TYPES[number % 3] if kind == "mixed" else kind for number in range(count)])
    jobs = tuple(_job(rng, number, str(each)) for number, each in enumerate(kinds))
    return Workload(f"gen:ml-sjf?type={kind}", jobs, 1, 4)


def _job(rng: np.random.Generator, number: int, kind: str) -> SimJob:
    what, seconds, memory, work = _MAKERS[kind](rng)
    takes = max(seconds * math.exp(_NOISE * rng.standard_normal()), 0.05)
    return SimJob(
        name=f"{kind}-{what}-{number}",
        submit=0.0,
        gpus=1,
        iterations=1,
        speed=Speed(np.array([1]), np.array([1]), np.array([1 / takes])),
        user=f"user{number % 4}",
        kind=kind,
        cpus=1,
        memory=memory,
        time_limit=TIME_LIMIT,
        work=work,
        restart=0.0,
    )


def _flask(rng: np.random.Generator) -> tuple[str, float, float, str]:
    """What it does, its seconds, its MiB: that of the text and what the server needs; and its features."""
    what, size = str(rng.choice(_SORTS)), rng.uniform(0.05, 1.0)
    seconds = {"bubble": 14 * size**2, "insertion": 9 * size**2, "timsort": 0.8 * size, "words": 0.4 * size}[what]
    return what, 0.3 + float(seconds), 100 + 400 * float(size), f"operation:{what},size:{size:.6g}"


def _mapreduce(rng: np.random.Generator) -> tuple[str, float, float, str]:
    size, mappers, reducers = float(rng.integers(1, 31)), int(rng.integers(1, 9)), int(rng.integers(1, 5))
    seconds = 4 + 0.9 * size / min(mappers, 4) ** 0.5 + 0.4 * reducers + 0.2 * mappers
    work = f"mappers:{mappers},reducers:{reducers},size:{size:g}"
    return f"{mappers}x{reducers}x{size:g}", seconds, 4000 + 100 * float(rng.integers(1, 31)), work


def _sklearn(rng: np.random.Generator) -> tuple[str, float, float, str]:
    rows, dimensions, classes = float(rng.uniform(150, 2000)), float(rng.integers(4, 65)), int(rng.integers(2, 11))
    seconds = 0.5 + 4e-5 * rows * dimensions + 0.1 * classes
    work = f"classes:{classes},dimensions:{dimensions:g},rows:{rows:.6g}"
    return f"{classes}classes", seconds, 200 + 0.02 * rows * dimensions, work


_MAKERS: dict[str, Callable[[np.random.Generator], tuple[str, float, float, str]]] = {
    "flask": _flask, "mapreduce": _mapreduce, "sklearn": _sklearn,
}  # fmt: skip

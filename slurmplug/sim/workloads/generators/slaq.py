"""The workload of SLAQ (Zhang et al., SoCC 2017, section 6): 160 jobs of nine algorithms that share 640 cores.

From the paper: 20 workers of 32 cores, a core being a GPU here; Poisson arrivals, one each 15 s in the mean (10 s and
4 s in 6.2.2); a job has converged by its 100th iteration; the loss of an iteration does not depend on what the job
holds, and an iteration takes c S / N; a new allocation costs nothing. Each job has a model and a data set of its own,
so each is a kind of its own: what is learnt of one's speed says nothing of another's.

The paper does not state how large its jobs are. It states how long they take under the fair scheduler at 15 s (6.2.1):
71 s to 90% of the loss reduction in the mean, 98 s to 95%. That fixes the mean: where 160 such jobs share 640 cores
evenly (processor sharing, seeds 0 to 7), they take 65 (92) s with 10,400 core seconds, 81 (115) s with 11,000 and
38 (55) s, over two seeds, with the 9,600 that would load the cluster just fully. So it is 10,600, a load of 1.1 while
jobs arrive, and about 18 are active. Its 6.2.2 cannot be the same jobs: there the gain is 23% at 10 s, a "light" load,
and here 45% at the lighter 15 s.

(choices) Sizes are log-normal. Losses are mixtures of the two classes of convergence that the paper names, with noise,
so that neither of its formulas fits exactly; the speed of each number of cores is a few per cent off c S / N, and a job
uses 128 at most.
"""

import math

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads.load import WorkloadRequest

JOBS, ITERATIONS = 160, 100
NODES, CORES_A_NODE = 20, 32
ARRIVAL_SECONDS = 15.0
WORK, SIGMA = 10_600.0, 0.7
"""core seconds in the mean"""
REQUESTED, MOST = 32, 128
USERS = 8
_CORES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_DEVIATION = 0.03

SUBLINEAR, LINEAR, BOTH = (0.85, 1.0), (0.0, 0.15), (0.3, 0.7)
ALGORITHMS = {
    "svm": SUBLINEAR, "svm-poly": SUBLINEAR, "logreg": SUBLINEAR, "linreg": BOTH, "mlpc": BOTH, "gbt": LINEAR,
    "gbt-reg": LINEAR, "kmeans": LINEAR, "lda": BOTH,
}  # fmt: skip
"""the share of its loss reduction that falls sublinearly, from and to"""


def workload(request: WorkloadRequest) -> Workload:
    """`?arrival=` seconds between jobs in the mean.

    Raises:
        WorkloadError
    """
    arrival = request.options.number("arrival", ARRIVAL_SECONDS, least=1e-3)
    rng = np.random.default_rng(request.seed)
    at = 0.0
    jobs = []
    for number in range(request.jobs or JOBS):
        at += float(rng.exponential(arrival))
        jobs.append(_job(rng, number, at))
    return Workload(f"gen:slaq?arrival={arrival:g}", tuple(jobs), NODES, CORES_A_NODE)


def losses(rng: np.random.Generator, algorithm: str, count: int = ITERATIONS) -> Floats:
    """Losses (count,) of one training: a sublinear and a linear part, a floor, a scale of its own, and noise."""
    k = np.arange(count, dtype=np.float64)
    least, most = ALGORITHMS[algorithm]
    share = rng.uniform(least, most)
    slow = 1 / (rng.uniform(0.0, 0.01) * k**2 + rng.uniform(0.15, 0.6) * k + 1)
    fast = rng.uniform(0.80, 0.95) ** k
    falling = share * slow + (1 - share) * fast
    falling = (falling - falling[-1]) / (falling[0] - falling[-1])
    scale, floor = 10 ** rng.uniform(-1, 3), rng.uniform(0.05, 0.6)
    noise = rng.uniform(0.0, 0.004) * rng.standard_normal(count)
    return np.asarray(scale * (floor + (1 - floor) * falling) * (1 + noise))


def _job(rng: np.random.Generator, number: int, at: float) -> SimJob:
    algorithm = str(rng.choice(list(ALGORITHMS)))
    work = WORK * math.exp(SIGMA * rng.standard_normal() - SIGMA**2 / 2)
    curve = losses(rng, algorithm)
    least = curve.min()
    return SimJob(
        name=f"{algorithm}-{number}",
        submit=at,
        gpus=REQUESTED,
        iterations=ITERATIONS,
        speed=_speed(rng, ITERATIONS / work),
        user=f"user{rng.integers(USERS)}",
        kind=f"{algorithm}-{number}",
        gpus_min=1,
        gpus_max=MOST,
        curve_at=np.arange(1.0, ITERATIONS + 1),
        losses=curve,
        accuracies=np.clip(1 - (curve - least) / (curve[0] - least), 0.0, 1.0),
        restart=0.0,
    )


def _speed(rng: np.random.Generator, rate: float) -> Speed:
    """`rate` iterations a second on each core, a few per cent off, the same however many nodes they are on."""
    cores = np.array(_CORES)
    return Speed(cores, np.ones(len(cores), dtype=np.int64), _never_slower(rate * cores * _noise(rng, len(cores))))


def _noise(rng: np.random.Generator, count: int) -> Floats:
    """Factors around 1."""
    return np.asarray(np.exp(_DEVIATION * rng.standard_normal(count)))


def _never_slower(rates: Floats) -> Floats:
    """The rates, raised so that more cores are never slower."""
    return np.maximum.accumulate(rates)

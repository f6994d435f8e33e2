"""The workload of OASiS (Bao, Peng, Wu, Li, INFOCOM 2018, section V-A): utilities that fall with completion time.

Of the paper, as far as the text and its references state: slots; E from 50 to 200 epochs, N from 5 to 100 data chunks,
a worker each at most, so a job's speed is linear in workers up to N; sigmoid utilities of priority 1 to 100, decay 0
for a tenth of the jobs, 0.01 to 1 for 55% and 4 to 6 for 35% (a slot), target completion after 1 to 15 slots;
resources are reallocated each slot at no cost. Each job trains at a speed of its own, so each is a kind of its own.

(choices) A worker is one GPU with 1 to 8 CPUs and 2 to 30 GB, and there are 50 servers of four. With N workers a job
takes 1 to 10 slots (drawn alone, three quarters could not end in time). Slots are 10 minutes, and 100 of them; jobs
arrive in bursts, as in the Google cluster data: their rate by slot is log-normal.
"""

import numpy as np

from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads import synthetic
from slurmplug.sim.workloads.load import WorkloadRequest

JOBS, SLOTS, SLOT = 100, 100, 600.0
NODES, GPUS_A_NODE = 50, 4
MAX_FIXED_GPUS = 30
"""the most workers that a policy without resizing gives (section V-A: fixed within [1, 30])"""
USERS = 8
_KINDS = tuple(synthetic.MODELS)


def workload(request: WorkloadRequest) -> Workload:
    """`?slots=`, in which all jobs arrive, and `&slot=`, seconds of one.

    Raises:
        WorkloadError
    """
    slots = request.options.integer("slots", SLOTS, least=1, most=100_000)
    slot = request.options.number("slot", SLOT, least=1.0)
    rng = np.random.default_rng(request.seed)
    count = request.jobs or JOBS
    weights = np.exp(0.8 * rng.standard_normal(slots))
    arrivals = np.sort(rng.choice(slots, size=count, p=weights / weights.sum()) + rng.random(count)) * slot
    jobs = tuple(_job(rng, number, float(at), slot) for number, at in enumerate(arrivals))
    return Workload(f"gen:oasis?slots={slots}&slot={slot:g}", jobs, NODES, GPUS_A_NODE)


def _job(rng: np.random.Generator, number: int, at: float, slot: float) -> SimJob:
    epochs, chunks = int(rng.integers(50, 201)), int(rng.integers(5, 101))
    fastest = float(rng.uniform(1, 10)) * slot
    rate = epochs / fastest / chunks
    workers = np.array([1, chunks])
    sampled = synthetic.sampled(epochs)
    losses, accuracies = synthetic.learning(rng, len(sampled))
    gpus = min(int(rng.integers(1, MAX_FIXED_GPUS + 1)), chunks)
    sensitive = rng.random()
    decay = 0.0 if sensitive < 0.10 else rng.uniform(0.01, 1) if sensitive < 0.65 else rng.uniform(4, 6)
    return SimJob(
        name=f"job-{number}",
        submit=at,
        gpus=gpus,
        iterations=epochs,
        speed=Speed(workers, np.ones(2, dtype=np.int64), rate * workers),
        user=f"user{rng.integers(USERS)}",
        kind=f"{rng.choice(_KINDS)}-{number}",
        gpus_min=1,
        gpus_max=chunks,
        cpus=gpus * int(rng.integers(1, 9)),
        memory=gpus * float(rng.uniform(2, 30)) * 1000,
        curve_at=sampled,
        losses=losses,
        accuracies=accuracies,
        utility=(float(rng.uniform(1, 100)), float(decay) / slot, float(rng.uniform(1, 15)) * slot),
        params=float(rng.uniform(30, 575)) * 1e6 / 4,
        restart=0.0,
    )

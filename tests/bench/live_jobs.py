"""The jobs of `tests.bench.live`: rigid ones, which are never restarted, and elastic ones with checkpoints.

Times are in seconds, on a cluster of four nodes of four GPUs.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slurmplug.directives.grammar import PREFIX
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from tests.live import real_jobs

NODES, GPUS_A_NODE = 4, 4
SLOT = 10.0
"""of OASiS"""
_RIGID, _ELASTIC = 80, 24
_RIGID_LOAD, _ELASTIC_LOAD = 2.0, 1.5
"""GPU seconds asked for by the second of arrivals, over the GPUs"""
_RIGID_SECONDS = (0.2, 0.3, 0.5)
"""of an iteration, by kind: a model has its speed"""
_INSENSITIVE = 0.35
"""the share of jobs whose utility does not fall with time (OASiS, section V-A)"""
_STEEPNESS = (0.1 / SLOT, 0.27 / SLOT)
"""a second, of the others: of theirs, 0.01 to 1 a slot, the part that a directive may tell"""
_MEDIAN, _SPREAD, _LEAST, _MOST = 30.0, 1.4, 8.0, 320.0
"""of the run times on what is requested: those of MLFS' workload (gen:mlfs, median 30 and mean 80 minutes), cut off"""
_SCALES = {"net0": 0.6, "net1": 0.7, "net2": 0.8, "net3": 0.9}
"""the power of the GPUs by which a kind is faster"""
_SECONDS = (0.8, 1.2, 1.6, 2.4)
"""of an iteration on one GPU, by kind"""
_HAS_RANGE = 0.75
"""the share of jobs with a range of GPUs"""
_COUNTS = np.arange(1, 9)
_PROGRAM = """
import json, os, sys, time
from slurmplug import checkpoint_requested, report
seconds, told = json.loads(sys.argv[1])
gpus = int(os.environ["SLURM_GPUS_ON_NODE"]) * int(os.environ["SLURM_JOB_NUM_NODES"])
path = "checkpoint-" + os.environ["SLURM_JOB_ID"]
done = int(open(path).read()) if os.path.exists(path) else 0
began = time.time() - done * seconds[gpus - 1]
for number in range(done + 1, len(told) + 1):
    time.sleep(max(0.0, began + number * seconds[gpus - 1] - time.time()))
    if report(iteration=number, loss=told[number - 1][0], accuracy=told[number - 1][1]):
        break
    if checkpoint_requested():
        with open(path, "w") as file:
            file.write(str(number))
        report(checkpoint=number)
"""


def rigid(seed: int, count: int = _RIGID) -> Workload:
    """Jobs of six kinds whose accuracy comes near its end after a part of what their users ask for."""
    rng = np.random.default_rng(seed)
    jobs = []
    for _ in range(count):
        kind = int(rng.integers(6))
        iterations = int(rng.integers(25, 80))
        at = np.arange(1.0, iterations + 1)
        end, half = 0.75 + 0.04 * kind, 2.0 + 1.5 * kind
        accuracy = end * at / (at + half) + rng.normal(0, 0.004, iterations)
        seconds = _RIGID_SECONDS[kind % len(_RIGID_SECONDS)]
        gpus = int(rng.choice([1, 1, 2, 4]))
        takes = iterations * seconds
        jobs.append(
            SimJob(
                name=f"kind{kind}",
                kind=f"kind{kind}",
                submit=0.0,
                gpus=gpus,
                iterations=iterations,
                speed=Speed(np.array([1]), np.array([1]), np.array([1 / seconds])),
                time_limit=120.0,
                curve_at=at,
                losses=1 - accuracy,
                accuracies=accuracy,
                target=round(0.93 * end, 3),
                deadline=max(1.1 * takes, float(rng.uniform(20, 120))),
                urgency=float(rng.integers(1, 11)),
                downgrade="target",
            )
        )
    submits = np.sort(rng.uniform(0, _span(jobs, _RIGID_LOAD), count)).tolist()
    steepness = np.where(rng.random(count) < _INSENSITIVE, 0.0, rng.uniform(*_STEEPNESS, count)).round(4).tolist()
    placed = [
        replace(job, submit=submit, deadline=submit + job.deadline, utility=(10 * job.urgency, fall, job.deadline))
        for job, submit, fall in zip(jobs, submits, steepness, strict=True)
    ]
    return Workload("rigid", tuple(placed), NODES, GPUS_A_NODE)


def elastic(seed: int) -> Workload:
    """Jobs of four kinds with checkpoints, of 8 to 320 s on the one to eight GPUs that they request.

    Most of them are short. Three in four can train on one to eight GPUs. Nobody stops them early.
    """
    rng = np.random.default_rng(seed)
    jobs = []
    for _ in range(_ELASTIC):
        kind = int(rng.integers(len(_SCALES)))
        name, scale = list(_SCALES.items())[kind]
        gpus, has_range = int(rng.choice([1, 2, 4, 8])), bool(rng.random() < _HAS_RANGE)
        rate = np.asarray(_COUNTS**scale / _SECONDS[kind], dtype=np.float64)
        takes = float(np.clip(rng.lognormal(np.log(_MEDIAN), _SPREAD), _LEAST, _MOST))
        iterations = max(4, round(takes * float(rate[gpus - 1])))
        at = np.arange(1.0, iterations + 1)
        accuracy = 0.9 * at / (at + rng.uniform(4, 12)) + rng.normal(0, 0.004, iterations)
        jobs.append(
            SimJob(
                name=name,
                kind=name,
                submit=0.0,
                gpus=gpus,
                gpus_min=1 if has_range else 0,
                gpus_max=int(_COUNTS[-1]) if has_range else 0,
                iterations=iterations,
                speed=Speed(_COUNTS, np.ones_like(_COUNTS), rate),
                time_limit=1800.0,
                curve_at=at,
                losses=1 - accuracy,
                accuracies=accuracy,
                restart=2.0,
            )
        )
    submits = np.sort(rng.uniform(0, _span(jobs, _ELASTIC_LOAD), _ELASTIC)).tolist()
    placed = (replace(job, submit=submit) for job, submit in zip(jobs, submits, strict=True))
    return Workload("elastic", tuple(placed), NODES, GPUS_A_NODE)


def _span(jobs: Sequence[SimJob], load: float) -> float:
    """In how many seconds they arrive."""
    asked = sum(job.gpus * job.iterations / job.speed.at(job.gpus, 1) for job in jobs)
    return asked / (NODES * GPUS_A_NODE) / load


def with_checkpoints(job: SimJob) -> str:
    """A batch script that trains as fast as its GPUs let it, and goes on from its checkpoint."""
    at = np.arange(1, job.iterations + 1)
    curves = (np.interp(at, job.curve_at, values).round(6).tolist() for values in (job.losses, job.accuracies))
    output = json.dumps([(1 / job.speed.rate).round(4).tolist(), list(zip(*curves, strict=True))])
    nodes = -(-job.gpus // GPUS_A_NODE)
    size = f"--gpus={job.gpus_min}..{job.gpus_max} " if job.gpus_min else ""
    return "\n".join(
        [
            "#!/bin/sh",
            f"#SBATCH --job-name={job.name} --time={round(job.time_limit / 60)}",
            f"#SBATCH --nodes={nodes} --gres=gpu:{job.gpus // nodes}",
            "#SBATCH --cpus-per-task=1 --mem=1 --output=/dev/null --requeue",
            f"{PREFIX} {size}--checkpoint=file@30 {real_jobs.directives(job)}",
            f"exec {sys.executable} - '{output}' <<'END'{_PROGRAM}END\n",
        ]
    )

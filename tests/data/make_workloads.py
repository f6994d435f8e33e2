"""Writes the small workloads that come with slurmplug: `PYTHONPATH=. python tests/data/make_workloads.py`."""

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from predictors.arrays import Bools, Floats
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads import csv_format, synthetic
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.load import PACKAGED, load

NODES, GPUS_A_NODE = 4, 4
CURVES = Path(__file__).parent / "curves.jsonl.gz"


def small() -> list[SimJob]:
    """Forty jobs of gen:mlfs that 16 GPUs can hold."""
    jobs = [job for job in load("gen:mlfs?x=3/2", seed=1).jobs if job.gpus <= 8][:40]
    first = jobs[0].submit
    return [
        replace(
            job,
            submit=job.submit - first,
            deadline=job.deadline - first,
            gpus_max=min(job.gpus_max, 16),
            speed=_part(job.speed, job.speed.gpus <= 16),
        )
        for job in jobs
    ]


def sweep() -> Sequence[SimJob]:
    """A search over hyperparameters: runs of a small network that were really trained, about one a minute."""
    random = np.random.default_rng(0)
    jobs, at = [], 0.0
    with gzip.open(CURVES, "rt") as lines:
        for number, line in enumerate(lines):
            accuracies = np.array(json.loads(line)["val_acc"])
            at += float(random.exponential(60.0))
            seconds = 1500 * math.exp(0.5 * random.standard_normal())
            speed = synthetic.lasting("mlp", 1, len(accuracies), seconds, GPUS_A_NODE)
            job = SimJob(
                name=f"digits-{number}",
                submit=at,
                gpus=1,
                iterations=len(accuracies),
                speed=_part(speed, speed.gpus <= GPUS_A_NODE),
                kind="digits-mlp",
                gpus_min=1,
                gpus_max=GPUS_A_NODE,
                curve_at=np.arange(1.0, len(accuracies) + 1),
                losses=1 - accuracies,
                accuracies=accuracies,
                params=1e5,
            )
            jobs.append(job)
    return with_directives(jobs, 0, gpus_a_node=GPUS_A_NODE)


def _part(speed: Speed, kept: Bools) -> Speed:
    return Speed(speed.gpus[kept], speed.nodes[kept], speed.rate[kept])


def _rounded(job: SimJob) -> SimJob:
    """With as many digits as a reader of the file can take in."""
    return replace(
        job,
        submit=round(job.submit, 1),
        deadline=round(job.deadline, 1),
        target=round(job.target, 5),
        memory=round(job.memory),
        traffic=float(f"{job.traffic:.6g}"),
        losses=_digits(job.losses),
        accuracies=np.round(job.accuracies, 5),
        speed=replace(job.speed, rate=_digits(job.speed.rate)),
    )


def _digits(values: Floats) -> Floats:
    return np.array([float(f"{value:.6g}") for value in values])


for name, jobs in (("small", small()), ("sweep", sweep())):
    csv_format.write(Workload(name, tuple(map(_rounded, jobs)), NODES, GPUS_A_NODE), PACKAGED / f"{name}.csv")

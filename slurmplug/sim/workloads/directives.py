"""Directives drawn by seed for jobs of a trace without: urgency, deadline, target, time limit."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob

HOUR = 3600.0
USERS = 8
TARGET_SHARE = 0.99
"""a target is this share of the best accuracy of the job's curve"""
_STREAM = 0x77697368
"""keeps these draws apart from a generator's own of the same seed"""


def with_directives(jobs: Sequence[SimJob], seed: int, *, gpus_a_node: int) -> tuple[SimJob, ...]:
    """The jobs with the directives of MLFS' users (section 4.1), in every field that has no value yet.

    Deadline max(1.1 t_e, U[0.5, 24] h) after submission, urgency from 1 to 10, OptStop with the target as the furthest
    downgrade. The time limit is 1.5 to 4 times the run time on the requested GPUs and half an hour, in whole hours:
    users request more than they need. The i-th job gets the same whatever follows it.
    """
    draws = np.random.default_rng([_STREAM, seed]).random((len(jobs), 4))
    return tuple(_with_directives(job, draw, gpus_a_node) for job, draw in zip(jobs, draws, strict=True))


def run_time_alone(job: SimJob, gpus_a_node: int) -> float:
    """Seconds that the job trains on the GPUs that it requests, on as few nodes as hold them."""
    gpus = max(job.gpus, 1)
    return job.iterations / job.speed.at(gpus, math.ceil(gpus / max(gpus_a_node, 1)))


def _with_directives(job: SimJob, draw: Floats, gpus_a_node: int) -> SimJob:
    if not job.managed:
        return job
    takes = run_time_alone(job, gpus_a_node)
    best = float(np.max(job.accuracies, initial=-math.inf))
    target = job.target if job.target == job.target or best <= 0 else TARGET_SHARE * best
    return replace(
        job,
        urgency=job.urgency if job.urgency == job.urgency else 1.0 + math.floor(10 * draw[0]),
        deadline=job.deadline
        if job.deadline == job.deadline
        else job.submit + max(1.1 * takes, HOUR * (0.5 + 23.5 * draw[1])),
        time_limit=job.time_limit
        if job.time_limit == job.time_limit
        else HOUR * math.ceil((0.5 * HOUR + takes * (1.5 + 2.5 * draw[2])) / HOUR),
        user=job.user if job.user != "user" else f"user{math.floor(USERS * draw[3])}",
        target=target,
        stop="optstop" if len(job.accuracies) else job.stop,
        downgrade="target" if target == target else "",
    )

"""The result of a simulated run: the course of each job, and what the run cost."""

from dataclasses import dataclass, field

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob


@dataclass(frozen=True, eq=False, slots=True)
class FinishedJob:
    """One job of the workload after the run. Times are seconds from the workload's start.

    `times` (k,), increasing but not strictly, and `iterations` (k,) are the corners of its progress: between two of
    them it is linear, and a step down is work lost with a restart. A job reports whole iterations only, so what it had
    reported at a time is the floor. Of a job of several parts it is the progress of the training they share.
    """

    job: SimJob
    submitted: float
    started: float
    """when it first ran; NaN: never"""
    ended: float
    """NaN: it had not ended when the run was cut short"""
    state: str
    """COMPLETED, TIMEOUT or CANCELLED; PENDING or RUNNING where the run was cut short"""
    stopped: bool
    """it ended early because a policy stopped it"""
    times: Floats
    iterations: Floats
    wait: float
    """seconds that it waited, before its first start and after each preemption"""
    gpu_seconds: float
    """held, restarts and lost work included"""
    bandwidth_bytes: float
    """sent between nodes: by training, and by checkpoints that moved"""
    preemptions: int
    migrations: int
    resizes: int
    resized_starts: int = 0
    """starts on another number of GPUs than it requested"""


@dataclass(frozen=True, eq=False)
class RunResult:
    """One workload under one policy."""

    workload: str
    cluster: str
    """as requested: 16x4"""
    policy: str
    launcher: str
    stopping: bool
    seed: int
    finished: tuple[FinishedJob, ...]
    """in the workload's order"""
    decide_seconds: Floats
    """(cycles,) measured"""
    wall_seconds: float
    """measured, of the whole run"""
    overload_seconds: float
    """node seconds with CPUs, memory or network above the threshold of contention"""
    in_use: Floats = field(default_factory=lambda: np.empty((0, 2)))
    """(cycles + 1, 2): a time, and the GPUs that were held from then until the next"""

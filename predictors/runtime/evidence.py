"""How much the earlier runs of a user's program say of a job, by the GPU time that they took.

A forecast by similar runs counts each run alike, so thirty runs of five seconds would stand for a job that requests ten
hours. What they took is next to nothing of what it requests: then its run time is not taken to be less than a share of
its time limit. The more GPU time such short runs took, the less that share; and it stays as it is where most of the GPU
time went to runs that outlived their forecast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from predictors.arrays import Floats
from predictors.runtime.history import program_keys
from predictors.runtime.job_table import JobTable

LEAST_SHARE = 0.2
"""of its time limit that a job is taken to run, if nothing is known of its program"""
LONGEST_LIMIT = 12 * 3600.0
"""Seconds; a longer time limit, and none, count as this one: many are set by nobody."""
ENOUGH = 1 / 30
"""The share is divided by e for every such part of the requested GPU time that short runs took."""
BETRAYED = 0.5
"""The part of the GPU time of a program's runs that those may take that outlived their forecast."""
KEPT = 100
"""latest runs of a program that count"""
_MOST_PROGRAMS = 100_000


class _Run(NamedTuple):
    """What one run took: seconds, GPU seconds and CPU seconds, and 1 if it outlived its forecast, else 0."""

    seconds: float
    gpu: float
    cpu: float
    outlived: float


class Evidence:
    """What the latest runs of each user's programs took."""

    def __init__(self) -> None:
        self._runs: dict[str, deque[_Run]] = {}

    def add(self, jobs: JobTable, runtimes: Floats) -> None:
        """Add finished jobs (n,) in the order in which they finished, and their run times (n,) in seconds."""
        gpus, cpus = _widths(jobs)
        outlived = runtimes > jobs.numbers["bound"]
        columns = (runtimes, gpus * runtimes, cpus * runtimes, outlived.astype(np.float64))
        for key, *took in zip(program_keys(jobs), *(column.tolist() for column in columns), strict=True):
            runs = self._runs.pop(key, None) or deque(maxlen=KEPT)
            runs.append(_Run(*took))
            self._runs[key] = runs
        while len(self._runs) > _MOST_PROGRAMS:
            del self._runs[next(iter(self._runs))]

    def least(self, jobs: JobTable) -> Floats:
        """(n,) seconds that jobs are taken to run at least."""
        gpus, cpus = _widths(jobs)
        limit = np.fmin(jobs.limit, LONGEST_LIMIT)
        most = LEAST_SHARE * limit
        left = [
            self._share(key, short, seconds * (gpu or cpu), has_gpus=gpu > 0)
            for key, short, seconds, gpu, cpu in zip(
                program_keys(jobs), most.tolist(), limit.tolist(), gpus.tolist(), cpus.tolist(), strict=True
            )
        ]
        return np.asarray(most * np.array(left))

    def _share(self, key: str, short: float, requested: float, *, has_gpus: bool) -> float:
        """The factor in [0, 1] on the least share. short: seconds; requested: GPU seconds, or CPU seconds without."""
        if key not in self._runs:
            return 1.0
        seconds, gpu, cpu, outlived = np.array(self._runs[key]).T
        took = gpu if has_gpus else cpu
        if took @ outlived > BETRAYED * took.sum():
            return 1.0
        return float(np.exp(-took[seconds <= short].sum() / (ENOUGH * requested)))

    def state(self) -> dict[str, Any]:
        """Arrays, from which `from_state` makes the same."""
        width = len(_Run._fields)
        return {
            "programs": np.array(list(self._runs), dtype=np.str_),
            "counts": np.array([len(runs) for runs in self._runs.values()], dtype=np.int64),
            "took": np.array([run for runs in self._runs.values() for run in runs], dtype=np.float64).reshape(
                -1, width
            ),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Evidence:
        """The one whose `state` this is."""
        restored = cls()
        ends = np.cumsum(np.asarray(state["counts"], dtype=np.int64))
        for key, took in zip(state["programs"], np.split(np.asarray(state["took"]), ends)[:-1], strict=True):
            restored._runs[str(key)] = deque((_Run(*run) for run in took.tolist()), maxlen=KEPT)
        return restored


def _widths(jobs: JobTable) -> tuple[Floats, Floats]:
    """(n,) the GPUs of each job, 0 where it has none, and (n,) its CPUs, at least 1."""
    return np.nan_to_num(jobs.numbers["gpus"]), np.fmax(np.nan_to_num(jobs.numbers["cpus"]), 1.0)

"""What is read from the spool: which run, what is wrong there, and the points that a run reported. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Bools, Floats, Ints
from slurmplug.spool.trials import Trial

REPORTED_NAN = -float(np.finfo(np.float64).max)
"""Stands for a reported NaN in the columns of `Points`, where NaN means that nothing was reported."""
NOT_FINITE: Mapping[str, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""How a value that is not finite may be written in JSON, besides the literals of Python's json module."""


class RunId(NamedTuple):
    """One run of a job: its job id, and how often it was restarted before (SLURM_RESTART_COUNT)."""

    job_id: int
    restart: int


@dataclass(frozen=True)
class SpoolFault:
    """Something invalid in the spool.

    `job` is the job's id, 0 for the spool itself; `rule` says what is wrong, `detail` more of it, in words that no
    user chose; `count` is how often it was found since the last reading.
    """

    job: int
    rule: str
    detail: str
    count: int


IDLE_SHARE = 0.05
"""GPUs that are in use for this share of the time, or less, count as idle."""


class GPUUse(NamedTuple):
    """How much a job's GPUs were in use: the sum of the shares in [0, 1] that it reported, and how many there were.

    used_at: when it reported last that they were not idle, in seconds since the epoch; 0 if it never did.
    """

    shares: float = 0.0
    measured: int = 0
    used_at: float = 0.0

    def with_share(self, share: float, time: float) -> "GPUUse":
        """With one more share, reported at `time`."""
        used_at = max(self.used_at, time) if share > IDLE_SHARE else self.used_at
        return GPUUse(self.shares + share, self.measured + 1, used_at)


NOT_MEASURED = GPUUse()


@dataclass(frozen=True)
class Points:
    """The reports of a run, a point for each iteration: columns (points,), by trial and in a trial by iteration.

    Times are seconds since the epoch.

    iterations: strictly increasing in each trial.
    times: when the iteration was last reported.
    quantities: by name; NaN where the quantity was not reported for the iteration, `REPORTED_NAN` where NaN was.
    checkpoint: the iteration that the last checkpoint reported in the present trial holds, NaN before the first.
    checkpoint_time: when it was reported, NaN likewise.
    load: the node's load at `load_time`, as `slurmplug_report.gpu_load` measures it.
    gpu_use: of all runs of the job.
    trial_of: the number of the trial, an index into `trials`; 0 for all points where it is not given.
    trials: all trials of the job.
    trial: the number of the present trial, to which the latest report belongs.
    first: the lowest iteration that the job ever reported, NaN before the first.
    """

    iterations: Floats = field(default_factory=lambda: np.empty(0))
    times: Floats = field(default_factory=lambda: np.empty(0))
    quantities: Mapping[str, Floats] = field(default_factory=dict)
    checkpoint: float = math.nan
    checkpoint_time: float = math.nan
    load: Mapping[str, float] = field(default_factory=dict)
    load_time: float = math.nan
    gpu_use: GPUUse = NOT_MEASURED
    trial_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    trials: tuple[Trial, ...] = ()
    trial: int = 0
    first: float = math.nan

    def __post_init__(self) -> None:
        """Number all points 0 where `trial_of` is not given."""
        if len(self.trial_of) != len(self.iterations):
            object.__setattr__(self, "trial_of", np.zeros(len(self.iterations), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def keys(self) -> NDArray[np.complex128]:
        """(points,) strictly increasing: the trial as the real part, the iteration as the imaginary one."""
        return self.trial_of + 1j * self.iterations

    @property
    def several(self) -> bool:
        """Whether the job's reports show that it trains several models."""
        return len(self.trials) > 1 or any(trial.name for trial in self.trials)

    def of_trial(self, trial: int) -> "Points":
        """The points of one trial only."""
        return self.rows(self.trial_of == trial) if len(self) and (self.trial_of != trial).any() else self

    def rows(self, rows: Bools | Ints) -> "Points":
        """These points only."""
        columns = {name: column[rows] for name, column in self.quantities.items()}
        return replace(
            self,
            iterations=self.iterations[rows],
            times=self.times[rows],
            quantities=columns,
            trial_of=self.trial_of[rows],
        )


def column_value(reported: object) -> float | None:
    """A value from JSON as a column of `Points` holds it; None if it is not a number."""
    number = NOT_FINITE.get(reported.lower()) if isinstance(reported, str) else reported
    if isinstance(number, bool) or not isinstance(number, float | int):
        return None
    return REPORTED_NAN if math.isnan(number) else float(number)


def json_value(value: float) -> float | str:
    """A value of a column of `Points` as JSON can hold it: the inverse of `column_value`."""
    if value == REPORTED_NAN:
        return "nan"
    return value if math.isfinite(value) else str(value)

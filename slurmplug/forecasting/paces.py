"""How fast a job trains that was never seen to: by its forecast run time, and by the paces of others."""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

from policies.snapshot import Jobs
from predictors.forecast import Forecast

UNLIKE = 0.7
"""Standard deviation of the logarithm of the pace of jobs of a kind of which one was seen: as of those drawn tenfold
apart."""
LEAST_SPREAD = 0.02
"""The same of the pace that follows from a forecast run time, at the least."""
_DEVIATIONS = 3.29
"""standard deviations of a normal distribution between its quantiles .05 and .95"""
_ROBUST = 1.4826
"""standard deviations of a normal distribution in its median absolute deviation"""


class Pace(NamedTuple):
    """The logarithm of seconds an iteration, and its standard deviation."""

    log_step: float
    spread: float

    def with_other(self, other: "Pace | None") -> "Pace":
        """The mean of two forecasts of one pace, weighted by their precision."""
        if other is None:
            return self
        mine, others = self.spread**-2, other.spread**-2
        mean = (mine * self.log_step + others * other.log_step) / (mine + others)
        return Pace(mean, (mine + others) ** -0.5)


class Request(NamedTuple):
    """The GPUs that a job asked for, and its pace on them by its forecast run time, as far as that is known."""

    gpus: int
    pace: Pace | None


def pooled_pace(paces: Sequence[float]) -> Pace:
    """The pace of a further job, by logarithms of those of others: the less certain, the fewer and the less alike."""
    middle, n = median(paces), len(paces)
    scatter = _ROBUST * median(abs(pace - middle) for pace in paces)
    variance = (UNLIKE**2 + (n - 1) * scatter**2) / n
    return Pace(middle, sqrt(variance * (1.0 + 1.0 / n)))


def requests(jobs: Jobs, run_times: Forecast) -> Callable[[int], Request]:
    """What the job of a row asks for, by its forecast run time (n,) on that, in seconds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_step = np.log(run_times.median / jobs.max_iterations)
        early, late = run_times.quantile([0.05, 0.95]).T
        spread = np.fmax(np.log(late / early) / _DEVIATIONS, LEAST_SPREAD)
    known = np.isfinite(log_step) & np.isfinite(spread)
    gpus = jobs.requested[:, 0].astype(np.int64)
    columns = [column.tolist() for column in (gpus, known, log_step, spread)]

    def of_row(row: int) -> Request:
        gpus, knows, at, wide = (column[row] for column in columns)
        return Request(gpus, Pace(at, wide) if knows else None)

    return of_row

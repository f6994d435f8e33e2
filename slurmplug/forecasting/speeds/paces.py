"""How fast a job trains that was never seen to: by its forecast run time, and by the paces of others."""

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from policies.snapshot import Jobs
from predictors.arrays import Floats
from predictors.forecast import Forecast

UNLIKE = 0.7
"""Standard deviation of the logarithm of the pace of jobs of a kind of which one was seen: as of those drawn tenfold
apart."""
LEAST_SPREAD = 0.02
"""The least standard deviation of the logarithm of a pace that follows from a forecast run time."""
_DEVIATIONS = 3.29
"""standard deviations of a normal distribution between its quantiles .05 and .95"""
_ROBUST = 1.4826
"""standard deviations of a normal distribution in its median absolute deviation"""
_OF_FEW = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)
"""by their number, the factor by which that deviation of few values is too small: Croux and Rousseeuw, Time-efficient
algorithms for two highly robust estimators of scale, 1992"""
_OF_MEDIANS = math.pi / 2
"""the variance of the median of many values, in that of their mean; of one or two values they are the same"""


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
    few = _OF_FEW[n] if n < len(_OF_FEW) else n / (n - 0.8)
    scatter = few * _ROBUST * median(abs(pace - middle) for pace in paces)
    variance = (UNLIKE**2 + (n - 1) * scatter**2) / n
    return Pace(middle, math.sqrt(variance * (1.0 + (_OF_MEDIANS if n > 2 else 1.0) / n)))


class Paces(NamedTuple):
    """The paces of n jobs: logarithms of seconds an iteration (n,), and their standard deviations (n,); NaN where
    unknown."""

    log_step: Floats
    spread: Floats

    def mixed_with(self, other: "Paces") -> "Paces":
        """The mean and spread of mixtures of two forecasts that may rest on the same runs, weighted by their precision:
        wider the less they agree, and never narrower than the more precise one. The known one where one is unknown."""
        share = other.spread**2 / (self.spread**2 + other.spread**2)
        apart = self.log_step - other.log_step
        within = share * self.spread**2 + (1.0 - share) * other.spread**2
        mixture = other.log_step + share * apart, np.sqrt(within + share * (1.0 - share) * apart**2)
        alone = np.isnan(mixture[1])
        known = (np.where(np.isnan(mine), others, mine) for mine, others in zip(self, other, strict=True))
        return Paces(*(np.where(alone, one, both) for one, both in zip(known, mixture, strict=True)))


def by_run_times(run_times: Forecast, iterations: Floats) -> Paces:
    """The paces of jobs that take this long (n,), in seconds, for so many iterations (n,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_step = np.log(run_times.median / iterations)
        early, late = run_times.quantile([0.05, 0.95]).T
        spread = np.fmax(np.log(late / early) / _DEVIATIONS, LEAST_SPREAD)
    unknown = ~(np.isfinite(log_step) & np.isfinite(spread))
    return Paces(np.where(unknown, np.nan, log_step), np.where(unknown, np.nan, spread))


def requests(jobs: Jobs, run_times: Forecast) -> Callable[[int], Request]:
    """What the job of a row asks for, by its forecast run time (n,) on that, in seconds."""
    paces, gpus = by_run_times(run_times, jobs.max_iterations), jobs.requested[:, 0].astype(np.int64)
    columns = [column.tolist() for column in (gpus, ~np.isnan(paces.spread), *paces)]

    def of_row(row: int) -> Request:
        gpus, knows, at, wide = (column[row] for column in columns)
        return Request(gpus, Pace(at, wide) if knows else None)

    return of_row

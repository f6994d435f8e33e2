"""How much longer an iteration takes on one type of GPU than on another, by the kinds of jobs that ran on both.

The logarithm of this ratio is d for a kind, normally distributed about the mean m of all kinds for these two types, and
m about 0: random effects with partial pooling (Gelman and Hill, Data Analysis Using Regression and
Multilevel/Hierarchical Models, 2007, chapter 12). So a kind that ran on both goes by its own ratio, the more so the
more of its jobs did; one that did not by that of the others; and before any kind ran on both, all that is known is how
wide such ratios spread.

The spreads are those of Sia's step times of six models on six types of GPU (docs/predictors.md). They are wide: the
same model may be twice as fast on a type on which most are four times as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

TYPES_SPREAD = 0.7
"""standard deviation of m over pairs of types"""
KINDS_SPREAD = 0.7
"""standard deviation of d about m over kinds"""
JOBS_SPREAD = 0.25
"""standard deviation of a job's about its kind's"""


class LogRatio(NamedTuple):
    """The logarithm of the ratio of two step times, and its variance."""

    mean: float
    variance: float


def expected_log_ratio(of_kind: LogRatio | None, of_others: Sequence[LogRatio]) -> LogRatio:
    """The ratio for a further job of a kind.

    of_kind: what was seen of the kind on both types, None for nothing. of_others: of other kinds, one value for each.
    """
    precision = 1.0 / TYPES_SPREAD**2
    weights = [1.0 / (KINDS_SPREAD**2 + each.variance) for each in of_others]
    precision += sum(weights)
    mean = sum(weight * each.mean for weight, each in zip(weights, of_others, strict=True)) / precision
    expected = LogRatio(mean, 1.0 / precision + KINDS_SPREAD**2)
    if of_kind is not None:
        own, prior = 1.0 / of_kind.variance, 1.0 / expected.variance
        expected = LogRatio((own * of_kind.mean + prior * expected.mean) / (own + prior), 1.0 / (own + prior))
    return LogRatio(expected.mean, expected.variance + JOBS_SPREAD**2)


def mean_of_jobs(log_ratios: Sequence[float], measured: float = 0.0) -> LogRatio:
    """What jobs of a kind show of it, each by the logarithm of its ratio; measured: the variance of each of these."""
    return LogRatio(median(log_ratios), (JOBS_SPREAD**2 + measured) / len(log_ratios))

"""Scores of forecasts against actual values, each the mean over the items.

`ScoreRow` is a row of the tables that `predictors.trials` make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Floats
from predictors.forecast import Forecast

Clock: TypeAlias = Callable[[], float]
"""Returns seconds from an arbitrary origin, as `time.perf_counter` does."""

LIKELIHOOD_BOUND = 20.0
"""Log likelihoods are clipped to plus and minus this, as the density of an atom is infinite."""
UPPER_BOUND = 0.95
"""Level of the quantile that is used as an upper bound."""
INTERVAL = (0.05, 0.95)
"""Levels of the bounds of the 90% interval."""


@dataclass(frozen=True)
class ScoreRow:
    """The scores of a method on a part of the data, by name; NaN for a score that the method has not."""

    part: str
    method: str
    items: int
    scores: Mapping[str, float]


def absolute_error(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of |p - t|, in the unit of both. Raises ValueError unless there are as many of each, and any."""
    p, t = _paired(predicted, actual)
    return float(np.abs(p - t).mean())


def relative_error(predicted: ArrayLike, actual: ArrayLike, scale: ArrayLike) -> float:
    """Mean of |p - t| / |scale| over the items whose scale is not 0; NaN without any."""
    p, t = _paired(predicted, actual)
    size = np.abs(np.broadcast_to(np.asarray(scale, dtype=np.float64), t.shape))
    given = size > 0
    return float((np.abs(p - t)[given] / size[given]).mean()) if given.any() else float("nan")


def agreement(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of min(p, t) / max(p, t) of positive numbers: 1 is best; too long and too short count alike.

    The accuracy of Tsafrir, Etsion, Feitelson (TPDS 2007, section 3).
    """
    p, t = _paired(predicted, actual)
    return float((np.minimum(p, t) / np.maximum(p, t)).mean())


def log_likelihood(forecast: Forecast, actual: ArrayLike) -> float:
    """Mean logarithm of the density at the actual values, each clipped to +-`LIKELIHOOD_BOUND`."""
    density = forecast.logpdf(actual)
    return float(np.clip(density, -LIKELIHOOD_BOUND, LIKELIHOOD_BOUND).mean())


def coverage(low: ArrayLike, high: ArrayLike, actual: ArrayLike) -> float:
    """Share of the actual values in their intervals, bounds included."""
    t = np.asarray(actual, dtype=np.float64)
    return float(((np.asarray(low) <= t) & (t <= np.asarray(high))).mean())


def exceedance(bound: ArrayLike, actual: ArrayLike) -> float:
    """Share of the actual values above their bounds."""
    return float((np.asarray(actual, dtype=np.float64) > np.asarray(bound)).mean())


def distribution_scores(forecast: Forecast, actual: ArrayLike) -> dict[str, float]:
    """Scores of a distribution: absolute error of the median, log likelihood, coverage of the 90% interval."""
    low, high = forecast.quantile(INTERVAL).T
    return {
        "mae": absolute_error(forecast.median, actual),
        "log likelihood": log_likelihood(forecast, actual),
        "covers 90%": coverage(low, high, actual),
    }


def point_scores(predicted: ArrayLike, actual: ArrayLike) -> dict[str, float]:
    """As `distribution_scores`, for a method that gives no distribution: all scores but the error are NaN."""
    nothing = float("nan")
    return {"mae": absolute_error(predicted, actual), "log likelihood": nothing, "covers 90%": nothing}


def mean_row(rows: Sequence[ScoreRow], part: str) -> ScoreRow:
    """The unweighted mean of rows of one method, as a row for `part`."""
    names = rows[0].scores
    scores = {name: float(np.mean([row.scores[name] for row in rows])) for name in names}
    return ScoreRow(part, rows[0].method, sum(row.items for row in rows), scores)


def _paired(predicted: ArrayLike, actual: ArrayLike) -> tuple[Floats, Floats]:
    """Both as arrays. Raises ValueError unless there is one prediction for each actual value, and at least one."""
    p, t = np.asarray(predicted, dtype=np.float64), np.asarray(actual, dtype=np.float64)
    if p.shape != t.shape or not p.size:
        raise ValueError(f"{p.size} predictions cannot be scored on {t.size} values")
    return p, t

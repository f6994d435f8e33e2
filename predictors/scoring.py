"""Scores: how far forecasts were from what came, each the mean over the items.

`Line` is a row of the tables that `predictors.trials` make with them.
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
"""Seconds that pass."""

LIKELIHOOD_BOUND = 20.0
"""A log likelihood counts no less than minus this, and no more than this: an atom's density has no end."""
UPPER_BOUND = 0.95
"""The level of the quantile that is taken for a safe upper bound."""
INTERVAL = (0.05, 0.95)


@dataclass(frozen=True)
class Line:
    """How a method did on a part of the data: `scores` by name, NaN where the method has no such thing."""

    part: str
    method: str
    items: int
    scores: Mapping[str, float]


def absolute_error(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of |p - t|, in the unit of both."""
    p, t = _paired(predicted, actual)
    return float(np.abs(p - t).mean())


def relative_error(predicted: ArrayLike, actual: ArrayLike, scale: ArrayLike) -> float:
    """Mean of |p - t| / scale, over the items whose scale is not 0; NaN where there are none."""
    p, t = _paired(predicted, actual)
    size = np.abs(np.broadcast_to(np.asarray(scale, dtype=np.float64), t.shape))
    given = size > 0
    return float((np.abs(p - t)[given] / size[given]).mean()) if given.any() else float("nan")


def agreement(predicted: ArrayLike, actual: ArrayLike) -> float:
    """Mean of min(p, t) / max(p, t) of positive numbers: 1 is right, too long and too short count alike.

    The accuracy of Tsafrir, Etsion, Feitelson (TPDS 2007, section 3).
    """
    p, t = _paired(predicted, actual)
    return float((np.minimum(p, t) / np.maximum(p, t)).mean())


def log_likelihood(forecast: Forecast, actual: ArrayLike) -> float:
    """Mean of the logarithm of the density where the actual value fell, within +-`LIKELIHOOD_BOUND`."""
    density = forecast.logpdf(actual)
    return float(np.clip(density, -LIKELIHOOD_BOUND, LIKELIHOOD_BOUND).mean())


def coverage(low: ArrayLike, high: ArrayLike, actual: ArrayLike) -> float:
    """The share of the actual values that lie in their intervals."""
    t = np.asarray(actual, dtype=np.float64)
    return float(((np.asarray(low) <= t) & (t <= np.asarray(high))).mean())


def exceedance(bound: ArrayLike, actual: ArrayLike) -> float:
    """The share of the actual values above their bounds."""
    return float((np.asarray(actual, dtype=np.float64) > np.asarray(bound)).mean())


def distribution_scores(forecast: Forecast, actual: ArrayLike) -> dict[str, float]:
    """What a forecast is judged by: error of the median, log likelihood, coverage of the 90% interval."""
    low, high = forecast.quantile(INTERVAL).T
    return {
        "mae": absolute_error(forecast.median, actual),
        "log likelihood": log_likelihood(forecast, actual),
        "covers 90%": coverage(low, high, actual),
    }


def point_scores(predicted: ArrayLike, actual: ArrayLike) -> dict[str, float]:
    """Of a method that gives no distribution."""
    nothing = float("nan")
    return {"mae": absolute_error(predicted, actual), "log likelihood": nothing, "covers 90%": nothing}


def mean_line(lines: Sequence[Line], part: str) -> Line:
    """The mean of some lines of one method, each counting the same."""
    names = lines[0].scores
    scores = {name: float(np.mean([line.scores[name] for line in lines])) for name in names}
    return Line(part, lines[0].method, sum(line.items for line in lines), scores)


def _paired(predicted: ArrayLike, actual: ArrayLike) -> tuple[Floats, Floats]:
    """Raises ValueError unless there is one prediction an actual value, and any."""
    p, t = np.asarray(predicted, dtype=np.float64), np.asarray(actual, dtype=np.float64)
    if p.shape != t.shape or not p.size:
        raise ValueError(f"{p.size} predictions cannot be scored on {t.size} values")
    return p, t

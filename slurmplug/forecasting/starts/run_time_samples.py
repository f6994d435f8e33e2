"""Samples of forecast run times, for the simulations of queues."""

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import Forecast

SHORTEST = 1.0
"""Seconds that a job runs at least."""


def samples_of(forecast: Forecast, limit: Floats, count: int, random: np.random.Generator) -> Floats:
    """(n, count) seconds of each of n jobs, evenly spread over its forecast; where that is unknown, over its time limit
    (n,) in seconds."""
    levels = evenly(count)
    drawn = np.where(forecast.known[:, None], forecast.quantile(levels), limit[:, None] * levels)
    return random.permuted(np.maximum(drawn, SHORTEST), axis=1)


def evenly(count: int) -> Floats:
    """(count,) levels in the middles of equal parts of (0, 1)."""
    return np.asarray((np.arange(count) + 0.5) / count)

"""Quantiles of the gain, which is what both models predict: at fixed levels, from the draws of a forest.

The gain is the share of the distance from the last value seen to the top that the curve covers by the horizon.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats

QUANTILE_LEVELS = np.array(
    [0.005, 0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.45, 0.5, 0.55, 0.65, 0.75, 0.85, 0.9, 0.95, 0.98, 0.995]
)
MEDIAN = int(np.searchsorted(QUANTILE_LEVELS, 0.5))
_MIN_WIDTH = 2e-4


def sample_quantiles(draws: Floats, repeats: int = 1) -> Floats:
    """(m, levels) quantiles of sorted draws (m, s), each draw counted `repeats` times."""
    count = draws.shape[1] * repeats
    position = np.minimum(np.maximum(QUANTILE_LEVELS * count - 0.5, 0.0), count - 1.0)
    below = position.astype(np.int64)
    above = np.minimum(below + 1, count - 1)
    values = draws.take(below // repeats, axis=1)
    return np.asarray(values + (position - below) * (draws.take(above // repeats, axis=1) - values))


def scale_about_median(gains: Floats, spread: float | Floats) -> Floats:
    """Quantiles (m, levels) scaled about the median by `spread`, a number or (m, 1), and kept a minimum width apart."""
    median = gains[:, MEDIAN : MEDIAN + 1]
    return np.asarray(median + spread * (gains - median) + _MIN_WIDTH * (QUANTILE_LEVELS - 0.5))

"""Features of a partial learning curve: its level, its movement, and the predictions of the shape mixture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.learning_curve.shape_mixture import shape_mixture

HISTORY_LENGTH, HORIZON, SEEN_SHARE = 12, 13, 14
"""columns: logarithms of the iterations seen and of the horizon, and the share of the horizon that was seen"""
FEATURE_COUNT = 30
_SEGMENTS = 10
_LOG_OFFSET = 1e-3


@dataclass(frozen=True, eq=False)
class _Windows:
    """The windows over which curves of one length are averaged, and the weights of their slopes.

    starts, ends, widths: (14,) windows: the first five points, the tail (the last fifth), the fifth before it, the last
    tenth, and `_SEGMENTS` even ones. tail: points in the tail. log_slope: weights of the last half, whose product with
    it is the slope of its least squares line against the logarithm of the iteration. tail_slope: the same of the tail,
    against the share of the curve.
    """

    starts: Ints
    ends: Ints
    widths: Floats
    tail: int
    log_slope: Floats
    tail_slope: Floats

    @classmethod
    def for_length(cls, n: int) -> _Windows:
        tail, half = max(2, n // 5), max(3, n // 2)
        before = (max(n - 2 * tail, 0), n - tail) if n > tail else (0, 1)
        edges = np.floor(np.linspace(0, n, _SEGMENTS + 1)).astype(np.int64)
        firsts = [0, max(n - tail, 0), before[0], n - max(1, n // 10)]
        lasts = [min(5, n), n, before[1], n]
        starts = np.concatenate([firsts, edges[:-1]])
        ends = np.concatenate([lasts, np.maximum(edges[1:], edges[:-1] + 1)])
        recent = min(tail, n)
        return cls(
            starts, ends, (ends - starts).astype(np.float64), recent,
            _slope_weights(np.log(np.arange(1.0, n + 1.0)[-half:])), _slope_weights(np.arange(recent) / n),
        )  # fmt: skip


@lru_cache(maxsize=64)
def _windows(n: int) -> _Windows:
    return _Windows.for_length(n)


def curve_features(curves: Floats, horizons: Floats) -> Floats:
    """(m, FEATURE_COUNT) features of normalised curves (m, n) whose values at iterations `horizons` (m,) are predicted.

    Levels are relative to the last value, so that examples at one level inform predictions at another.
    """
    m, n = curves.shape
    windows = _windows(n)
    sums = np.zeros((m, n + 1))
    curves.cumsum(axis=1, out=sums[:, 1:])
    means = (sums.take(windows.ends, axis=1) - sums.take(windows.starts, axis=1)) / windows.widths
    ordered = np.sort(curves, axis=1)
    last, level, highest = curves[:, -1], means[:, 3], curves.argmax(axis=1)
    recent, steps = curves[:, -windows.tail :], curves[:, -max(4, n // 3) :]
    expected, spread, likeliest = shape_mixture(n).predict(curves, horizons)
    x = np.empty((m, FEATURE_COUNT))
    x[:, 0] = last
    x[:, 1] = ordered[:, -1]
    x[:, 2] = level
    x[:, 3] = curves[:, 0]
    x[:, 4] = curves[:, min(1, n - 1)] - curves[:, 0]
    x[:, 5] = expected
    x[:, 6] = spread
    x[:, 7] = likeliest
    x[:, 8] = means[:, 2] - level
    x[:, 9] = recent @ windows.tail_slope
    x[:, 10] = _standard_deviation(steps[:, 1:] - steps[:, :-1]) / np.sqrt(2.0)
    x[:, 11] = curves[:, -len(windows.log_slope) :] @ windows.log_slope * np.log(horizons / n)
    x[:, HISTORY_LENGTH], x[:, HORIZON], x[:, SEEN_SHARE] = np.log(n), np.log(horizons), n / horizons
    x[:, 15] = highest / n
    x[:, 16] = _standard_deviation(recent)
    x[:, 17:27] = means[:, 4:]
    x[:, 27] = curves[:, min(4, n - 1)]
    x[:, 28] = means[:, 0]
    x[:, 29] = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2.0
    x[:, _RELATIVE_COLUMNS] -= last[:, None]
    x[:, _LOG_COLUMNS] = np.log(x[:, _LOG_COLUMNS] + _LOG_OFFSET)
    return x


_RELATIVE_COLUMNS = np.array([1, 2, 5, 7, *range(17, 28), 29])
_LOG_COLUMNS = np.array([6, 10, 16])


def _slope_weights(x: Floats) -> Floats:
    """(p,) weights whose product with values at x (p,) is the slope of the least squares line through them."""
    centred = x - x.mean()
    square = float(centred @ centred)
    return np.asarray(centred / square if square > 0 else np.zeros_like(centred))


def _standard_deviation(values: Floats) -> Floats:
    """(m,) standard deviations of the rows of values (m, p); 0 for rows without values."""
    p = max(values.shape[1], 1)
    off = values - values.sum(axis=1, keepdims=True) / p
    return np.asarray(np.sqrt((off**2).sum(axis=1) / p))

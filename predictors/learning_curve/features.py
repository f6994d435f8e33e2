"""What a model sees of the beginning of a learning curve: where it stands, how it moves, what the bank expects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.learning_curve.shape_mixture import bank

HISTORY_LENGTH, HORIZON, SEEN = 12, 13, 14
"""columns: logarithms of the iterations seen and of the iteration asked for, and the share of the second"""
COUNT = 30
_SEGMENTS = 10
_TINY = 1e-3


@dataclass(frozen=True, eq=False)
class _Places:
    """Where curves of one length are looked at.

    starts, ends, widths: (14,) windows: the first five points, the latest, those before them, the last tenth, and
    `_SEGMENTS` even ones. tail: points of the second. by_log: weights of the last half whose product with it is the
    slope of the least squares line through it by the logarithm of the iteration. by_iteration: of the tail, by itself.
    """

    starts: Ints
    ends: Ints
    widths: Floats
    tail: int
    by_log: Floats
    by_iteration: Floats

    @classmethod
    def of(cls, n: int) -> _Places:
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
            _slope(np.log(np.arange(1.0, n + 1.0)[-half:])), _slope(np.arange(recent) / n),
        )  # fmt: skip


@lru_cache(maxsize=64)
def _places(n: int) -> _Places:
    return _Places.of(n)


def curve_features(curves: Floats, horizons: Floats) -> Floats:
    """(m, COUNT) of curves (m, n) in units of their scale, each to be continued to its iteration of `horizons` (m,).

    Levels are relative to the last value: what is learnt at one height then helps at another.
    """
    m, n = curves.shape
    at = _places(n)
    sums = np.zeros((m, n + 1))
    curves.cumsum(axis=1, out=sums[:, 1:])
    means = (sums.take(at.ends, axis=1) - sums.take(at.starts, axis=1)) / at.widths
    ordered = np.sort(curves, axis=1)
    last, level, highest = curves[:, -1], means[:, 3], curves.argmax(axis=1)
    recent, steps = curves[:, -at.tail :], curves[:, -max(4, n // 3) :]
    expected, spread, likeliest = bank(n).expects(curves, horizons)
    x = np.empty((m, COUNT))
    x[:, 0] = last
    x[:, 1] = ordered[:, -1]
    x[:, 2] = level
    x[:, 3] = curves[:, 0]
    x[:, 4] = curves[:, min(1, n - 1)] - curves[:, 0]
    x[:, 5] = expected
    x[:, 6] = spread
    x[:, 7] = likeliest
    x[:, 8] = means[:, 2] - level
    x[:, 9] = recent @ at.by_iteration
    x[:, 10] = _deviation(steps[:, 1:] - steps[:, :-1]) / np.sqrt(2.0)
    x[:, 11] = curves[:, -len(at.by_log) :] @ at.by_log * np.log(horizons / n)
    x[:, HISTORY_LENGTH], x[:, HORIZON], x[:, SEEN] = np.log(n), np.log(horizons), n / horizons
    x[:, 15] = highest / n
    x[:, 16] = _deviation(recent)
    x[:, 17:27] = means[:, 4:]
    x[:, 27] = curves[:, min(4, n - 1)]
    x[:, 28] = means[:, 0]
    x[:, 29] = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2.0
    x[:, _RELATIVE] -= last[:, None]
    x[:, _LOGARITHMS] = np.log(x[:, _LOGARITHMS] + _TINY)
    return x


_RELATIVE = np.array([1, 2, 5, 7, *range(17, 28), 29])
_LOGARITHMS = np.array([6, 10, 16])


def _slope(x: Floats) -> Floats:
    """What values at x (p,) are multiplied by, and added up, for the slope of the least squares line through them."""
    centred = x - x.mean()
    square = float(centred @ centred)
    return np.asarray(centred / square if square > 0 else np.zeros_like(centred))


def _deviation(values: Floats) -> Floats:
    """(m,) standard deviations of values (m, p); 0 of none."""
    p = max(values.shape[1], 1)
    off = values - values.sum(axis=1, keepdims=True) / p
    return np.asarray(np.sqrt((off**2).sum(axis=1) / p))

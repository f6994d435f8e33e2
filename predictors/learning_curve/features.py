"""What a model sees of a curve: its scale, thirty numbers that describe its beginning, and examples to learn from.

An example is a finished curve that is cut, and continued to a later iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from predictors.learning_curve.families import shape_mixture

HISTORY_LENGTH, HORIZON, SEEN_SHARE = 12, 13, 14
"""columns: logarithms of the iterations seen and of the horizon, and the share of the horizon that was seen"""
FEATURE_COUNT = 30
_SEGMENTS = 10
_LOG_OFFSET = 1e-3
CUTS = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
"""shares of its length at which a curve of the history is cut"""
TOP = 1.05
"""the top, to which targets are relative, in normalised units: a little above 1, so that a perfect curve can move"""
_PROCESS_CUTS = frozenset({0.16, 0.25, 0.4, 0.5})
"""the cuts that, continued to the end, are training points of the Gaussian process"""


class CurveScale:
    """A linear scale for each of m curves, and the bounds of its metric.

    Curves within [0, 1] are kept, percentages are divided by 100. Of curves that are negative throughout (a loss times
    -1), the normalised value is the share of the first loss that is gone. Any other curve fills four fifths of [0, 1].

    low, unit: (m,) value = low + unit * normalised. lower, upper: (m,) bounds of the values, may be infinite.
    """

    def __init__(self, low: Floats, unit: Floats, lower: Floats, upper: Floats) -> None:
        self.low, self.unit, self.lower, self.upper = low, unit, lower, upper

    @classmethod
    def fit(cls, curves: Floats) -> CurveScale:
        """The scales of curves (m, n)."""
        low, high = curves.min(axis=1), curves.max(axis=1)
        fraction: Bools = (low >= 0.0) & (high <= 1.0)
        percent: Bools = (low >= 0.0) & (high > 1.5) & (high <= 100.0)
        negated: Bools = high < 0.0
        free = 1.25 * np.maximum(high - low, 1e-3 * np.maximum(np.abs(low), np.abs(high)))
        unit = np.where(fraction, 1.0, np.where(percent, 100.0, np.where(negated, -low, np.where(free > 0, free, 1.0))))
        bounded = fraction | percent
        lower = np.where(bounded, 0.0, -np.inf)
        upper = np.where(bounded, unit, np.where(negated, 0.0, np.inf))
        return cls(np.where(bounded, 0.0, low), unit, lower, upper)

    def normalise(self, values: Floats) -> Floats:
        """Values (m, k) of the curves on the common scale."""
        return np.asarray((values - self.low[:, None]) / self.unit[:, None])

    def denormalise(self, values: Floats) -> Floats:
        """Normalised values (m, k) in the units of the curves."""
        return np.asarray(self.low[:, None] + values * self.unit[:, None])


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


class Examples(NamedTuple):
    """n examples.

    x: (n, features). target: (n,) gain from the last value seen to the horizon, as a share of the distance to `TOP`.
    owner: (n,) number of the curve. process_point: (n,) whether the Gaussian process is fitted on the example.
    """

    x: Floats
    target: Floats
    owner: Ints
    process_point: Bools

    def followed_by(self, other: Examples, first: int) -> Examples:
        """These examples and then the other ones, whose curves are numbered from `first` on."""
        more = other._replace(owner=first + other.owner)
        return Examples(*(np.concatenate(columns) for columns in zip(self, more, strict=True)))


def make_examples(curves: Sequence[Floats], cuts: Sequence[float] = CUTS) -> Examples:
    """Examples of normalised curves: each cut is continued to the end, every other one also to three fifths of it."""
    lengths = np.array([len(curve) for curve in curves])
    x, target, owner, points = [], [], [], []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        stack = np.stack([curves[i] for i in rows.tolist()])
        process_cuts = {max(1, round(cut * length)) for cut in _PROCESS_CUTS}
        for end, shares in ((length, cuts), (round(0.6 * length), cuts[::2])):
            for n in sorted({max(1, round(share * length)) for share in shares}):
                if n < end:
                    last = stack[:, n - 1]
                    x.append(curve_features(stack[:, :n], np.full(len(rows), float(end))))
                    target.append((stack[:, end - 1] - last) / (TOP - last))
                    owner.append(rows)
                    points.append(np.full(len(rows), end == length and n in process_cuts))
    return Examples(np.concatenate(x), np.concatenate(target), np.concatenate(owner), np.concatenate(points))


def remaining_share(x: Floats) -> Floats:
    """(m,) share of the iterations up to the horizon that is still to come, for features x (m, features)."""
    return np.asarray(1.0 - x[:, SEEN_SHARE])

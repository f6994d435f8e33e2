"""What the stop rules look at in a curve: its best value, the gain of its last point, its noise."""

from dataclasses import dataclass, fields

import numpy as np

from policies.snapshot import Curves
from predictors.arrays import Bools, Floats, Ints

NOISE_WINDOW = 10
"""The noise of a curve is estimated from this many of its last points."""
RECENT = 3
"""A curve still improves if one of this many last values is the best."""
FALL_REPORTS = 10
FALL_SIGNIFICANCE = 3.0
"""in standard deviations of the trend"""
TREND_POINTS = 64
NORMAL_MAD = 0.6745
"""median |z| of a standard normal z"""


@dataclass(frozen=True)
class CurveShape:
    """Curves of at least three points, each column (r,): the best value, the gain of the last point, the noise.

    best_at: the iteration of the best value, the first one where it was reached again. first_at, first: the iteration
    and the value of the first point; at: the iteration of the last.
    """

    best: Floats
    best_at: Floats
    gain: Floats
    noise: Floats
    first_at: Floats
    first: Floats
    at: Floats

    @classmethod
    def of(cls, curves: Curves, rows: Ints) -> "CurveShape":
        """The shapes of these rows (r,) of the curves."""
        starts, ends = curves.starts[rows], curves.starts[rows + 1]
        if not len(rows):
            return cls(*[np.zeros(0)] * len(fields(cls)))
        values = np.append(curves.values, np.nan)
        last = values[ends - 1]
        before = np.fmax.reduceat(values, np.stack([starts, ends - 1], axis=1).ravel())[::2]
        at = ends[:, None] + np.arange(-NOISE_WINDOW, 0)
        points = np.where(at >= starts[:, None], values[np.maximum(at, 0)], np.nan)
        # Second differences cancel a linear trend; for independent noise they have six times its variance.
        bends = _row_medians(np.abs(np.diff(points, n=2, axis=1)))
        best = np.fmax(before, last)
        return cls(
            best=best,
            best_at=_where_first(curves, rows, best),
            gain=last - before,
            noise=bends / (NORMAL_MAD * np.sqrt(6)),
            first_at=curves.iterations[starts],
            first=curves.values[starts],
            at=curves.iterations[ends - 1],
        )


def still_improves(curves: Curves, rows: Ints) -> Bools:
    """(r,) whether the best of the last `RECENT` values is the best by more than the noise, or too few are known to
    tell. False for an empty curve."""
    lengths = curves.lengths()[rows]
    found = np.asarray((lengths > 0) & (lengths < RECENT + 2))
    known = np.flatnonzero(lengths >= RECENT + 2)
    if not len(known):
        return found
    shape = CurveShape.of(curves, rows[known])
    starts, ends = curves.starts[rows[known]], curves.starts[rows[known] + 1]
    values = np.append(curves.values, np.nan)
    before = np.fmax.reduceat(values, np.stack([starts, ends - RECENT], axis=1).ravel())[::2]
    found[known] = shape.best - before > shape.noise
    return found


def falls(curves: Curves, rows: Ints, shape: CurveShape) -> Bools:
    """(r,) whether the curves (r,) have fallen since their best value, half of their reports ago or more.

    No value of the last `FALL_REPORTS` is within the noise of the best, and since the best the values fall with
    significance, by the test of Mann (1945) and Kendall.
    """
    found = np.zeros(len(rows), dtype=bool)
    for i, row in enumerate(rows.tolist()):
        at, values = curves.row(row)
        since = values[int(np.searchsorted(at, shape.best_at[i])) :]
        if len(since) > FALL_REPORTS and 2 * (len(since) - 1) >= len(values):
            below = shape.best[i] - since[-FALL_REPORTS:].max() > shape.noise[i]
            found[i] = below and _trend(since) < -FALL_SIGNIFICANCE
    return found


def _trend(values: Floats) -> float:
    """The standard normal score of Mann and Kendall's trend of some values, at most `TREND_POINTS` of them evenly."""
    some = values[np.linspace(0, len(values) - 1, min(len(values), TREND_POINTS)).round().astype(np.int64)]
    n = len(some)
    signs = np.sign(some[None, :] - some[:, None])[np.triu_indices(n, 1)].sum()
    return float(signs / np.sqrt(n * (n - 1) * (2 * n + 5) / 18))


def _where_first(curves: Curves, rows: Ints, value: Floats) -> Floats:
    """(r,) the first iteration of each row at which it has this value (r,)."""
    lengths = curves.lengths()[rows]
    row = np.repeat(np.arange(len(rows)), lengths)
    point = np.arange(len(row)) + (curves.starts[rows] - (np.cumsum(lengths) - lengths))[row]
    equal = np.flatnonzero(curves.values[point] == value[row])
    found = np.full(len(rows), np.nan)
    found[row[equal[::-1]]] = curves.iterations[point[equal[::-1]]]
    return found


def _row_medians(table: Floats) -> Floats:
    """(n,) the median of each row of (n, k) without its NaN, NaN where all are."""
    in_order = np.sort(table, axis=1)
    count = np.isfinite(table).sum(axis=1)
    each = np.arange(len(table))
    return np.asarray((in_order[each, np.maximum(count - 1, 0) // 2] + in_order[each, count // 2]) / 2)

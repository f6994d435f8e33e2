"""SLAQ's two families of loss curves (Zhang, Stafman, Or, Freedman, SoCC 2017, section 4.1).

Each is fitted by least squares with weights that decay with age, as SLAQ does, its nonlinear parameter over a grid.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats

_DECAY = 0.9
"""weight of a point relative to that of the next one"""
_LATEST = 60
"""points that are fitted: older ones would weigh less than a five-hundredth"""
_FLOOR_DISTANCES = np.concatenate([[0.0], np.geomspace(0.002, 8.0, 40)])
"""grid of the distance of the sublinear family's d below the lowest loss, in units of the range of the losses"""
_BASES = 1.0 - np.geomspace(1e-4, 0.9, 200)
"""grid of the linear family's mu"""
_FEWEST_POINTS = 3


def _latest(losses: Floats) -> tuple[Floats, Floats, Floats]:
    """The latest losses, their iterations counted from 1, and their weights, each (k,)."""
    y = losses[-_LATEST:]
    k = np.arange(len(losses) - len(y) + 1.0, len(losses) + 1.0)
    return y, k, _DECAY ** np.arange(len(y) - 1.0, -1.0, -1.0)


def predict_sublinear(losses: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (h,) by f(k) = 1/(a k^2 + b k + c) + d, `ahead` (h,) iterations after the last loss.

    For each d of a grid, 1/(y - d) is a quadratic in k; the d that fits the losses best is taken. A quadratic with a
    pole, or that rises again before the predicted iteration, is skipped. To three losses a line in k is fitted, as a
    quadratic fits them for any d; of fewer, and where no quadratic is left, the last loss is predicted.
    """
    y, k, weight = _latest(losses)
    extent = _range(y)
    last, no_fit = np.full(len(ahead), y[-1]), np.full(len(ahead), extent)
    if len(y) < _FEWEST_POINTS:
        return last, _standard_deviation(no_fit, extent, len(losses), ahead)
    powers = np.vander(np.append(k - k[-1], ahead) / len(y), min(len(y) - 1, 3))
    gap = _FLOOR_DISTANCES[:, None] + 1e-3
    above = (y - y.min()) / extent + gap
    root = np.sqrt(weight) * above**2
    q, r = np.linalg.qr(root[:, :, None] * powers[: len(y)])
    quadratic = np.linalg.solve(r, q.transpose(0, 2, 1) @ (root / above)[:, :, None])
    past, future = np.split((powers @ quadratic)[:, :, 0], [len(y)], axis=1)
    defined: Bools = np.all(past > 0, axis=1)
    errors = (1.0 / np.where(defined[:, None], past, 1.0) - above) ** 2 @ weight / weight.sum()
    falls: Bools = defined[:, None] & (future >= past[:, -1:])
    best = np.argmin(np.where(falls, errors[:, None], np.inf), axis=0)
    at = best, np.arange(len(ahead))
    mean = y.min() + extent * (1.0 / np.where(falls[at], future[at], 1.0) - gap[best, 0])
    error = np.where(falls[at], extent * np.sqrt(errors[best]), no_fit)
    return np.where(falls[at], mean, last), _standard_deviation(error, extent, len(losses), ahead)


def predict_linear(losses: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation (h,) by f(k) = mu^(k - b) + c, `ahead` (h,) iterations after the last loss.

    For each mu of a grid, the losses are linear in mu^k; the mu that fits them best is taken.
    """
    y, k, weight = _latest(losses)
    extent = _range(y)
    above = (y - y[-1]) / extent
    power = _BASES[:, None] ** (k - k[-1])
    total = weight.sum()
    x_mean, y_mean = power @ weight / total, float(above @ weight / total)
    square = (power - x_mean[:, None]) ** 2 @ weight
    product = (power - x_mean[:, None]) @ (weight * (above - y_mean))
    gain = np.maximum(np.divide(product, square, out=np.zeros_like(product), where=square > 1e-300), 0.0)
    level = y_mean - gain * x_mean
    errors = (gain[:, None] * power + level[:, None] - above) ** 2 @ weight / total
    best = int(np.argmin(errors))
    error = np.full(len(ahead), extent * np.sqrt(errors[best]))
    mean = y[-1] + extent * (gain[best] * _BASES[best] ** ahead + level[best])
    return mean, _standard_deviation(error, extent, len(losses), ahead)


def _range(y: Floats) -> float:
    """The range of the losses, in units of which they are fitted; positive."""
    return max(float(y.max() - y.min()), 1e-9 * float(np.abs(y).max()), 1e-300)


def _standard_deviation(error: Floats, extent: float, points: int, ahead: Floats) -> Floats:
    """(h,) standard deviations: the residual error, growing with the iterations ahead, and a share of the range that
    shrinks with the number of points."""
    return np.asarray(np.hypot(error * np.sqrt(1.0 + ahead / points), extent / points)) + 1e-12

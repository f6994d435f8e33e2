"""Simple laws by which a loss may go on: lines, changes that shrink, linear prediction.

Everything is in units of the reach: the size of a change, times the iterations ahead.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats

_SPANS = np.array([6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0])[:, None]
"""points of a line: of the logarithm by iterations, by their logarithm, and of the loss by iterations"""
LOGS = 8
"""lines through logarithms: the first"""
_LAGS = 5
_ORDERS = np.array([2, 5])
_EACH = np.arange(40)[:, None] + np.arange(_LAGS + 1)
_OLDER = 0.9 ** np.arange(40.0)
_UNUSED = np.arange(_LAGS) >= _ORDERS[:, None]
_RIDGE = (1e-6 + 1e6 * _UNUSED)[:, :, None] * np.eye(_LAGS) / _LAGS
_LEAST = 1e-9 * np.eye(_LAGS)
_FURTHEST = 40.0
"""iterations over which steps are predicted one from the other"""
_STEP = np.array([1, 3, 5, 10])
_TENTHS = np.linspace(0.0, 1.0, 10)
_TINY = 1e-9


def lines(z: Floats, logs: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats, Floats]:
    """Through the latest of z (n, w) and of logs (n, w): where each line ends, its level now, its distance, (n, 11)."""
    age = np.arange(z.shape[1] - 1.0, -1.0, -1.0)
    shape = (len(z), len(_SPANS), z.shape[1])
    x, y, to = np.empty(shape), np.empty(shape), np.empty(shape[:2])
    x[:] = -age
    x[:, 4:LOGS] = np.log(np.maximum(k[:, None] - age, 1.0) / k[:, None])[:, None]
    to[:] = ahead[:, None]
    to[:, 4:LOGS] = np.log1p(ahead / k)[:, None]
    y[:, :LOGS], y[:, LOGS:] = logs[:, None], z[:, None]
    points = np.minimum(_SPANS, k[:, None, None])
    weight = (age < points) / points
    x_mean, y_mean = (x * weight).sum(axis=2), (y * weight).sum(axis=2)
    off = weight * (x - x_mean[:, :, None])
    square, product = (off * x).sum(axis=2), (off * y).sum(axis=2)
    slope = product / np.where(square > 0, square, 1.0)
    level = y_mean - slope * x_mean
    apart = np.sqrt(np.maximum((weight * y**2).sum(axis=2) - y_mean**2 - slope * product, 0.0))
    return level + slope * to, level, apart


def declines(changes: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """From changes (n, w) over 0, 1, .. iterations back: mean changes an iteration to come (n, 7), and ratios (n, 4).

    If changes shrink by the ratio of the latest two over 1, 3, 5, 10 iterations (Aitken's extrapolation); the latest
    one, by the power law of its decline; if it falls as 1/k^2.
    """
    later = changes[:, _STEP]
    earlier = changes[:, 2 * _STEP] - later
    ratio = np.clip(later / np.where(np.abs(earlier) < _TINY, _TINY, earlier), -3.0, 3.0)
    q = np.clip(np.clip(ratio, 0.0, 1.0) ** (1.0 / _STEP), 0.0, 0.9999)
    latest = later * q ** (_STEP - 1) * (1.0 - q) / np.maximum(1.0 - q**_STEP, 1e-12)
    shrinking = latest * q * (1.0 - q ** ahead[:, None]) / (1.0 - q) / ahead[:, None]

    slope, centre = changes[:, 5] / 5.0, np.maximum(k - 2.5, 0.5)
    exponent = np.clip(-np.log(np.clip(ratio[:, 2], 1e-3, 1.5)) / np.log((k + 2.5) / centre), -1.0, 6.0)
    to_come = (k[:, None] + 1.0 + (ahead[:, None] - 1.0) * _TENTHS) / centre[:, None]
    power = slope * (to_come ** -exponent[:, None]).mean(axis=1)
    rest = np.array([slope, power, slope * centre**2 / (k * (k + ahead))]).T
    return np.concatenate([shrinking, rest], axis=1), ratio


def linear_prediction(steps: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Each step a weighted sum of the two, or the five, before it, as swings of momentum are (de Prony 1795).

    From steps (n, w), the latest first: the mean step to come, and the distance of those known from it, (n, 2).
    """
    seen = steps[:, _EACH]
    weight = (_EACH[:, 0] < (k[:, None] - 1.0 - _ORDERS)[:, :, None]) * _OLDER
    gram = np.swapaxes(seen[:, None] * weight[:, :, :, None], 2, 3) @ seen[:, None]
    lagged, target = gram[:, :, 1:, 1:], gram[:, :, 1:, :1]
    size = np.trace(lagged, axis1=2, axis2=3)[:, :, None, None]
    weights = np.linalg.solve(lagged + size * _RIDGE + _LEAST, target)
    left = gram[:, :, 0, 0] - (weights * (2.0 * target - lagged @ weights)).sum(axis=(2, 3))
    apart = np.sqrt(np.maximum(left, 0.0) / np.maximum(weight.sum(axis=2), _TINY))

    # The last row of the matrix adds up the steps; its powers therefore are their sums.
    matrix = np.zeros((len(steps), len(_ORDERS), _LAGS + 1, _LAGS + 1))
    matrix[:, :, 0, :_LAGS] = matrix[:, :, _LAGS, :_LAGS] = weights[:, :, :, 0]
    matrix[:, :, np.arange(1, _LAGS), np.arange(_LAGS - 1)] = 1.0
    matrix[:, :, _LAGS, _LAGS] = 1.0
    total = np.empty((len(steps), len(_ORDERS)))
    near = np.minimum(ahead, _FURTHEST)
    for count in set(near.tolist()):
        rows = near == count
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.linalg.matrix_power(matrix[rows], int(count))[:, :, _LAGS, :_LAGS]
            total[rows] = (power * steps[rows, None, :_LAGS]).sum(axis=2)
    return total / ahead[:, None], apart

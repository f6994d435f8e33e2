"""Simple laws by which a loss may go on: changes that shrink, linear prediction.

Everything is in units of the reach: the size of a change, times the iterations ahead.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats, clipped

_LAGS = 5
_ORDERS = np.array([2, 5])
_EVERY = np.arange(_LAGS)
_EACH = np.arange(40)[:, None] + np.arange(_LAGS + 1)
_OLDER = 0.9 ** np.arange(40.0)
_UNUSED = np.arange(_LAGS) >= _ORDERS[:, None]
_RIDGE = (1e-6 + 1e6 * _UNUSED)[:, :, None] * np.eye(_LAGS) / _LAGS
_LEAST = 1e-9 * np.eye(_LAGS)
_SHIFT = np.eye(_LAGS + 1, k=-1)
_SHIFT[_LAGS] = np.arange(_LAGS + 1) == _LAGS
"""each step becomes the one before; but for how the next comes of them"""
_FURTHEST = 40.0
"""iterations over which steps are predicted one from the other"""
_STEP = np.array([1, 3, 5, 10])
_TENTHS = np.linspace(0.0, 1.0, 10)
_TINY = 1e-9


def declines(changes: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """From changes (n, w) over 0, 1, .. iterations back: mean changes an iteration to come (n, 7), and ratios (n, 4).

    If changes shrink by the ratio of the latest two over 1, 3, 5, 10 iterations (Aitken's extrapolation); the latest
    one, by the power law of its decline; if it falls as 1/k^2.
    """
    later = changes[:, _STEP]
    earlier = changes[:, 2 * _STEP] - later
    ratio = clipped(later / np.where(np.abs(earlier) < _TINY, _TINY, earlier), -3.0, 3.0)
    q = clipped(clipped(ratio, 0.0, 1.0) ** (1.0 / _STEP), 0.0, 0.9999)
    latest = later * q ** (_STEP - 1) * (1.0 - q) / np.maximum(1.0 - q**_STEP, 1e-12)
    shrinking = latest * q * (1.0 - q ** ahead[:, None]) / (1.0 - q) / ahead[:, None]

    slope, centre = changes[:, 5] / 5.0, np.maximum(k - 2.5, 0.5)
    exponent = clipped(-np.log(clipped(ratio[:, 2], 1e-3, 1.5)) / np.log((k + 2.5) / centre), -1.0, 6.0)
    to_come = (k[:, None] + 1.0 + (ahead[:, None] - 1.0) * _TENTHS) / centre[:, None]
    power = slope * (to_come ** -exponent[:, None]).sum(axis=1) / len(_TENTHS)
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
    size = lagged[:, :, _EVERY, _EVERY].sum(axis=2)[:, :, None, None]
    weights = np.linalg.solve(lagged + size * _RIDGE + _LEAST, target)
    left = gram[:, :, 0, 0] - (weights * (2.0 * target - lagged @ weights)).sum(axis=(2, 3))
    apart = np.sqrt(np.maximum(left, 0.0) / np.maximum(weight.sum(axis=2), _TINY))

    # The last row of the matrix adds up the steps; its powers therefore are their sums.
    matrix = np.empty((len(steps), len(_ORDERS), _LAGS + 1, _LAGS + 1))
    matrix[:] = _SHIFT
    matrix[:, :, 0, :_LAGS] = matrix[:, :, _LAGS, :_LAGS] = weights[:, :, :, 0]
    total = np.empty((len(steps), len(_ORDERS)))
    near = np.minimum(ahead, _FURTHEST)
    counts = set(near.tolist())
    with np.errstate(over="ignore", invalid="ignore"):
        for count in counts:
            rows = slice(None) if len(counts) == 1 else near == count
            total[rows] = (_sums(matrix[rows], int(count)) * steps[rows, None, :_LAGS]).sum(axis=2)
    return total / ahead[:, None], apart


def _sums(matrix: Floats, count: int) -> Floats:
    """(.., _LAGS) the last row, but for its end, of a power of matrices (.., _LAGS + 1, _LAGS + 1)."""
    row, power, count = matrix[:, :, _LAGS:], matrix, count - 1
    while count:
        if count % 2:
            row = row @ power
        power = power @ power
        count //= 2
    return row[:, :, 0, :_LAGS]

"""Extrapolation rules for a loss: changes that shrink, and linear prediction of the steps.

They are experts of the network (`network`). Changes and steps come in units of the mean size of recent changes.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats, clip

_LAGS = 5
_ORDERS = np.array([2, 5])
_DIAGONAL = np.arange(_LAGS)
_LAGGED = np.arange(40)[:, None] + np.arange(_LAGS + 1)
_AGE_WEIGHT = 0.9 ** np.arange(40.0)
_UNUSED = np.arange(_LAGS) >= _ORDERS[:, None]
_RIDGE = (1e-6 + 1e6 * _UNUSED)[:, :, None] * np.eye(_LAGS) / _LAGS
_MIN_RIDGE = 1e-9 * np.eye(_LAGS)
_SHIFT = np.eye(_LAGS + 1, k=-1)
_SHIFT[_LAGS] = np.arange(_LAGS + 1) == _LAGS
"""moves each step to the place of the one before it; the first row, the prediction, is filled in"""
_MAX_AHEAD = 40.0
"""iterations ahead up to which steps are predicted; further ones are taken to be 0"""
_SPANS = np.array([1, 3, 5, 10])
_TENTHS = np.linspace(0.0, 1.0, 10)
_TINY = 1e-9


def shrinking_changes(changes: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean change of an iteration ahead, by seven rules (n, 7), and the ratios of successive changes (n, 4).

    changes: (n, w) of the loss over the last 0, 1, .. iterations. k, ahead: (n,) iterations seen, and to predict. The
    rules: changes shrink by the ratio of the latest two over 1, 3, 5 and 10 iterations (Aitken's extrapolation); the
    latest change stays; it shrinks by the power law of its decline; it shrinks as 1/k^2.
    """
    later = changes[:, _SPANS]
    earlier = changes[:, 2 * _SPANS] - later
    ratio = clip(later / np.where(np.abs(earlier) < _TINY, _TINY, earlier), -3.0, 3.0)
    q = clip(clip(ratio, 0.0, 1.0) ** (1.0 / _SPANS), 0.0, 0.9999)
    latest = later * q ** (_SPANS - 1) * (1.0 - q) / np.maximum(1.0 - q**_SPANS, 1e-12)
    shrinking = latest * q * (1.0 - q ** ahead[:, None]) / (1.0 - q) / ahead[:, None]

    slope, centre = changes[:, 5] / 5.0, np.maximum(k - 2.5, 0.5)
    exponent = clip(-np.log(clip(ratio[:, 2], 1e-3, 1.5)) / np.log((k + 2.5) / centre), -1.0, 6.0)
    relative_iterations = (k[:, None] + 1.0 + (ahead[:, None] - 1.0) * _TENTHS) / centre[:, None]
    power = slope * (relative_iterations ** -exponent[:, None]).sum(axis=1) / len(_TENTHS)
    rest = np.array([slope, power, slope * centre**2 / (k * (k + ahead))]).T
    return np.concatenate([shrinking, rest], axis=1), ratio


def linear_prediction(steps: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """Mean step of the iterations ahead, and the root mean square error on the known steps, both (n, 2).

    Each step is predicted as a weighted sum of the two, or of the five, before it, as oscillations of momentum are
    (de Prony 1795). steps: (n, w), the latest first. k, ahead: (n,) iterations seen, and to predict.
    """
    windows = steps[:, _LAGGED]
    weight = (_LAGGED[:, 0] < (k[:, None] - 1.0 - _ORDERS)[:, :, None]) * _AGE_WEIGHT
    gram = np.swapaxes(windows[:, None] * weight[:, :, :, None], 2, 3) @ windows[:, None]
    gram_lags, target = gram[:, :, 1:, 1:], gram[:, :, 1:, :1]
    size = gram_lags[:, :, _DIAGONAL, _DIAGONAL].sum(axis=2)[:, :, None, None]
    weights = np.linalg.solve(gram_lags + size * _RIDGE + _MIN_RIDGE, target)
    residual = gram[:, :, 0, 0] - (weights * (2.0 * target - gram_lags @ weights)).sum(axis=(2, 3))
    error = np.sqrt(np.maximum(residual, 0.0) / np.maximum(weight.sum(axis=2), _TINY))

    # The last row of the matrix accumulates the predicted steps, so that of its power is their sum.
    matrix = np.empty((len(steps), len(_ORDERS), _LAGS + 1, _LAGS + 1))
    matrix[:] = _SHIFT
    matrix[:, :, 0, :_LAGS] = matrix[:, :, _LAGS, :_LAGS] = weights[:, :, :, 0]
    total = np.empty((len(steps), len(_ORDERS)))
    ahead_bounded = np.minimum(ahead, _MAX_AHEAD)
    counts = set(ahead_bounded.tolist())
    with np.errstate(over="ignore", invalid="ignore"):
        for count in counts:
            rows = slice(None) if len(counts) == 1 else ahead_bounded == count
            total[rows] = (_last_row_of_power(matrix[rows], int(count)) * steps[rows, None, :_LAGS]).sum(axis=2)
    return total / ahead[:, None], error


def _last_row_of_power(matrix: Floats, count: int) -> Floats:
    """(.., _LAGS) last row, without its last entry, of matrices (.., _LAGS + 1, _LAGS + 1) to the power `count`."""
    row, power, count = matrix[:, :, _LAGS:], matrix, count - 1
    while count:
        if count % 2:
            row = row @ power
        power = power @ power
        count //= 2
    return row[:, :, 0, :_LAGS]

"""Weighted least squares fits to the latest losses: shapes of decline, and straight lines.

Shapes are exponentials in the iteration and power laws from several origins, each as level + gain * shape; older points
weigh less. They are averaged by their likelihood, tempered because neighbouring residuals are correlated. Lines are
fitted to spans of the latest points: logarithms of the loss against the iteration and against its logarithm, and
the loss against the iteration.

For a given number of points, every fit is linear in the losses and their squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats

WINDOW = 60
"""latest points that are fitted"""
LOG_LINES = 8
"""the first lines are fitted to logarithms of the loss"""
_AGE = np.arange(WINDOW - 1.0, -1.0, -1.0)
_AGE_WEIGHT = 0.9**_AGE
_TEMPERATURE = 0.5
_FACTORS = 1.0 - np.concatenate([[-0.03, -0.01], np.geomspace(0.004, 0.7, 16)])
"""factors of an exponential for each iteration; the first two diverge"""
_EXPONENTIAL = _FACTORS ** -_AGE[:, None]
_ORIGINS = np.array([0.0, 2.0, 8.0, 30.0])
"""iterations before the first one at which a power law starts"""
_POWERS = np.array([0.3, 0.7, 1.0, 1.5, 2.5, 4.0])
_EXPONENTIALS = len(_FACTORS)
_SHAPES = _EXPONENTIALS + len(_ORIGINS) * len(_POWERS)
_MIXTURES = np.zeros((_SHAPES, 3))
_MIXTURES[:, 0] = 1.0
_MIXTURES[:_EXPONENTIALS, 1] = 1.0
_MIXTURES[_EXPONENTIALS:, 2] = 1.0
"""members of the three mixtures: all shapes, exponentials, power laws"""
_SPANS = np.array([6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0])
"""points of each line: log loss against iterations, against their logarithm, and loss against iterations"""
_LINES = len(_SPANS)
_BY_LOG = slice(4, LOG_LINES)
_SLOPES = slice(_SHAPES, _SHAPES + _LINES)
_MEANS = slice(_SHAPES + _LINES, _SHAPES + 2 * _LINES)
_OFFSETS = np.cumsum([WINDOW, _SHAPES, _SHAPES, _LINES, _LINES])


@lru_cache(maxsize=512)
def _design(k: float) -> tuple[Floats, Floats]:
    """What the fits to all curves of k points have in common.

    First, (WINDOW, columns): the matrix by which the latest losses, less their mean, are multiplied for their products
    with each shape, and for the slope and the mean of each line. Second, concatenated (`_OFFSETS` are the ends):
    weights of the points, mean and variance of the shapes, mean and variance of the lines' x, sum of the weights.
    """
    weight = (k > _AGE) * _AGE_WEIGHT
    points = float(weight.sum())
    weight /= points
    start = k + _ORIGINS
    since = np.log(np.maximum(start - _AGE[:, None], 1.0) / start)
    powers = np.exp(-since[:, :, None] * _POWERS).reshape(WINDOW, -1)
    shape = np.concatenate([_EXPONENTIAL, powers], axis=1)
    mean = weight @ shape
    centred = weight[:, None] * (shape - mean)
    variance = np.maximum((centred * (shape - mean)).sum(axis=0), 1e-14)

    x = np.repeat(-_AGE[None], _LINES, axis=0)
    x[_BY_LOG] = np.log(np.maximum(k - _AGE, 1.0) / k)
    span = np.minimum(_SPANS, k)[:, None]
    uniform = (span > _AGE) / span
    x_mean = (x * uniform).sum(axis=1)
    deviation = uniform * (x - x_mean[:, None])
    square = (deviation * x).sum(axis=1)
    slope = deviation / np.where(square > 0, square, 1.0)[:, None]
    statistics = np.concatenate([weight, mean, variance, x_mean, square, [points]])
    return np.concatenate([centred, slope.T, uniform.T], axis=1), statistics


@dataclass(frozen=True)
class LeastSquaresFits:
    """Fits to n curves, as losses and as logarithms (an axis of length 2, in this order).

    mixtures: (n, 2, 3) predictions of the mixtures of all shapes, of the exponentials and of the power laws.
    disagreement, error: (n, 2) standard deviation of the shapes' predictions, and their root mean square residual.
    exponential: (n, 2) weight of the exponentials. line_ends, line_levels, line_errors: (n, lines) prediction of each
    line, its value at the latest point, and its root mean square residual.
    """

    mixtures: Floats
    disagreement: Floats
    error: Floats
    exponential: Floats
    line_ends: Floats
    line_levels: Floats
    line_errors: Floats


def fit_least_squares(y: Floats, k: Floats, ahead: Floats) -> LeastSquaresFits:
    """Fit to y (n, 2, WINDOW), the latest losses and their logarithms, and predict `ahead` (n,) iterations further.

    k: (n,) number of points of each curve.
    """
    lengths = k.tolist()
    designs = [_design(length) for length in (lengths if len(set(lengths)) > 1 else lengths[:1])]
    statistics = np.array([statistics for _, statistics in designs])
    weight, mean, variance, x_mean, x_square, points = np.split(statistics, _OFFSETS, axis=1)
    level = (y @ weight[:, :, None])[:, :, 0]
    y = y - level[:, :, None]
    square = y**2
    products = np.concatenate([y, square], axis=1) @ np.array([product for product, _ in designs])
    mean_square = square @ weight[:, :, None]
    product, line_squares = products[:, :2, :_SHAPES], products[:, 2:, _MEANS]

    start = k[:, None] + _ORIGINS
    future = np.empty((len(y), 1, _SHAPES))
    future[:, 0, :_EXPONENTIALS] = _FACTORS ** ahead[:, None]
    future[:, 0, _EXPONENTIALS:] = np.exp(-np.log1p(ahead[:, None] / start)[:, :, None] * _POWERS).reshape(len(y), -1)
    gain = product / variance[:, None]
    value = level[:, :, None] + gain * (future - mean[:, None])
    square_error = np.maximum(mean_square - gain * product, 1e-12 * (mean_square + level[:, :, None] ** 2) + 1e-300)
    likelihood = (-0.5 * _TEMPERATURE * np.maximum(points - 2.0, 0.5))[:, :, None] * np.log(square_error)
    share = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    floored = share + 1e-12
    mixtures = (floored * value) @ _MIXTURES / (floored @ _MIXTURES)
    disagreement = np.sqrt((share * (value - mixtures[:, :, :1]) ** 2).sum(axis=2))
    exponential = share[:, :, :_EXPONENTIALS].sum(axis=2)

    slope, y_mean, y_square = (
        _select_lines(part) for part in (products[:, :2, _SLOPES], products[:, :2, _MEANS], line_squares)
    )
    levels = _select_lines(level[:, :, None] + np.zeros(_LINES)) + y_mean - slope * x_mean
    line_ahead = np.empty((len(y), _LINES))
    line_ahead[:] = ahead[:, None]
    line_ahead[:, _BY_LOG] = np.log1p(ahead / k)[:, None]
    line_errors = np.sqrt(np.maximum(y_square - y_mean**2 - slope**2 * x_square, 0.0))
    error = np.sqrt((share * square_error).sum(axis=2))
    return LeastSquaresFits(
        mixtures, disagreement, error, exponential, levels + slope * line_ahead, levels, line_errors
    )


def _select_lines(products: Floats) -> Floats:
    """(n, lines) of (n, 2, lines): the first lines are those of the logarithms."""
    return np.concatenate([products[:, 1, :LOG_LINES], products[:, 0, LOG_LINES:]], axis=1)

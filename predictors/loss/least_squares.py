"""Least squares fits to the latest of a loss curve: shapes of decline, and lines.

Shapes are exponentials in the iteration and powers of it from several origins, each as level + gain * shape; older
points weigh less. They are mixed by how well they fit, their likelihood tempered as neighbouring residuals are alike.
Lines go through spans of the latest points: of logarithms by iterations and by their logarithm, and of losses.

All of it is linear in the losses and in their squares once their number is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats

WINDOW = 60
"""points that are looked at"""
LOGS = 8
"""lines through logarithms: the first"""
_AGE = np.arange(WINDOW - 1.0, -1.0, -1.0)
_DECAYED = 0.9**_AGE
_TEMPER = 0.5
_FACTORS = 1.0 - np.concatenate([[-0.03, -0.01], np.geomspace(0.004, 0.7, 16)])
"""of an exponential, an iteration: the first two run away from their level"""
_EXPONENTIAL = _FACTORS ** -_AGE[:, None]
_ORIGINS = np.array([0.0, 2.0, 8.0, 30.0])
"""iterations before the first at which a power starts"""
_POWERS = np.array([0.3, 0.7, 1.0, 1.5, 2.5, 4.0])
_EXPONENTIALS = len(_FACTORS)
_SHAPES = _EXPONENTIALS + len(_ORIGINS) * len(_POWERS)
_PARTS = np.zeros((_SHAPES, 3))
_PARTS[:, 0] = 1.0
_PARTS[:_EXPONENTIALS, 1] = 1.0
_PARTS[_EXPONENTIALS:, 2] = 1.0
"""what the three mixtures are of: all shapes, exponentials, powers"""
_SPANS = np.array([6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0, 60.0, 6.0, 12.0, 24.0])
"""points of a line: of the logarithm by iterations, by their logarithm, and of the loss by iterations"""
_LINES = len(_SPANS)
_BY_LOG = slice(4, LOGS)
_SLOPES = slice(_SHAPES, _SHAPES + _LINES)
_MEANS = slice(_SHAPES + _LINES, _SHAPES + 2 * _LINES)


_REST = np.cumsum([WINDOW, _SHAPES, _SHAPES, _LINES, _LINES])


@lru_cache(maxsize=512)
def _plan(k: float) -> tuple[Floats, Floats]:
    """Fits to curves of k points, as far as no loss changes them.

    (WINDOW, ..) what the latest losses, less their mean, are multiplied by for their products with each shape, and the
    slope and the mean of each line. And one after the other (`_REST` are the ends): weights of the points, mean and
    variance of the shapes, mean and square of the lines' x, what the weights added up to.
    """
    weight = (k > _AGE) * _DECAYED
    points = float(weight.sum())
    weight /= points
    start = k + _ORIGINS
    since = np.log(np.maximum(start - _AGE[:, None], 1.0) / start)
    powers = np.exp(-since[:, :, None] * _POWERS).reshape(WINDOW, -1)
    shape = np.concatenate([_EXPONENTIAL, powers], axis=1)
    mean = weight @ shape
    apart = weight[:, None] * (shape - mean)
    variance = np.maximum((apart * (shape - mean)).sum(axis=0), 1e-14)

    x = np.repeat(-_AGE[None], _LINES, axis=0)
    x[_BY_LOG] = np.log(np.maximum(k - _AGE, 1.0) / k)
    span = np.minimum(_SPANS, k)[:, None]
    even = (span > _AGE) / span
    x_mean = (x * even).sum(axis=1)
    off = even * (x - x_mean[:, None])
    square = (off * x).sum(axis=1)
    slope = off / np.where(square > 0, square, 1.0)[:, None]
    rest = np.concatenate([weight, mean, variance, x_mean, square, [points]])
    return np.concatenate([apart, slope.T, even.T], axis=1), rest


@dataclass(frozen=True)
class Fits:
    """Of two looks at n curves, the losses and their logarithms, in their order.

    mixed: (n, 2, 3) what mixtures of all shapes, of the exponentials and of the powers expect. disagreement, distance,
    exponential: (n, 2) how far the shapes are apart, how far from the losses, and the share of the exponentials.
    ends, levels, off: (n, lines) where each line ends, its level now, its distance.
    """

    mixed: Floats
    disagreement: Floats
    distance: Floats
    exponential: Floats
    ends: Floats
    levels: Floats
    off: Floats


def fits(y: Floats, k: Floats, ahead: Floats) -> Fits:
    """To y (n, 2, WINDOW), the latest losses and their logarithms, of k (n,) points, to go on for `ahead` (n,)."""
    lengths = k.tolist()
    plans = [_plan(length) for length in (lengths if len(set(lengths)) > 1 else lengths[:1])]
    weight, mean, variance, x_mean, x_square, points = np.split(np.array([rest for _, rest in plans]), _REST, axis=1)
    level = (y @ weight[:, :, None])[:, :, 0]
    y = y - level[:, :, None]
    square = y**2
    told = np.concatenate([y, square], axis=1) @ np.array([product for product, _ in plans])
    mean_square = square @ weight[:, :, None]
    product, line_squares = told[:, :2, :_SHAPES], told[:, 2:, _MEANS]

    start = k[:, None] + _ORIGINS
    to = np.empty((len(y), 1, _SHAPES))
    to[:, 0, :_EXPONENTIALS] = _FACTORS ** ahead[:, None]
    to[:, 0, _EXPONENTIALS:] = np.exp(-np.log1p(ahead[:, None] / start)[:, :, None] * _POWERS).reshape(len(y), -1)
    gain = product / variance[:, None]
    value = level[:, :, None] + gain * (to - mean[:, None])
    error = np.maximum(mean_square - gain * product, 1e-12 * (mean_square + level[:, :, None] ** 2) + 1e-300)
    likelihood = (-0.5 * _TEMPER * np.maximum(points - 2.0, 0.5))[:, :, None] * np.log(error)
    share = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    faint = share + 1e-12
    mixed = (faint * value) @ _PARTS / (faint @ _PARTS)
    disagreement = np.sqrt((share * (value - mixed[:, :, :1]) ** 2).sum(axis=2))
    distance = np.sqrt((share * error).sum(axis=2))

    slope, y_mean, y_square = (_of_lines(part) for part in (told[:, :2, _SLOPES], told[:, :2, _MEANS], line_squares))
    levels = _of_lines(level[:, :, None] + np.zeros(_LINES)) + y_mean - slope * x_mean
    further = np.empty((len(y), _LINES))
    further[:] = ahead[:, None]
    further[:, _BY_LOG] = np.log1p(ahead / k)[:, None]
    off = np.sqrt(np.maximum(y_square - y_mean**2 - slope**2 * x_square, 0.0))
    return Fits(
        mixed, disagreement, distance, share[:, :, :_EXPONENTIALS].sum(axis=2), levels + slope * further, levels, off
    )  # fmt: skip


def _of_lines(told: Floats) -> Floats:
    """(n, lines) of (n, 2, lines): the first lines go through logarithms."""
    return np.concatenate([told[:, 1, :LOGS], told[:, 0, LOGS:]], axis=1)

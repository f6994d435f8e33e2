"""Where shapes of decline take a loss curve: level + gain * shape by weighted least squares, for each of a bank.

Shapes are exponentials in the iteration and powers of it from several origins; older points weigh less. They are mixed
by how well they fit, their likelihood tempered as neighbouring residuals are alike.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats

_DECAY = 0.9
_TEMPER = 0.5
_FACTORS = 1.0 - np.concatenate([[-0.03, -0.01], np.geomspace(0.004, 0.7, 16)])
"""of an exponential, an iteration: the first two run away from their level"""
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


def shape_fits(y: Floats, k: Floats, ahead: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Of c looks at the latest losses of n curves, y (n, c, w) with k (n,) points, `ahead` (n,) iterations on.

    What mixtures of all shapes, of the exponentials and of the powers expect (n, c, 3), how far the shapes are apart,
    how far from y, and the share of the exponentials, each (n, c).
    """
    age = np.arange(y.shape[2] - 1.0, -1.0, -1.0)
    weight = (age < k[:, None]) * _DECAY**age
    points = weight.sum(axis=1)
    weight /= points[:, None]

    start = k[:, None] + _ORIGINS
    since = np.log(np.maximum(start[:, None] - age[:, None], 1.0) / start[:, None])
    shape = np.empty((len(y), len(age), _SHAPES))
    shape[:, :, :_EXPONENTIALS] = _FACTORS ** -age[:, None]
    shape[:, :, _EXPONENTIALS:] = np.exp(-since[:, :, :, None] * _POWERS).reshape(len(y), len(age), -1)
    to = np.empty((len(y), 1, _SHAPES))
    to[:, 0, :_EXPONENTIALS] = _FACTORS ** ahead[:, None]
    to[:, 0, _EXPONENTIALS:] = np.exp(-np.log1p(ahead[:, None] / start)[:, :, None] * _POWERS).reshape(len(y), -1)

    weighted = y * weight[:, None]
    level = weighted.sum(axis=2, keepdims=True)
    square = (weighted * y).sum(axis=2, keepdims=True)
    mean = weight[:, None] @ shape
    variance = np.maximum(weight[:, None] @ shape**2 - mean**2, 1e-14)
    product = weighted @ shape - level * mean
    gain = product / variance
    value = level + gain * (to - mean)
    error = np.maximum(square - level**2 - gain * product, 1e-12 * square + 1e-300)

    likelihood = -0.5 * _TEMPER * np.maximum(points - 2.0, 0.5)[:, None, None] * np.log(error)
    share = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    faint = share + 1e-12
    mixed = (faint * value) @ _PARTS / (faint @ _PARTS)
    apart = np.sqrt((share * (value - mixed[:, :, :1]) ** 2).sum(axis=2))
    return mixed, apart, np.sqrt((share * error).sum(axis=2)), share[:, :, :_EXPONENTIALS].sum(axis=2)

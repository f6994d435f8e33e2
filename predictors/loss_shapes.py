"""Where shapes of decline take a loss curve: level + gain * shape by weighted least squares, for each of a bank.

Shapes are exponentials in the iteration and powers of it from several origins; older points weigh less. They are mixed
by how well they fit, their likelihood tempered as neighbouring residuals are alike.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats

_DECAY = 0.9
_TEMPER = 0.5
_FACTORS = 1.0 - np.geomspace(0.004, 0.7, 16)
"""of an exponential, an iteration"""
_ORIGINS = np.array([0.0, 2.0, 8.0, 30.0])
"""iterations before the first at which a power starts"""
_POWERS = (0.3, 0.7, 1.0, 1.5, 2.5, 4.0)
_BOUND = 20.0


def shape_features(y: Floats, k: Floats, ahead: Floats, reach: Floats) -> list[Floats]:
    """Of the latest losses less the last one, y (n, w), of curves of k (n,) points, in units of reach (n,).

    Four of (n,): the mixture's mean, the logarithms of the shapes' disagreement and of their distance from the losses,
    and the share of the exponentials.
    """
    size = np.maximum(np.abs(y).max(axis=1), 1e-300)
    age = np.arange(y.shape[1] - 1.0, -1.0, -1.0)
    weight = (age < k[:, None]) * _DECAY**age
    points = weight.sum(axis=1, keepdims=True)
    weight, y = weight / points, y / size[:, None]

    falling = _FACTORS ** (y.shape[1] - 1.0 - age[:, None])
    to = falling[-1] * _FACTORS ** ahead[:, None]
    fits = [_fits(y, weight, np.broadcast_to(falling, (len(y), *falling.shape)), to)]
    start = k[:, None] + _ORIGINS
    since = np.log(np.maximum(start[:, None] - age[:, None], 1.0) / start[:, None])
    to = np.log1p(ahead[:, None] / start)
    fits += [_fits(y, weight, np.exp(-power * since), np.exp(-power * to)) for power in _POWERS]

    value, error = (np.concatenate(parts, axis=1) for parts in zip(*fits, strict=True))
    likelihood = -0.5 * _TEMPER * np.maximum(points - 2.0, 0.5) * np.log(error)
    share = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    mean = (share * value).sum(axis=1)
    apart = np.sqrt((share * (value - mean[:, None]) ** 2).sum(axis=1))
    off = np.sqrt((share * error).sum(axis=1))
    scale = size / reach
    return [
        np.clip(mean * scale, -_BOUND, _BOUND), np.log(apart * scale + 1e-6), np.log(off * scale + 1e-6),
        share[:, : len(_FACTORS)].sum(axis=1),
    ]  # fmt: skip


def _fits(y: Floats, weight: Floats, shape: Floats, to: Floats) -> tuple[Floats, Floats]:
    """Of y (n, w) by each shape (n, w, s): the value where the shape is `to` (n, s), the mean square error (n, s)."""
    level = (weight * y).sum(axis=1, keepdims=True)
    square = (weight * y**2).sum(axis=1, keepdims=True)
    mean = np.einsum("nw,nws->ns", weight, shape)
    off = shape - mean[:, None]
    variance = np.einsum("nw,nws->ns", weight, off**2)
    product = np.einsum("nw,nws->ns", weight * y, off)
    gain = product / np.maximum(variance, 1e-300)
    error = np.maximum(square - level**2 - gain * product, 1e-12 * square + 1e-300)
    return level + gain * (to - mean), error

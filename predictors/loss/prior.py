"""The prior over loss curves, from which the network of `LossPredictor` is trained.

Gradient descent on a quadratic is a sum of exponentials over its spectrum, slowed where the learning rate decays;
momentum makes it oscillate. First-order methods on other convex losses follow power laws. Neural networks fall late and
in stages, alternating minimisation (k-means, topic models) at once and then in small drops. Mini-batches add noise.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy.signal import lfilter

from predictors.arrays import Floats

_MODES = 8


def sample_prior_losses(length: int, count: int, random: Generator) -> Floats:
    """(count, length) loss curves that fall from about 1 towards a floor."""
    k = np.arange(0.0, length)
    kinds = [_descent, _descent, _power_law, _late, _immediate]
    share = -(-count // len(kinds))
    falling = np.concatenate([kind(k, share, random) for kind in kinds])[:count]
    floor = np.where(random.random(count) < 0.3, 0.0, random.uniform(0.0, 20.0, count) ** 1.5 / 20.0)[:, None]
    return falling + floor + _noise(falling, random)


def _descent(k: Floats, count: int, random: Generator) -> Floats:
    rates = np.exp(random.uniform(np.log(1e-4), 0.0, (count, _MODES)))
    gains = random.exponential(1.0, (count, _MODES)) * rates ** random.uniform(-0.3, 0.3, (count, 1))
    decay = np.where(random.random(count) < 0.6, 0.0, np.exp(random.uniform(np.log(0.003), np.log(0.5), count)))
    time = np.where(decay[:, None] > 0, np.log1p(decay[:, None] * k) / np.maximum(decay[:, None], 1e-9), k)
    falling = np.einsum("cm,cmk->ck", gains, np.exp(-rates[:, :, None] * time[:, None, :]))
    oscillation = np.where(random.random(count) < 0.15, random.uniform(0.0, 0.5, count), 0.0)[:, None]
    damping = np.exp(random.uniform(np.log(0.02), np.log(0.3), (count, 1)))
    frequency = np.exp(random.uniform(np.log(0.1), 0.0, (count, 1)))
    return np.asarray(
        falling / gains.sum(axis=1, keepdims=True) * (1 + oscillation * np.exp(-damping * k) * np.sin(frequency * k))
    )


def _power_law(k: Floats, count: int, random: Generator) -> Floats:
    offset = np.exp(random.uniform(0.0, np.log(60.0), (count, 1)))
    return np.asarray((1.0 + k / offset) ** -np.exp(random.normal(0.0, 0.6, (count, 1))))


def _late(k: Floats, count: int, random: Generator) -> Floats:
    """One or two sigmoidal falls; in some curves, of the logarithm of the loss."""
    total = np.zeros((count, len(k)))
    for weight in (np.ones(count), random.uniform(0.0, 0.6, count) * (random.random(count) < 0.5)):
        scale = np.exp(random.uniform(np.log(1.0), np.log(1.5 * len(k)), (count, 1)))
        steepness = np.exp(random.uniform(np.log(0.7), np.log(4.0), (count, 1)))
        total += weight[:, None] / (1.0 + (k / scale) ** steepness)
    total /= total[:, :1]
    logarithmic = random.random((count, 1)) < 0.4
    return np.where(logarithmic, np.exp((total - 1.0) * random.uniform(1.0, 8.0, (count, 1))), total)


def _immediate(k: Floats, count: int, random: Generator) -> Floats:
    falling = np.exp(-np.exp(random.uniform(np.log(0.2), np.log(3.0), (count, 1))) * np.minimum(k, 300.0))
    slow = 0.15 * np.exp(-np.exp(random.uniform(np.log(0.02), np.log(0.5), (count, 1))) * k)
    drops = random.exponential(0.02, (count, len(k))) * (random.random((count, len(k))) < 0.1)
    drops *= np.exp(-k / random.uniform(3.0, 60.0, (count, 1)))
    return np.asarray(falling + slow - np.cumsum(drops, axis=1) * random.integers(0, 2, (count, 1)))


def _noise(falling: Floats, random: Generator) -> Floats:
    count, length = falling.shape
    size = np.where(random.random(count) < 0.4, 0.0, np.exp(random.uniform(np.log(1e-5), np.log(0.05), count)))
    autocorrelation = random.uniform(0.0, 0.8, (count, 1)) * (random.random((count, 1)) < 0.5)
    innovations = random.standard_normal((count, length))
    noise = np.stack(
        [lfilter([1.0], [1.0, -phi], row) for phi, row in zip(autocorrelation[:, 0], innovations, strict=True)]
    )
    relative = random.random((count, 1)) < 0.5
    return np.asarray(size[:, None] * noise * np.where(relative, np.abs(falling) + 0.05, 1.0))

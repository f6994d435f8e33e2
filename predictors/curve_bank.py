"""The weighted probabilistic learning curve in closed form (Domhan, Springenberg, Hutter 2015, section 3).

Each shape of the bank is a linear regression with an asymptote, a gain and a noise that are integrated out under a
normal-inverse-gamma prior; shapes are weighted by their marginal likelihood. The mixture is of Student's t.
"""

from __future__ import annotations

import numpy as np

from predictors.arrays import Floats
from predictors.curve_shapes import Design

_WORTH = 8.0
"""independent points that a curve is worth at most: the misfit of neighbouring points is alike"""
_NOISE = 0.01
_NOISE_SHAPE = 1.0
_VARIANCE = 100.0
"""of asymptote and gain a priori, in units of the noise's variance"""


def posterior(points: Floats, bank: Design) -> tuple[Floats, Floats, Floats, float]:
    """For points (m, p): log marginal likelihood, location and scale at the horizon, each (m, K), degrees of freedom.

    Weighted Bayesian regression on (1, progress), the prior centred on the weighted mean and no gain; a point's weight
    grows in proportion to its place.
    """
    w = np.arange(1.0, points.shape[1] + 1.0) / points.shape[1]
    w *= min(1.0, _WORTH / w.sum())
    total = w.sum()
    level = points @ w / total
    moved = points - level[:, None]
    sum_x, sum_xx = bank.progress @ w, bank.progress**2 @ w
    sum_xy, sum_yy = (moved * w) @ bank.progress.T, moved**2 @ w
    a, b, d = total + 1.0 / _VARIANCE, sum_x, sum_xx + 1.0 / _VARIANCE
    determinant = a * d - b * b
    offset, gain = -b * sum_xy / determinant, a * sum_xy / determinant
    shape = _NOISE_SHAPE + total / 2.0
    rate = _NOISE_SHAPE * _NOISE**2 + np.maximum(sum_yy[:, None] - gain * sum_xy, 0.0) / 2.0
    evidence = np.where(bank.usable, -0.5 * np.log(determinant) - shape * np.log(rate), -np.inf)
    leverage = (d - 2.0 * b * bank.ahead + a * bank.ahead**2) / determinant
    mean = level[:, None] + offset + gain * bank.ahead
    return evidence, mean, np.sqrt(rate / shape * (1.0 + leverage)), 2.0 * shape


def weights(evidence: Floats) -> Floats:
    """(m, K) that sum to one along a row, of log marginal likelihoods; equal where no shape is usable."""
    best = evidence.max(axis=1, keepdims=True)
    weight = np.where(np.isfinite(best), np.exp(evidence - np.where(np.isfinite(best), best, 0.0)), 1.0)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))

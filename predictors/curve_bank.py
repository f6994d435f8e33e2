"""The weighted probabilistic learning curve in closed form (Domhan, Springenberg, Hutter 2015, section 3).

Each shape of the bank is a linear regression with an asymptote, a gain and a noise that are integrated out under a
normal-inverse-gamma prior; shapes are weighted by their marginal likelihood. The mixture is of Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.curve_shapes import shapes

_MOST_POINTS = 64
_WORTH = 8.0
"""independent points that a curve is worth at most: the misfit of neighbouring points is alike"""
_NOISE = 0.01
_NOISE_SHAPE = 1.0
_VARIANCE = 100.0
"""of asymptote and gain a priori, in units of the noise's variance"""
_ALIKE = 1e-9
"""of shapes whose evidence differs by less, as before a drop, the first is the likeliest"""
_STILL = 1e-9
"""a shape that moves less between the first and the last point is no use"""


@dataclass(frozen=True, eq=False)
class Bank:
    """Regressions on K shapes at p points of curves of one length, to one horizon: all that no curve changes.

    A shape goes from -1 at the first point to 0 at the last. A point's weight grows in proportion to its place; the
    prior is centred on the weighted mean and no gain.

    starts: (p,) the points are means of a curve from each of these on. weight: (p,). product: (p, K) what points less
    their mean are multiplied by. gain, beyond: (K,) the gain, and what it adds to the mean at the horizon, per unit of
    the product. evidence: (K,) of the logarithm of the marginal likelihood. variance: (K,) of Student's t, per unit of
    the noise's rate. shape: of the noise.
    """

    length: int
    starts: Ints
    weight: Floats
    product: Floats
    gain: Floats
    beyond: Floats
    evidence: Floats
    variance: Floats
    shape: float

    @classmethod
    def of(cls, length: int, horizon: float) -> Bank:
        edges = np.unique(np.round(np.linspace(0, length, min(length, _MOST_POINTS) + 1)))
        values = shapes(np.append((edges[:-1] + 1.0 + edges[1:]) / 2.0, horizon), horizon)
        first, last, final = values[:, 0], values[:, -2], values[:, -1]
        usable = np.abs(first - last) > _STILL
        fall = np.where(usable, first - last, 1.0)
        progress = (last[:, None] - values[:, :-1]) / fall[:, None]
        ahead = (last - final) / fall
        w = np.arange(1.0, len(edges)) / (len(edges) - 1)
        w *= min(1.0, _WORTH / w.sum())
        total = w.sum()
        a, b, d = total + 1.0 / _VARIANCE, progress @ w, progress**2 @ w + 1.0 / _VARIANCE
        determinant = a * d - b * b
        shape = _NOISE_SHAPE + total / 2.0
        evidence = np.where(usable | ~usable.any(), -0.5 * np.log(determinant), -np.inf)
        leverage = (d - 2.0 * b * ahead + a * ahead**2) / determinant
        return cls(
            length, edges[:-1].astype(np.int64), w / total, (progress * w).T, a / determinant,
            (a * ahead - b) / determinant, evidence, (1.0 + leverage) / shape, shape,
        )  # fmt: skip

    def expects(self, curves: Floats) -> tuple[Floats, Floats, Floats]:
        """Of curves (m, length) at the horizon: mean and standard deviation of the mixture, and the location of the
        likeliest shape, within 0 and 1, each (m,)."""
        points = curves
        if len(self.starts) < self.length:
            points = np.add.reduceat(curves, self.starts, axis=1) / np.diff(self.starts, append=self.length)
        level = points @ self.weight
        moved = points - level[:, None]
        product = moved @ self.product
        square = moved**2 @ self.weight * (2.0 * (self.shape - _NOISE_SHAPE))
        rate = _NOISE_SHAPE * _NOISE**2 + np.maximum(square[:, None] - self.gain * product**2, 0.0) / 2.0
        evidence = self.evidence - self.shape * np.log(rate)
        mean = np.minimum(np.maximum(level[:, None] + product * self.beyond, 0.0), 1.0)
        highest = evidence.max(axis=1, keepdims=True)
        likeliest = (evidence > highest - _ALIKE).argmax(axis=1)
        weight = np.exp(evidence - highest)
        weight /= weight.sum(axis=1, keepdims=True)
        expected = (weight * mean).sum(axis=1)
        variance = (weight * ((mean - expected[:, None]) ** 2 + rate * self.variance)).sum(axis=1)
        return expected, np.sqrt(variance), mean[np.arange(len(curves)), likeliest]


@lru_cache(maxsize=512)
def bank(length: int, horizon: float) -> Bank:
    """The bank for curves of `length` points that go on to iteration `horizon`."""
    return Bank.of(length, horizon)

"""The weighted probabilistic learning curve in closed form (Domhan, Springenberg, Hutter 2015, section 3).

Each shape of the bank is a linear regression with an asymptote, a gain and a noise that are integrated out under a
normal-inverse-gamma prior; shapes are weighted by their marginal likelihood. The mixture is of Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.learning_curve.shapes import scheduled_shapes, shapes

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


class Regressions(NamedTuple):
    """On K shapes at p points; with an axis more, as often as there are horizons. All that no curve changes.

    A shape goes from -1 at the first point to 0 at the last. A point's weight grows in proportion to its place; the
    prior is centred on the weighted mean and no gain.

    product: (..., p, K) what points less their mean are multiplied by. gain: (..., K) the gain, per unit of the
    product. evidence: (..., K) of the logarithm of the marginal likelihood. last, fall: (..., K) of the shape. a, b, d:
    the normal equations.
    """

    product: Floats
    gain: Floats
    evidence: Floats
    last: Floats
    fall: Floats
    a: float
    b: Floats
    d: Floats

    @classmethod
    def on(cls, values: Floats, w: Floats) -> Regressions:
        """On shapes that are values (..., K, p) at points of weights w (p,)."""
        first, last = values[..., 0], values[..., -1]
        usable = np.abs(first - last) > _STILL
        fall = np.where(usable, first - last, 1.0)
        progress = (last[..., None] - values) / fall[..., None]
        a, b, d = float(w.sum()) + 1.0 / _VARIANCE, progress @ w, progress**2 @ w + 1.0 / _VARIANCE
        determinant = a * d - b * b
        evidence = np.where(usable | (len(w) == 1), -0.5 * np.log(determinant), -np.inf)
        return cls(np.swapaxes(progress * w, -1, -2), a / determinant, evidence, last, fall, a, b, d)

    def at(self, final: Floats) -> tuple[Floats, ...]:
        """Where shapes are final (h, K) at the horizons: gain, evidence, what the gain adds to the mean, per unit of
        the product, and leverage, each (h, K)."""
        ahead = (self.last - final) / self.fall
        determinant = self.a * self.d - self.b**2
        beyond = (self.a * ahead - self.b) / determinant
        leverage = (self.d - 2.0 * self.b * ahead + self.a * ahead**2) / determinant
        return tuple(np.broadcast_arrays(self.gain, self.evidence, beyond, leverage))


@dataclass(frozen=True, eq=False)
class Bank:
    """Of curves of one length. starts: (p,) the points are means of a curve from each of these on.

    x, w: (p,) the iterations of these points, and their weights. free: on the shapes that know no horizon.
    """

    length: int
    starts: Ints
    x: Floats
    w: Floats
    free: Regressions

    @classmethod
    def of(cls, length: int) -> Bank:
        edges = np.unique(np.round(np.linspace(0, length, min(length, _MOST_POINTS) + 1)))
        x = (edges[:-1] + 1.0 + edges[1:]) / 2.0
        w = np.arange(1.0, len(edges)) / (len(edges) - 1)
        w *= min(1.0, _WORTH / w.sum())
        return cls(length, edges[:-1].astype(np.int64), x, w, Regressions.on(shapes(x), w))

    def expects(self, curves: Floats, horizons: Floats) -> tuple[Floats, Floats, Floats]:
        """Of curves (m, length) at horizons (m,): mean and standard deviation of the mixture, and the location of the
        likeliest shape, within 0 and 1, each (m,)."""
        points = curves
        if len(self.starts) < self.length:
            points = np.add.reduceat(curves, self.starts, axis=1) / np.diff(self.starts, append=self.length)
        total = self.w.sum()
        level = points @ (self.w / total)
        moved = points - level[:, None]
        to, which = np.unique(horizons, return_inverse=True)
        ends = shapes(to).T
        x = np.append(np.broadcast_to(self.x, (len(to), len(self.x))), to[:, None], axis=1)
        values = scheduled_shapes(x, to)
        scheduled = Regressions.on(values[:, :, :-1], self.w)
        product = np.append(moved @ self.free.product, _each_by_its_own(moved, scheduled.product, which), axis=1)
        gain, evidence, beyond, leverage = (
            np.append(one, other, axis=1)[which]
            for one, other in zip(self.free.at(ends), scheduled.at(values[:, :, -1]), strict=True)
        )
        shape = _NOISE_SHAPE + total / 2.0
        square = moved**2 @ (self.w / total) * total
        rate = _NOISE_SHAPE * _NOISE**2 + np.maximum(square[:, None] - gain * product**2, 0.0) / 2.0
        evidence = evidence - shape * np.log(rate)
        mean = np.minimum(np.maximum(level[:, None] + product * beyond, 0.0), 1.0)
        highest = evidence.max(axis=1, keepdims=True)
        likeliest = (evidence > highest - _ALIKE).argmax(axis=1)
        weight = np.exp(evidence - highest)
        weight /= weight.sum(axis=1, keepdims=True)
        expected = (weight * mean).sum(axis=1)
        variance = (weight * ((mean - expected[:, None]) ** 2 + rate * ((1.0 + leverage) / shape))).sum(axis=1)
        return expected, np.sqrt(variance), mean[np.arange(len(curves)), likeliest]


def _each_by_its_own(rows: Floats, products: Floats, which: Ints) -> Floats:
    """(m, K) of rows (m, p), each multiplied by its own of products (h, p, K)."""
    found = np.empty((len(rows), products.shape[-1]))
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(products)))
    for mine, product in zip(np.split(order, ends[:-1]), products, strict=True):
        found[mine] = rows[mine] @ product
    return found


@lru_cache(maxsize=512)
def bank(length: int) -> Bank:
    """The bank for curves of `length` points."""
    return Bank.of(length)

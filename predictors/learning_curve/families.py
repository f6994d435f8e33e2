"""The parametric families of Domhan, Springenberg and Hutter (IJCAI 2015, section 3), fitted in closed form.

Their eleven families are affine in an asymptote and a gain once their nonlinear parameters are fixed. Here each family
is a grid of those, one shape for each combination; families that are equal up to asymptote and gain share shapes
(hill3, mmf and log power; Weibull, Janoschek and exp4). Each shape is a Bayesian linear regression whose asymptote,
gain and noise are integrated out under a normal-inverse-gamma prior. Shapes are weighted by their marginal likelihood;
the result is a mixture of Student's t.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints

_MOST_POINTS = 64
_EFFECTIVE_POINTS = 8.0
"""independent points that a curve counts as at most: the errors of neighbouring points are correlated"""
_NOISE = 0.01
_NOISE_SHAPE = 1.0
_PRIOR_VARIANCE = 100.0
"""of asymptote and gain, in units of the variance of the noise"""
_EVIDENCE_TOLERANCE = 1e-9
"""shapes whose evidence differs by less count as equally likely, and the first one is taken"""
_MIN_CHANGE = 1e-9
"""a shape that changes by less between the first and the last point cannot be fitted"""
_SCALES = (1.5, 4.0, 10.0, 25.0, 60.0, 150.0)


def _family(formula: Callable[..., Floats], *grids: tuple[float, ...]) -> Callable[..., Floats]:
    """The shapes of a formula, whose last parameters take all k combinations of the values of `grids`, as (k, 1)."""
    parameters = np.array(list(itertools.product(*grids))).T[:, :, None]
    return lambda *where: np.asarray(formula(*where, *parameters))


def _drop(x: Floats, end: Floats, share: Floats) -> Floats:
    return np.asarray(np.where(x[:, None] < share * end[:, None], 1.0, 0.0) + 0.5 * x[:, None] ** -0.5)


_SHAPES = (
    _family(lambda x, power: x**-power, (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)),  # pow3
    _family(
        lambda x, offset, power: (1.0 + x / offset) ** -power, (2.0, 5.0, 15.0, 50.0), (0.5, 1.0, 2.0, 4.0)
    ),  # pow4
    _family(lambda x, scale, power: 1.0 / (1.0 + (x / scale) ** power), _SCALES, (1.0, 1.5, 2.5, 4.0)),  # Hill
    _family(lambda x, scale, power: np.exp(-((x / scale) ** power)), _SCALES, (0.35, 0.6, 1.0, 1.6, 2.5)),  # Weibull
    _family(lambda x: 1.0 / np.log(x[None] + 1.0)),  # ilog2
    _family(lambda x, offset: -np.log(np.log(x) + offset), (0.5, 1.0, 3.0)),  # log log linear
    _family(lambda x, b, c: -np.exp(b / x + c * np.log(x)), (-3.0, -1.0, -0.3), (-0.2, 0.05)),  # vapour pressure
)
"""map iterations x (p,) to k shapes (k, p), in any scale and with any offset"""
_SCHEDULED_SHAPES = (
    _family(lambda x, end: ((1.0 + np.cos(np.pi * np.minimum(x / end, 1.0))) / 2.0)[:, None]),
    _family(lambda x, end, power: np.maximum(1.0 - x / end, 0.0)[:, None] ** power, (1.0, 2.0)),
    _family(_drop, (0.3, 0.5, 0.6, 0.75, 0.9)),
)
"""map iterations x (h, p) and horizons (h, 1) to k shapes for each horizon (h, k, p): the learning rate is annealed, or
dropped, towards the declared end"""


def _free_values(x: Floats) -> Floats:
    """(K, p) values of all shapes that do not depend on the horizon, at iterations x (p,)."""
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([family(x) for family in _SHAPES])


def _scheduled_values(x: Floats, horizons: Floats) -> Floats:
    """(h, K, p) values of all shapes that depend on the horizon, for horizons (h,), at iterations x (h, p) of each."""
    return np.concatenate([family(x, horizons[:, None]) for family in _SCHEDULED_SHAPES], axis=1)


class ShapeRegressions(NamedTuple):
    """What the regressions on K shapes at p points have in common for all curves; h horizons may be a leading axis.

    Shapes are scaled to go from -1 at the first point to 0 at the last. The weight of a point grows in proportion to
    its position. The prior is centred on the weighted mean of the curve and a gain of zero.

    projection: (..., p, K) maps the points, less their mean, to the product of the curve with each shape.
    gain: (..., K) the estimated gain per unit of that product. log_evidence: (..., K) the part of the log marginal
    likelihood that no curve changes. last, fall: (..., K) last value of the shape, and its fall from the first.
    a, b, d: the normal equations [[a, b], [b, d]] of asymptote and gain.
    """

    projection: Floats
    gain: Floats
    log_evidence: Floats
    last: Floats
    fall: Floats
    a: float
    b: Floats
    d: Floats

    @classmethod
    def prepare(cls, values: Floats, w: Floats) -> ShapeRegressions:
        """For shapes with values (..., K, p) at points with weights w (p,)."""
        first, last = values[..., 0], values[..., -1]
        usable = np.abs(first - last) > _MIN_CHANGE
        fall = np.where(usable, first - last, 1.0)
        progress = (last[..., None] - values) / fall[..., None]
        a, b, d = float(w.sum()) + 1.0 / _PRIOR_VARIANCE, progress @ w, progress**2 @ w + 1.0 / _PRIOR_VARIANCE
        determinant = a * d - b * b
        log_evidence = np.where(usable | (len(w) == 1), -0.5 * np.log(determinant), -np.inf)
        return cls(np.swapaxes(progress * w, -1, -2), a / determinant, log_evidence, last, fall, a, b, d)

    def at_horizons(self, final: Floats) -> tuple[Floats, ...]:
        """For shapes with values final (h, K) at the horizons: gain, log evidence, the change of the mean per unit of
        the product, and the leverage of the horizon, each (h, K)."""
        ahead = (self.last - final) / self.fall
        determinant = self.a * self.d - self.b**2
        change = (self.a * ahead - self.b) / determinant
        leverage = (self.d - 2.0 * self.b * ahead + self.a * ahead**2) / determinant
        return tuple(np.broadcast_arrays(self.gain, self.log_evidence, change, leverage))


@dataclass(frozen=True, eq=False)
class ShapeMixture:
    """The mixture over all shapes, for curves of `length` iterations.

    Long curves are averaged over windows first. starts: (p,) first iteration of each window, counted from 0.
    x, w: (p,) mean iteration and weight of each. free: the regressions on shapes that do not depend on the horizon.
    """

    length: int
    starts: Ints
    x: Floats
    w: Floats
    free: ShapeRegressions

    @classmethod
    def for_length(cls, length: int) -> ShapeMixture:
        """The mixture for curves of `length` iterations."""
        edges = np.unique(np.round(np.linspace(0, length, min(length, _MOST_POINTS) + 1)))
        x = (edges[:-1] + 1.0 + edges[1:]) / 2.0
        w = np.arange(1.0, len(edges)) / (len(edges) - 1)
        w *= min(1.0, _EFFECTIVE_POINTS / w.sum())
        return cls(length, edges[:-1].astype(np.int64), x, w, ShapeRegressions.prepare(_free_values(x), w))

    def predict(self, curves: Floats, horizons: Floats) -> tuple[Floats, Floats, Floats]:
        """For normalised curves (m, length), the value at iterations `horizons` (m,).

        Returns mean and standard deviation of the mixture, and the mean of its likeliest shape in [0, 1], each (m,).
        """
        points = curves
        if len(self.starts) < self.length:
            points = np.add.reduceat(curves, self.starts, axis=1) / np.diff(self.starts, append=self.length)
        total = self.w.sum()
        level = points @ (self.w / total)
        centred = points - level[:, None]
        unique_horizons, which = np.unique(horizons, return_inverse=True)
        final = _free_values(unique_horizons).T
        count = len(unique_horizons)
        x = np.append(np.broadcast_to(self.x, (count, len(self.x))), unique_horizons[:, None], axis=1)
        values = _scheduled_values(x, unique_horizons)
        scheduled = ShapeRegressions.prepare(values[:, :, :-1], self.w)
        product = np.append(
            centred @ self.free.projection, _multiply_rowwise(centred, scheduled.projection, which), axis=1
        )
        gain, log_evidence, change, leverage = (
            np.append(one, other, axis=1)[which]
            for one, other in zip(self.free.at_horizons(final), scheduled.at_horizons(values[:, :, -1]), strict=True)
        )
        shape = _NOISE_SHAPE + total / 2.0
        square = centred**2 @ (self.w / total) * total
        rate = _NOISE_SHAPE * _NOISE**2 + np.maximum(square[:, None] - gain * product**2, 0.0) / 2.0
        log_evidence = log_evidence - shape * np.log(rate)
        mean = np.minimum(np.maximum(level[:, None] + product * change, 0.0), 1.0)
        highest = log_evidence.max(axis=1, keepdims=True)
        likeliest = (log_evidence > highest - _EVIDENCE_TOLERANCE).argmax(axis=1)
        weight = np.exp(log_evidence - highest)
        weight /= weight.sum(axis=1, keepdims=True)
        expected = (weight * mean).sum(axis=1)
        variance = (weight * ((mean - expected[:, None]) ** 2 + rate * ((1.0 + leverage) / shape))).sum(axis=1)
        return expected, np.sqrt(variance), mean[np.arange(len(curves)), likeliest]


def _multiply_rowwise(rows: Floats, matrices: Floats, which: Ints) -> Floats:
    """(m, K): each of rows (m, p) times the one of matrices (h, p, K) that `which` (m,) names."""
    result = np.empty((len(rows), matrices.shape[-1]))
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(matrices)))
    for group, matrix in zip(np.split(order, ends[:-1]), matrices, strict=True):
        result[group] = rows[group] @ matrix
    return result


@lru_cache(maxsize=512)
def shape_mixture(length: int) -> ShapeMixture:
    """The cached mixture for curves of `length` iterations."""
    return ShapeMixture.for_length(length)

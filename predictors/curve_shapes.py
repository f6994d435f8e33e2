"""Shapes of learning curves: how what is still to be gained falls from the first iteration on.

The eleven families of the weighted probabilistic learning curve model (Domhan, Springenberg, Hutter 2015, table 1) are
affine in an asymptote and a gain once the parameters that bend them are fixed. The bank holds each family over a grid
of these, so that only the asymptote, the gain and the noise are left, and those have a closed form. Families that are
the same up to asymptote and gain share shapes (hill3, mmf and log power; Weibull, Janoschek and exp4).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from predictors.arrays import Bools, Floats

Shape: TypeAlias = Callable[[Floats, float], Floats]
"""Of iterations x and the horizon, the same shape as x; any scale, any offset."""

_SCALES = (1.5, 4.0, 10.0, 25.0, 60.0, 150.0)
_MOST_POINTS = 64


def _power(offset: float, exponent: float) -> Shape:
    return lambda x, _: (1.0 + x / offset) ** -exponent


def _pure_power(exponent: float) -> Shape:
    return lambda x, _: x**-exponent


def _hill(scale: float, exponent: float) -> Shape:
    return lambda x, _: 1.0 / (1.0 + (x / scale) ** exponent)


def _weibull(scale: float, exponent: float) -> Shape:
    return lambda x, _: np.exp(-((x / scale) ** exponent))


def _log_log_linear(offset: float) -> Shape:
    return lambda x, _: -np.log(np.log(x) + offset)


def _vapour_pressure(b: float, c: float) -> Shape:
    return lambda x, _: -np.exp(b / x + c * np.log(x))


def _log_inverse(x: Floats, _: float) -> Floats:
    return 1.0 / np.log(x + 1.0)


def _cosine(x: Floats, horizon: float) -> Floats:
    return (1.0 + np.cos(np.pi * np.minimum(x / horizon, 1.0))) / 2.0


def _annealed(exponent: float) -> Shape:
    return lambda x, horizon: np.maximum(1.0 - x / horizon, 0.0) ** exponent


def _drop(share: float) -> Shape:
    return lambda x, horizon: np.where(x < share * horizon, 1.0, 0.0) + 0.5 * x**-0.5


#: Family and shape. The last families know the declared horizon: schedules that anneal or drop the learning rate.
BANK: tuple[tuple[str, Shape], ...] = (
    *(("pow3", _pure_power(a)) for a in (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)),
    *(("pow4", _power(b, a)) for b, a in itertools.product((2.0, 5.0, 15.0, 50.0), (0.5, 1.0, 2.0, 4.0))),
    *(("hill", _hill(k, e)) for k, e in itertools.product(_SCALES, (1.0, 1.5, 2.5, 4.0))),
    *(("weibull", _weibull(k, e)) for k, e in itertools.product(_SCALES, (0.35, 0.6, 1.0, 1.6, 2.5))),
    ("ilog2", _log_inverse),
    *(("log log linear", _log_log_linear(b)) for b in (0.5, 1.0, 3.0)),
    *(("vapour pressure", _vapour_pressure(b, c)) for b, c in itertools.product((-3.0, -1.0, -0.3), (-0.2, 0.05))),
    ("cosine", _cosine),
    *(("annealed", _annealed(e)) for e in (1.0, 2.0)),
    *(("drop", _drop(share)) for share in (0.3, 0.5, 0.6, 0.75, 0.9)),
)
FAMILIES: tuple[str, ...] = tuple(family for family, _ in BANK)


@dataclass(frozen=True, eq=False)
class Design:
    """The bank at the points of curves of one length, for one horizon, with K shapes and p points.

    edges: (p + 1,) the p points are means of curve[edges[i]:edges[i + 1]]. progress: (K, p), -1 at the first point and
    0 at the last. ahead: (K,) its value at the horizon: the gain to come as a share of the gain so far.
    usable: (K,) whether the shape moves at all between the first and the last point.
    """

    edges: Floats
    progress: Floats
    ahead: Floats
    usable: Bools

    def points(self, curves: Floats) -> Floats:
        """(m, p) of curves (m, n)."""
        edges = self.edges.astype(np.int64)
        return np.add.reduceat(curves, edges[:-1], axis=1) / np.diff(edges)


@lru_cache(maxsize=512)
def design(length: int, horizon: float) -> Design:
    """The design for curves of `length` points that go on to iteration `horizon`."""
    edges = np.unique(np.round(np.linspace(0, length, min(length, _MOST_POINTS) + 1)))
    x = (edges[:-1] + 1.0 + edges[1:]) / 2.0
    at = np.append(x, horizon)
    with np.errstate(over="ignore", under="ignore"):
        values = np.stack([shape(at, horizon) for _, shape in BANK])
    first, last, final = values[:, :1], values[:, -2:-1], values[:, -1]
    fall = first - last
    usable = np.abs(fall[:, 0]) > 1e-9
    fall = np.where(usable[:, None], fall, 1.0)
    return Design(edges, (last - values[:, :-1]) / fall, (last[:, 0] - final) / fall[:, 0], usable)

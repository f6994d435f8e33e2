"""Parametric families of learning curves: how the gain that remains shrinks from the first iteration on.

The eleven families of the weighted probabilistic learning curve model (Domhan, Springenberg, Hutter 2015, table 1) are
affine in an asymptote and a gain once their nonlinear parameters are fixed. Each family is held over a grid of those,
one shape for each combination, so that only the asymptote, the gain and the noise remain to be inferred, which has a
closed form. Families that are equal up to asymptote and gain share shapes (hill3, mmf and log power; Weibull, Janoschek
and exp4).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats

ShapeFamily: TypeAlias = Callable[[Floats], Floats]
"""Maps iterations x (p,) to k shapes (k, p), in any scale and with any offset."""
ScheduledShapeFamily: TypeAlias = Callable[[Floats, Floats], Floats]
"""Maps iterations x (h, p) and horizons (h, 1) to k shapes for each horizon (h, k, p)."""

_SCALES = (1.5, 4.0, 10.0, 25.0, 60.0, 150.0)


def _parameter_grid(*grids: Iterable[float]) -> Floats:
    """(parameters, k, 1): all k combinations of the values of each parameter."""
    return np.array(list(itertools.product(*grids))).T[:, :, None]


_PURE_POWERS = _parameter_grid((0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0))
_POWERS = _parameter_grid((2.0, 5.0, 15.0, 50.0), (0.5, 1.0, 2.0, 4.0))
_HILLS = _parameter_grid(_SCALES, (1.0, 1.5, 2.5, 4.0))
_WEIBULLS = _parameter_grid(_SCALES, (0.35, 0.6, 1.0, 1.6, 2.5))
_LOG_LOGS = _parameter_grid((0.5, 1.0, 3.0))
_VAPOURS = _parameter_grid((-3.0, -1.0, -0.3), (-0.2, 0.05))
_ANNEALED = _parameter_grid((1.0, 2.0))
_DROPS = _parameter_grid((0.3, 0.5, 0.6, 0.75, 0.9))


def _pure_power(x: Floats) -> Floats:
    (exponent,) = _PURE_POWERS
    return np.asarray(x**-exponent)


def _power(x: Floats) -> Floats:
    offset, exponent = _POWERS
    return np.asarray((1.0 + x / offset) ** -exponent)


def _hill(x: Floats) -> Floats:
    scale, exponent = _HILLS
    return np.asarray(1.0 / (1.0 + (x / scale) ** exponent))


def _weibull(x: Floats) -> Floats:
    scale, exponent = _WEIBULLS
    return np.asarray(np.exp(-((x / scale) ** exponent)))


def _log_inverse(x: Floats) -> Floats:
    return np.asarray(1.0 / np.log(x[None] + 1.0))


def _log_log_linear(x: Floats) -> Floats:
    (offset,) = _LOG_LOGS
    return np.asarray(-np.log(np.log(x) + offset))


def _vapour_pressure(x: Floats) -> Floats:
    b, c = _VAPOURS
    return np.asarray(-np.exp(b / x + c * np.log(x)))


def _cosine(x: Floats, horizon: Floats) -> Floats:
    return np.asarray((1.0 + np.cos(np.pi * np.minimum(x / horizon, 1.0))) / 2.0)[:, None]


def _annealed(x: Floats, horizon: Floats) -> Floats:
    (exponent,) = _ANNEALED
    return np.asarray(np.maximum(1.0 - x / horizon, 0.0)[:, None] ** exponent)


def _drop(x: Floats, horizon: Floats) -> Floats:
    (share,) = _DROPS
    return np.asarray(np.where(x[:, None] < share * horizon[:, None], 1.0, 0.0) + 0.5 * x[:, None] ** -0.5)


SHAPE_FAMILIES: tuple[ShapeFamily, ...] = (
    _pure_power,  # pow3
    _power,  # pow4
    _hill,
    _weibull,
    _log_inverse,  # ilog2
    _log_log_linear,
    _vapour_pressure,
)
SCHEDULED_FAMILIES: tuple[ScheduledShapeFamily, ...] = (_cosine, _annealed, _drop)
"""Shapes that depend on the horizon: the learning rate is annealed, or dropped, towards the declared end."""


def evaluate_shapes(x: Floats) -> Floats:
    """(K, p) values of all shapes of `SHAPE_FAMILIES` at iterations x (p,)."""
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([family(x) for family in SHAPE_FAMILIES])


def evaluate_scheduled_shapes(x: Floats, horizons: Floats) -> Floats:
    """(h, K, p) values of all shapes of `SCHEDULED_FAMILIES` for `horizons` (h,), at iterations x (h, p) of each."""
    return np.concatenate([family(x, horizons[:, None]) for family in SCHEDULED_FAMILIES], axis=1)

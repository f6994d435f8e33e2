"""A Gaussian process over beginnings of curves (Rasmussen, Williams 2006, chapter 2): what smooth neighbours gained.

Trees see one feature at a time; here a curve is like another where all features are. What the process says of a curve
is a feature of the forest, which learns where it may be trusted (stacking; Wolpert 1992): of the curves that it
learnt from, it therefore tells what it would have said without each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from predictors.arrays import Floats, Ints, clipped

_NOISE = 0.1
"""variance of the targets about the process, in units of that of each of the two terms of their likeness"""
_WITHIN, _BETWEEN = 0.7, 1.0
"""length scales: of standardised features, times the root of their number, and of what is known at the start"""
_FARTHEST = 4.0
_BATCH = 512


@dataclass(frozen=True, eq=False)
class CurveProcess:
    """Curves are alike in the product of two squared exponentials, of features and of what is known, plus the first.

    centre, scale: (features,). features, known: the points, (p, columns) in units of their length scales. weight: (p,).
    level: of the targets, at which it stays far from all points.
    """

    centre: Floats
    scale: Floats
    features: Floats
    known: Floats
    weight: Floats
    level: float

    @classmethod
    def fit(
        cls, x: Floats, known: Floats, y: Floats, owner: Ints, asked: tuple[Floats, Floats, Ints]
    ) -> tuple[CurveProcess, Floats]:
        """Of points x (p, features), known (p, columns), targets y (p,), and the curve that each is of, owner (p,).

        Beside it, what it says of `asked`, of n such (features, known, owner), without the points of the same curve:
        (n,). The inverse of the covariance without a block of its rows is not computed anew (ibid., section 5.4.2).
        """
        scale = np.maximum(x.std(axis=0), 1e-3)
        made = cls(np.median(x, axis=0), scale, x[:0], known[:0], y[:0], float(y.mean()))
        features, others = made._inputs(x, known)
        points = _right(features), _right(others)
        covariance = _likeness(_left(features), _left(others), *points)
        covariance[np.diag_indices(len(y))] += _NOISE
        inverse = np.linalg.inv(covariance)
        weight = inverse @ (y - made.level)
        made = cls(made.centre, scale, features, others, weight, made.level)
        told = np.empty(len(asked[2]))
        for curve in np.unique(asked[2]).tolist():
            rows, own = np.flatnonzero(asked[2] == curve), np.flatnonzero(owner == curve)
            without = weight - inverse[:, own] @ np.linalg.solve(inverse[np.ix_(own, own)], weight[own])
            without[own] = 0.0
            told[rows] = made.level + made._likeness(asked[0][rows], asked[1][rows]) @ without
        return made, told

    def predict(self, x: Floats, known: Floats) -> Floats:
        """(n,) the mean at x (n, features), known (n, columns)."""
        parts = [
            self._likeness(x[i : i + _BATCH], known[i : i + _BATCH]) @ self.weight
            for i in range(0, max(len(x), 1), _BATCH)
        ]
        return np.asarray(self.level + np.concatenate(parts))

    def inputs(self, x: Floats, known: Floats) -> Floats:
        """(n, columns) of x (n, features), known (n, columns), in units of their length scales."""
        return np.concatenate(self._inputs(x, known), axis=1)

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CurveProcess:
        centre, scale, features, known, weight = (
            np.asarray(state[name]) for name in ("centre", "scale", "features", "known", "weight")
        )
        return cls(centre, scale, features, known, weight, float(state["level"]))

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        return _right(self.features), _right(self.known)

    def _likeness(self, x: Floats, known: Floats) -> Floats:
        """(n, p)"""
        features, others = self._inputs(x, known)
        return _likeness(_left(features), _left(others), *self._points)

    def _inputs(self, x: Floats, known: Floats) -> tuple[Floats, Floats]:
        away = clipped((x - self.centre) / self.scale, -_FARTHEST, _FARTHEST)
        return away / (_WITHIN * np.sqrt(2.0 * x.shape[1])), known / (_BETWEEN * np.sqrt(2.0))


def _likeness(a: Floats, a_known: Floats, b: Floats, b_known: Floats) -> Floats:
    """(n, p) of sides as `_left` and `_right` make them."""
    return np.asarray(np.exp(a @ b) * (1.0 + np.exp(a_known @ b_known)))


def _left(a: Floats) -> Floats:
    """(n, c + 2) of a (n, c): `_left(a) @ _right(b)` is minus the squared distances, in one product."""
    return np.concatenate([a, (a**2).sum(axis=1, keepdims=True), np.ones((len(a), 1))], axis=1)


def _right(b: Floats) -> Floats:
    """(c + 2, p) of b (p, c)."""
    return np.concatenate([2.0 * b.T, -np.ones((1, len(b))), -(b**2).sum(axis=1)[None]])

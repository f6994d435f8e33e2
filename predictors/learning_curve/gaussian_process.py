"""Gaussian process regression over partial learning curves (Rasmussen, Williams 2006, chapter 2).

Trees split on one feature at a time; the process compares curves by all features at once. Its prediction is a feature
of the quantile forest, which learns where to trust it (stacking; Wolpert 1992). For the curves that it was fitted on,
that feature is therefore the prediction of a process that has not seen the curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from predictors.arrays import Floats, Ints, clip

_NOISE = 0.1
"""variance of the observation noise, in units of the variance of each of the two terms of the kernel"""
_FEATURE_SCALE, _METADATA_SCALE = 0.7, 1.0
"""length scales: of standardised features, times the root of their number, and of encoded metadata"""
_MOST_DEVIATIONS = 4.0
"""standardised features are clipped there"""
_BATCH = 512


@dataclass(frozen=True, eq=False)
class CurveGaussianProcess:
    """The kernel is a squared exponential of the features, plus its product with one of the metadata.

    centre, scale: (features,) that standardise features. features, known: (p, columns) features and metadata of the
    training points, divided by their length scales. weight: (p,) inverse covariance times targets. level: prior mean of
    the targets, which predictions approach far from all training points.
    """

    centre: Floats
    scale: Floats
    features: Floats
    known: Floats
    weight: Floats
    level: float

    @classmethod
    def fit(
        cls, x: Floats, known: Floats, y: Floats, owner: Ints, queries: tuple[Floats, Floats, Ints]
    ) -> tuple[CurveGaussianProcess, Floats]:
        """Fit to features x (p, features), encoded metadata known (p, columns) and targets y (p,).

        owner: (p,) number of the curve that each point belongs to. queries: (features, metadata, owner) of n points.
        Returns the process, and its predictions (n,) for the queries, each made without the training points of its own
        curve, by the leave-out formula for the inverse covariance (ibid., section 5.4.2).
        """
        scale = np.maximum(x.std(axis=0), 1e-3)
        fitted = cls(np.median(x, axis=0), scale, x[:0], known[:0], y[:0], float(y.mean()))
        features, metadata = fitted._scaled(x, known)
        points = _right_factor(features), _right_factor(metadata)
        covariance = _kernel(_left_factor(features), _left_factor(metadata), *points)
        covariance[np.diag_indices(len(y))] += _NOISE
        inverse = np.linalg.inv(covariance)
        weight = inverse @ (y - fitted.level)
        fitted = cls(fitted.centre, scale, features, metadata, weight, fitted.level)
        held_out = np.empty(len(queries[2]))
        for curve in np.unique(queries[2]).tolist():
            rows, own = np.flatnonzero(queries[2] == curve), np.flatnonzero(owner == curve)
            without = weight - inverse[:, own] @ np.linalg.solve(inverse[np.ix_(own, own)], weight[own])
            without[own] = 0.0
            held_out[rows] = fitted.level + fitted._covariance(queries[0][rows], queries[1][rows]) @ without
        return fitted, held_out

    def predict(self, x: Floats, known: Floats) -> Floats:
        """(n,) posterior mean at features x (n, features) and encoded metadata known (n, columns)."""
        parts = [
            self._covariance(x[i : i + _BATCH], known[i : i + _BATCH]) @ self.weight
            for i in range(0, max(len(x), 1), _BATCH)
        ]
        return np.asarray(self.level + np.concatenate(parts))

    def scaled_inputs(self, x: Floats, known: Floats) -> Floats:
        """(n, columns): features x (n, features) and metadata known (n, columns), divided by their length scales."""
        return np.concatenate(self._scaled(x, known), axis=1)

    def state(self) -> dict[str, Any]:
        """Arrays and a number, from which `from_state` makes the same process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CurveGaussianProcess:
        """The process whose `state` this is."""
        centre, scale, features, known, weight = (
            np.asarray(state[name]) for name in ("centre", "scale", "features", "known", "weight")
        )
        return cls(centre, scale, features, known, weight, float(state["level"]))

    @cached_property
    def _points(self) -> tuple[Floats, Floats]:
        return _right_factor(self.features), _right_factor(self.known)

    def _covariance(self, x: Floats, known: Floats) -> Floats:
        """(n, p) with the training points."""
        features, metadata = self._scaled(x, known)
        return _kernel(_left_factor(features), _left_factor(metadata), *self._points)

    def _scaled(self, x: Floats, known: Floats) -> tuple[Floats, Floats]:
        standardised = clip((x - self.centre) / self.scale, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)
        return standardised / (_FEATURE_SCALE * np.sqrt(2.0 * x.shape[1])), known / (_METADATA_SCALE * np.sqrt(2.0))


def _kernel(a: Floats, a_known: Floats, b: Floats, b_known: Floats) -> Floats:
    """(n, p) covariance, of factors made by `_left_factor` (a) and `_right_factor` (b)."""
    return np.asarray(np.exp(a @ b) * (1.0 + np.exp(a_known @ b_known)))


def _left_factor(a: Floats) -> Floats:
    """(n, c + 2) of a (n, c): `_left_factor(a) @ _right_factor(b)` is minus the squared distances, in one product."""
    return np.concatenate([a, (a**2).sum(axis=1, keepdims=True), np.ones((len(a), 1))], axis=1)


def _right_factor(b: Floats) -> Floats:
    """(c + 2, p) of b (p, c)."""
    return np.concatenate([2.0 * b.T, -np.ones((1, len(b))), -(b**2).sum(axis=1)[None]])

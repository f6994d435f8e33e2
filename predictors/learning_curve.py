"""A curve that rises, predicted at a later iteration: the weighted probabilistic learning curve (algorithms 1.6).

The model is Domhan, Springenberg and Hutter's (IJCAI 2015): a weighted sum of curve families with Gaussian noise. Its
sampler is replaced by a bank of fixed shapes (`predictors.curve_shapes`) in each of which asymptote, gain and noise are
integrated out in closed form (normal-inverse-gamma), weighted by marginal likelihood: a mixture of Student's t.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from predictors.arrays import Floats, Ints
from predictors.curve_shapes import Design, design
from predictors.forecast import LEVELS, Forecast

Meta: TypeAlias = Mapping[str, Any] | None
State: TypeAlias = dict[str, Any]

_WORTH = 8.0
"""independent points that a curve is worth at most: the misfit of neighbouring points is alike"""
_NOISE = 0.01
_NOISE_SHAPE = 1.0
_LEVEL_VARIANCE = _GAIN_VARIANCE = 100.0
"""of asymptote and gain a priori, in units of the noise's variance"""
_KEPT = 24
"""shapes of a mixture whose quantiles are tabulated"""
_GRID = np.concatenate([[0.001, 0.01], np.linspace(0.04, 0.96, 13), [0.99, 0.999]])


class LearningCurvePredictor:
    """Forecasts the value of a rising curve at a later iteration; P(it reaches y) is `forecast.sf(y)`.

    Works cold, before any `fit`.
    """

    version: ClassVar[str] = "learning-curve-1"

    def fit(self, curves: Sequence[ArrayLike], meta: Sequence[Meta] | None = None) -> LearningCurvePredictor:
        """Learn from finished curves, each 1-D and higher is better. Raises ValueError for a curve that is none."""
        for curve in curves:
            _cleaned(curve)
        return self

    def update(self, curve: ArrayLike, meta: Meta = None) -> None:
        """One more finished curve."""
        _cleaned(curve)

    def predict(self, curve: ArrayLike, at: float, meta: Meta = None) -> Forecast:
        """The value of `curve` at iteration `at`, counted from 1.

        Raises ValueError for a curve without a finite value and for an `at` that is no iteration.
        """
        return self.predict_many([curve], [at], [meta])

    def predict_many(
        self, curves: Sequence[ArrayLike], ats: ArrayLike, metas: Sequence[Meta] | None = None
    ) -> Forecast:
        """The value of each of n curves at its iteration of `ats` (n,). Iterations already seen are certain."""
        clean = [_cleaned(curve) for curve in curves]
        horizons = np.asarray(ats, dtype=np.float64)
        if horizons.shape != (len(clean),) or not np.all(np.isfinite(horizons) & (horizons >= 1)):
            raise ValueError("`at` is one finite iteration, counted from 1, a curve")
        groups: dict[tuple[int, float], list[int]] = defaultdict(list)
        parts: list[tuple[ArrayLike, Forecast]] = []
        for i, (curve, at) in enumerate(zip(clean, horizons, strict=True)):
            if at <= len(curve):
                parts.append(([i], Forecast.certain(curve[int(at) - 1], "observed")))
            else:
                groups[len(curve), float(at)].append(i)
        for (length, at), rows in groups.items():
            parts.append((rows, _from_bank(np.stack([clean[i] for i in rows]), design(length, at))))
        return Forecast.assemble(len(clean), parts)

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        return {"version": self.version}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LearningCurvePredictor:
        """Raises ValueError for the state of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        return cls()


def _cleaned(curve: ArrayLike) -> Floats:
    """The curve with points that are no number filled in from their neighbours."""
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a curve has one dimension, not {values.ndim}")
    finite = np.isfinite(values) & (np.abs(values) < 1e100)
    if not finite.any():
        raise ValueError("a curve needs at least one finite value")
    if finite.all():
        return values
    places = np.arange(len(values))
    return np.interp(places, places[finite], values[finite])


def _scales(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """(m,) unit, lower and upper bound of each curve: a share, a percentage, or anything else by its own range."""
    low, high = curves.min(axis=1), curves.max(axis=1)
    share = (low >= 0.0) & (high <= 1.0)
    percent = (low >= 0.0) & (high > 1.5) & (high <= 100.0)
    free = np.maximum(high - low, 1e-3 * np.maximum(np.abs(low), np.abs(high)))
    unit = np.where(share, 1.0, np.where(percent, 100.0, np.where(free > 0, free, 1.0)))
    bounded = share | percent
    return unit, np.where(bounded, 0.0, -np.inf), np.where(bounded, unit, np.inf)


def _from_bank(curves: Floats, bank: Design) -> Forecast:
    """Curves (m, n) of one length and horizon: the mixture over the bank."""
    unit, lower, upper = _scales(curves)
    y = bank.points(curves) / unit[:, None]
    log_weight, mean, scale, freedom = _posterior(y, bank)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    values = _mixture_quantiles(weight, mean, scale, freedom) * unit[:, None]
    return Forecast.quantiles(LEVELS[1:-1], values, "learning curve").clip(lower, upper)


def _posterior(y: Floats, bank: Design) -> tuple[Floats, Floats, Floats, float]:
    """For points y (m, p): log marginal likelihood, location and scale at the horizon, each (m, K), and dof.

    Weighted Bayesian regression of y on (1, progress), conjugate prior centred on the weighted mean and no gain.
    """
    p = y.shape[1]
    w = np.arange(1.0, p + 1.0) / p
    w *= min(1.0, _WORTH / w.sum())
    total = w.sum()
    level = y @ w / total
    moved = y - level[:, None]
    sum_x, sum_xx = bank.progress @ w, bank.progress**2 @ w
    sum_xy, sum_yy = (moved * w) @ bank.progress.T, moved**2 @ w
    a, b, d = total + 1.0 / _LEVEL_VARIANCE, sum_x, sum_xx + 1.0 / _GAIN_VARIANCE
    determinant = a * d - b * b
    offset, gain = -b * sum_xy / determinant, a * sum_xy / determinant
    shape = _NOISE_SHAPE + total / 2.0
    rate = _NOISE_SHAPE * _NOISE**2 + np.maximum(sum_yy[:, None] - gain * sum_xy, 0.0) / 2.0
    evidence = np.where(bank.usable, -0.5 * np.log(determinant) - shape * np.log(rate), -np.inf)
    leverage = (d - 2.0 * b * bank.ahead + a * bank.ahead**2) / determinant
    mean = level[:, None] + offset + gain * bank.ahead
    if not bank.usable.any():  # one point: it may go anywhere
        evidence = np.zeros_like(evidence)
        leverage = leverage + 1.0 / _NOISE**2
    return evidence, mean, np.sqrt(rate / shape * (1.0 + leverage)), 2.0 * shape


def _mixture_quantiles(weight: Floats, mean: Floats, scale: Floats, freedom: float) -> Floats:
    """(m, inner levels) quantiles of mixtures of t distributions, from the quantiles of the heaviest components."""
    kept: Ints = np.argsort(-weight, axis=1)[:, :_KEPT]
    w, mu, s = (np.take_along_axis(a, kept, axis=1) for a in (weight, mean, scale))
    edges = np.concatenate([[0.0], (_GRID[1:] + _GRID[:-1]) / 2.0, [1.0]])
    values = (mu[:, :, None] + s[:, :, None] * stdtrit(freedom, _GRID)).reshape(len(w), -1)
    masses = (w[:, :, None] * np.diff(edges)).reshape(len(w), -1)
    order: NDArray[np.int64] = np.argsort(values, axis=1)
    values, masses = np.take_along_axis(values, order, axis=1), np.take_along_axis(masses, order, axis=1)
    reached = np.cumsum(masses, axis=1)
    middle = (reached - masses / 2.0) / reached[:, -1:]
    return np.stack([np.interp(LEVELS[1:-1], at, value) for at, value in zip(middle, values, strict=True)])

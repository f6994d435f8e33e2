"""Forecasts a rising curve at a later iteration, by the models of `history` and of `prior`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.learning_curve.blending import blend, fit_shift_penalty, fit_spread
from predictors.learning_curve.features import TOP, CurveScale, curve_features
from predictors.learning_curve.history import HistoryModel
from predictors.learning_curve.metadata import Meta, MetadataEncoder
from predictors.learning_curve.prior import prior_quantiles, shrink_overconfident
from predictors.learning_curve.quantiles import QUANTILE_LEVELS, scale_about_median
from predictors.missing_values import fill_missing
from predictors.state import State, prefixed

FEWEST = 20
"""finished curves that `fit` needs"""
_STEP = 0.05
_BATCH = 2048
"""curves whose features are computed at once: some 16 kB each"""


class LearningCurvePredictor:
    """Forecasts the value of a rising curve at a later iteration; P(it reaches y) is `forecast.sf(y)`.

    Forecasts by the prior alone before any `fit`. seed: of the random forest.
    """

    version: ClassVar[str] = "learning-curve-8"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._history: HistoryModel | None = None
        self._spread, self._shift_penalty = 1.0, 0.0

    @property
    def metadata(self) -> MetadataEncoder:
        """What is used of the metadata of runs: no column before a `fit`."""
        return MetadataEncoder() if self._history is None else self._history.metadata

    def fit(self, curves: Sequence[ArrayLike], meta: Sequence[Meta] | None = None) -> LearningCurvePredictor:
        """Fit on finished curves, each (k,), higher is better; meta: what is known of each run at its start.

        Fewer than `FEWEST` curves leave the predictor unfitted. Raises ValueError for a curve of other than one
        dimension or without a finite value, and unless there are as many metas as curves.
        """
        clean = [fill_missing(curve) for curve in curves]
        metas = _one_for_each(meta, len(clean))
        self._history, self._spread, self._shift_penalty = None, 1.0, 0.0
        if len(clean) >= FEWEST:
            normalised = [CurveScale.fit(curve[None]).normalise(curve[None])[0] for curve in clean]
            self._history, of_folds, of_clusters = HistoryModel.fit(normalised, metas, self.seed)
            self._spread = fit_spread(of_folds, len(clean))
            self._shift_penalty = fit_shift_penalty([*of_folds, *of_clusters], self._spread)
        return self

    def update(self, curve: ArrayLike, meta: Meta = None) -> None:
        """Widen or narrow later intervals by how well one more finished curve (k,) was predicted.

        Adaptive conformal inference (Gibbs, Candès 2021) on the 90% interval from a quarter and from half of the curve.
        The forest is fitted on the curve at the next `fit`. Raises ValueError as `fit` does.
        """
        clean = fill_missing(curve)
        for part in (len(clean) // 4, len(clean) // 2):
            if part:
                low, high = self.predict(clean[:part], len(clean), meta).quantile([0.05, 0.95])[0]
                missed = not low <= clean[-1] <= high
                self._spread = float(np.clip(self._spread * np.exp(_STEP * (missed - 0.1)), 0.5, 4.0))

    def predict(self, curve: ArrayLike, at: float, meta: Meta = None) -> Forecast:
        """The value of `curve` (k,) at iteration `at`, counted from 1.

        Raises ValueError for a curve without a finite value, and unless `at` is a finite number of at least 1.
        """
        return self.predict_many([curve], [at], [meta])

    def predict_many(
        self, curves: Sequence[ArrayLike], ats: ArrayLike, metas: Sequence[Meta] | None = None
    ) -> Forecast:
        """The value of each of n curves at its iteration of `ats` (n,). Values that were reported are certain.

        Raises ValueError as `predict` does, and unless there are as many metas as curves.
        """
        clean = [fill_missing(curve) for curve in curves]
        metas = _one_for_each(metas, len(clean))
        horizons = np.asarray(ats, dtype=np.float64)
        if horizons.shape != (len(clean),) or not np.all(np.isfinite(horizons) & (horizons >= 1)):
            raise ValueError("`at` is one finite iteration, counted from 1, a curve")
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        parts: list[tuple[ArrayLike, Forecast]] = []
        for i, (curve, at) in enumerate(zip(clean, horizons, strict=True)):
            if at <= len(curve):
                parts.append(([i], Forecast.certain(curve[int(at) - 1], "observed")))
            else:
                groups[len(curve), i // _BATCH].append(i)
        if groups:
            rows = [i for group in groups.values() for i in group]
            stacks = [np.stack([clean[i] for i in group]) for group in groups.values()]
            parts.append((rows, self._predict_ahead(stacks, horizons[rows], [metas[i] for i in rows])))
        return Forecast.assemble(len(clean), parts)

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        numbers = {"seed": self.seed, "spread": self._spread, "doubt": self._shift_penalty}
        model = prefixed("meta/", self.metadata.state()) if self._history is None else self._history.state()
        return {"version": self.version, **numbers, **model}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LearningCurvePredictor:
        """The predictor whose `state` this is. Raises ValueError for one of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        restored = cls(int(state["seed"]))
        restored._spread, restored._shift_penalty = float(state["spread"]), float(state["doubt"])
        if "forest/roots" in state:
            restored._history = HistoryModel.from_state(state)
        return restored

    def _predict_ahead(self, stacks: Sequence[Floats], horizons: Floats, metas: Sequence[Meta]) -> Forecast:
        """Forecasts for the curves of all stacks (m, n) in order; horizons and metas have an entry for each curve."""
        scales = [CurveScale.fit(stack) for stack in stacks]
        normalised = [scale.normalise(stack) for scale, stack in zip(scales, stacks, strict=True)]
        by_stack = np.split(horizons, np.cumsum([len(stack) for stack in stacks])[:-1])
        x = np.concatenate([curve_features(y, ats) for y, ats in zip(normalised, by_stack, strict=True)])
        last = np.concatenate([y[:, -1] for y in normalised])[:, None]
        values = last + self._gains(x, metas) * (TOP - last)
        scale = CurveScale(*(np.concatenate(parts) for parts in zip(*(vars(s).values() for s in scales), strict=True)))
        source = "learning curve, cold" if self._history is None else "learning curve"
        return Forecast.quantiles(
            QUANTILE_LEVELS, scale.denormalise(values), source, lower=scale.lower, upper=scale.upper
        )

    def _gains(self, x: Floats, metas: Sequence[Meta]) -> Floats:
        """(m, levels) quantiles of the gain for features x (m, features)."""
        if self._history is None:
            return shrink_overconfident(scale_about_median(prior_quantiles(x), self._spread), x)
        return blend(self._history.predict(x, metas), self._spread, self._shift_penalty)


def _one_for_each(metas: Sequence[Meta] | None, n: int) -> Sequence[Meta]:
    if metas is not None and len(metas) != n:
        raise ValueError(f"{n} curves need as many metas, not {len(metas)}")
    return [None] * n if metas is None else metas

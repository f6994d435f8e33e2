"""Forecasts a rising curve at a later iteration: the weighted probabilistic learning curve, corrected by a forest.

The model is Domhan, Springenberg and Hutter's (IJCAI 2015), its sampler replaced by closed forms over a grid of shapes
(`shape_mixture`). A quantile forest (`predictors.forest`) predicts the normalised gain: the share of the distance to
the top that is still gained. Its features are the level and movement of the curve, the prediction of the mixture, and
that of a Gaussian process over the history (`gaussian_process`). It is fitted on finished curves and on draws from a
prior (`prior`), which weigh less the longer the history is. For a curve unlike the history, a forest fitted on the
prior alone weighs more (`blending`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.forest import QuantileForest
from predictors.learning_curve.blending import (
    QUANTILE_LEVELS,
    blend,
    fit_shift_penalty,
    fit_spread,
    sample_quantiles,
    scale_about_median,
    shrink_overconfident,
)
from predictors.learning_curve.examples import TOP, make_examples, prior_examples, remaining_share
from predictors.learning_curve.features import FEATURE_COUNT, curve_features
from predictors.learning_curve.forests import (
    cluster_curves,
    grow_forest,
    predict_held_out,
    predict_sources,
    prior_forest,
)
from predictors.learning_curve.gaussian_process import CurveGaussianProcess
from predictors.learning_curve.metadata import Meta, MetadataEncoder
from predictors.learning_curve.scaling import CurveScale
from predictors.missing_values import fill_missing
from predictors.state import State, prefixed, unprefixed

FEWEST = 20
"""finished curves that `fit` needs"""
_PRIOR_CURVES = 12
"""curves of the prior, of each of its lengths, that the forest is fitted on beside the history"""
_MOST_PROCESS_CURVES = 500
"""curves of the history that the Gaussian process is fitted on: its time grows with their third power"""
_FOLDS = 3
_MASKED_SHARE = 0.3
"""share of the examples whose metadata is hidden, so that curves without any can be predicted"""
_MAX_RATE = 1.5
"""bound of the target of the process: the gain over the share of the run that remains"""
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
        self.forest_: QuantileForest | None = None
        self.process_: CurveGaussianProcess | None = None
        self.metadata_ = MetadataEncoder()
        self.spread_, self.shift_penalty_ = 1.0, 0.0
        self._joined: QuantileForest | None = None

    def fit(self, curves: Sequence[ArrayLike], meta: Sequence[Meta] | None = None) -> LearningCurvePredictor:
        """Fit on finished curves, each (k,), higher is better; meta: what is known of each run at its start.

        Fewer than `FEWEST` curves leave the predictor unfitted. Raises ValueError for a curve of other than one
        dimension or without a finite value, and unless there are as many metas as curves.
        """
        clean = [fill_missing(curve) for curve in curves]
        metas = _one_for_each(meta, len(clean))
        normalised = [CurveScale.fit(curve[None]).normalise(curve[None])[0] for curve in clean]
        self.forest_, self.process_, self.metadata_, self._joined = None, None, MetadataEncoder(), None
        self.spread_, self.shift_penalty_ = 1.0, 0.0
        if len(clean) >= FEWEST:
            self._fit(normalised, metas)
        return self

    def _fit(self, curves: Sequence[Floats], metas: Sequence[Meta]) -> None:
        """Fit the process, the forest and the calibration on normalised curves."""
        finished = len(curves)
        random = np.random.default_rng(self.seed)
        self.metadata_ = MetadataEncoder.fit(metas)
        x, y, owner, points = make_examples(curves)
        metadata, no_metadata = self.metadata_.encode(metas)[owner], self.metadata_.encode([None])
        masked = np.where((random.random(len(owner)) < _MASKED_SHARE)[:, None], no_metadata, metadata)
        points &= np.isin(owner, random.permutation(finished)[:_MOST_PROCESS_CURVES])
        prior = prior_examples(_PRIOR_CURVES)
        of_prior = np.repeat(no_metadata, len(prior.x), axis=0)
        metadata, masked = np.concatenate([metadata, of_prior]), np.concatenate([masked, of_prior])
        x, y = np.concatenate([x, prior.x]), np.concatenate([y, prior.target])
        owner = np.concatenate([owner, finished + prior.owner])
        at = np.flatnonzero(np.concatenate([points, prior.process_point]))
        rate = np.clip(y / remaining_share(x), -_MAX_RATE, _MAX_RATE)
        self.process_, held_out_rate = CurveGaussianProcess.fit(
            x[at], metadata[at], rate[at], owner[at], (x, masked, owner)
        )
        x = np.concatenate([x, masked, (held_out_rate * remaining_share(x))[:, None]], axis=1)
        self.forest_ = grow_forest(x, y, owner, finished, trees=120, seed=self.seed)
        folds = np.random.default_rng(self.seed).permutation(finished) % _FOLDS
        known_kinds = list(predict_held_out(x, y, owner, folds, trees=40, seed=self.seed))
        self.spread_ = fit_spread(known_kinds, finished)
        x[:, -1] = 0.0  # the process was fitted on all clusters
        clusters = cluster_curves(self.process_.scaled_inputs(x[:, :FEATURE_COUNT], metadata), owner, finished)
        new_kinds = list(predict_held_out(x, y, owner, clusters, trees=20, seed=self.seed))
        self.shift_penalty_ = fit_shift_penalty([*known_kinds, *new_kinds], self.spread_)

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
                self.spread_ = float(np.clip(self.spread_ * np.exp(_STEP * (missed - 0.1)), 0.5, 4.0))

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
        forest = {} if self.forest_ is None else prefixed("forest/", self.forest_.state())
        process = {} if self.process_ is None else prefixed("process/", self.process_.state())
        meta = prefixed("meta/", self.metadata_.state())
        numbers = {"seed": self.seed, "spread": self.spread_, "doubt": self.shift_penalty_}
        return {"version": self.version, **numbers, **forest, **process, **meta}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LearningCurvePredictor:
        """The predictor whose `state` this is. Raises ValueError for one of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        restored = cls(int(state["seed"]))
        restored.spread_, restored.shift_penalty_ = float(state["spread"]), float(state["doubt"])
        restored.metadata_ = MetadataEncoder.from_state(unprefixed("meta/", state))
        if "forest/roots" in state:
            restored.forest_ = QuantileForest.from_state(unprefixed("forest/", state))
            restored.process_ = CurveGaussianProcess.from_state(unprefixed("process/", state))
        return restored

    def _predict_ahead(self, stacks: Sequence[Floats], horizons: Floats, metas: Sequence[Meta]) -> Forecast:
        """Forecasts for the curves of all stacks (m, n) in order; horizons and metas have an entry for each curve."""
        scales = [CurveScale.fit(stack) for stack in stacks]
        normalised = [scale.normalise(stack) for scale, stack in zip(scales, stacks, strict=True)]
        by_stack = np.split(horizons, np.cumsum([len(stack) for stack in stacks])[:-1])
        x = np.concatenate([curve_features(y, ats) for y, ats in zip(normalised, by_stack, strict=True)])
        if self.forest_ is None or self.process_ is None:
            by_prior = scale_about_median(sample_quantiles(prior_forest().sample(x)), self.spread_)
            gains = shrink_overconfident(by_prior, x)
        else:
            metadata = self.metadata_.encode(metas)
            by_process = self.process_.predict(x, metadata) * remaining_share(x)
            x = np.concatenate([x, metadata, by_process[:, None]], axis=1)
            if self._joined is None:
                self._joined = QuantileForest.joined([self.forest_, prior_forest()])
            gains = blend(predict_sources(self._joined, x), self.spread_, self.shift_penalty_)
        last = np.concatenate([y[:, -1] for y in normalised])[:, None]
        values = last + gains * (TOP - last)
        scale = CurveScale(*(np.concatenate(parts) for parts in zip(*(vars(s).values() for s in scales), strict=True)))
        source = "learning curve" if self.forest_ is not None else "learning curve, cold"
        return Forecast.quantiles(
            QUANTILE_LEVELS, scale.denormalise(values), source, lower=scale.lower, upper=scale.upper
        )


def _one_for_each(metas: Sequence[Meta] | None, n: int) -> Sequence[Meta]:
    if metas is not None and len(metas) != n:
        raise ValueError(f"{n} curves need as many metas, not {len(metas)}")
    return [None] * n if metas is None else metas

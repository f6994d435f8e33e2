"""A curve that rises, predicted at a later iteration: the weighted probabilistic learning curve (algorithms 1.6).

The model is Domhan, Springenberg and Hutter's (IJCAI 2015), its sampler replaced by closed forms over a bank of shapes
(`predictors.learning_curve.shape_mixture`). A quantile forest corrects it (`predictors.forest`), given where the curve stands, how it
moves, what the bank expects and what a Gaussian process over the history says (`predictors.learning_curve.gaussian_process`); it learns
from history and from draws of a prior over curves (`predictors.learning_curve.prior`), which count for less the longer the
history is. The forest predicts what share of the distance to the top is still gained. Of a curve that is strange to the
history, a forest that learnt from the prior alone has the more say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast
from predictors.forest import BATCH, QuantileForest
from predictors.learning_curve.blending import (
    GRID,
    LeftOut,
    Said,
    calibrated,
    doubted,
    mixed,
    quantiles,
    sobered,
    spread_out,
)
from predictors.learning_curve.features import COUNT, HISTORY_LENGTH, HORIZON, SEEN, curve_features
from predictors.learning_curve.gaussian_process import CurveProcess
from predictors.learning_curve.metadata import Meta, MetaColumns
from predictors.learning_curve.prior import LENGTHS, prior_curves
from predictors.learning_curve.scaling import CurveScale
from predictors.missing_values import cleaned

State: TypeAlias = dict[str, Any]

FEWEST = 20
"""curves that a history needs before it is learnt from"""
_DRAWN_COLD, _DRAWN_BESIDE = 960, 12
"""curves drawn from the prior of each of its lengths: without a history, and beside one"""
_DRAWN_A_TREE = 0.09
"""share of the first that each tree learns from: draws cost little, and trees that know other draws err less alike"""
_CUTS = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
_POINTS = frozenset({0.16, 0.25, 0.4, 0.5})
"""of these cuts, continued to the end, are the points of the Gaussian process"""
_MOST_CURVES = 500
"""of the history in it: what it takes grows with their third power"""
_CHECKED = (0.2, 0.6)
"""between these shares of a curve its intervals are calibrated"""
_FOLDS = 3
_SPLITS = 2
"""of the history into kinds that are left out in turn"""
_HIDDEN = 0.3
"""of the lessons are learnt from without what was known at the start"""
_TELLING = 30
_LEAST_FAMILIAR = 0.1
_TOP = 1.05
"""what the forest's target is relative to: a little above 1, so that a perfect curve can still move"""
_FASTEST = 1.5
"""gain, as a share of the distance to the top, over the share of the run that remains: the target of the process"""
_STEP = 0.05
_TOGETHER = 2048
"""curves looked at together: what is made of each takes some 16 kB"""


class LearningCurvePredictor:
    """Forecasts the value of a rising curve at a later iteration; P(it reaches y) is `forecast.sf(y)`.

    Works cold, before any `fit`. seed: of the forest.
    """

    version: ClassVar[str] = "learning-curve-8"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.forest_: QuantileForest | None = None
        self.process_: CurveProcess | None = None
        self.meta_ = MetaColumns()
        self.spread_, self.doubt_ = 1.0, 0.0
        self._both: QuantileForest | None = None

    def fit(self, curves: Sequence[ArrayLike], meta: Sequence[Meta] | None = None) -> LearningCurvePredictor:
        """Learn from finished curves, each 1-D, higher is better; meta: what is known of each at its start.

        Fewer than `FEWEST` curves leave the predictor cold. Raises ValueError for a curve that is none.
        """
        clean = [cleaned(curve) for curve in curves]
        metas = _as_many(meta, len(clean))
        scaled = [CurveScale.of(curve[None]).down(curve[None])[0] for curve in clean]
        self.forest_, self.process_, self.meta_, self._both = None, None, MetaColumns(), None
        self.spread_, self.doubt_ = 1.0, 0.0
        if len(clean) >= FEWEST:
            random = np.random.default_rng(self.seed)
            self.meta_ = MetaColumns.of(metas)
            x, y, owner, points = _lessons(scaled, _CUTS)
            told, untold = self.meta_.matrix(metas)[owner], self.meta_.matrix([None])
            known = np.where((random.random(len(owner)) < _HIDDEN)[:, None], untold, told)
            points &= np.isin(owner, random.permutation(len(clean))[:_MOST_CURVES])
            drawn_x, drawn_y, drawn_owner, drawn_points = _prior_lessons(_DRAWN_BESIDE)
            nothing = np.repeat(untold, len(drawn_x), axis=0)
            told, known = np.concatenate([told, nothing]), np.concatenate([known, nothing])
            x, y = np.concatenate([x, drawn_x]), np.concatenate([y, drawn_y])
            owner = np.concatenate([owner, len(clean) + drawn_owner])
            at = np.flatnonzero(np.concatenate([points, drawn_points]))
            pace = np.clip(y / _remaining(x), -_FASTEST, _FASTEST)
            self.process_, said = CurveProcess.fit(x[at], told[at], pace[at], owner[at], (x, known, owner))
            x = np.concatenate([x, known, (said * _remaining(x))[:, None]], axis=1)
            self.forest_ = _grown(x, y, owner, len(clean), trees=120, seed=self.seed)
            folds = np.random.default_rng(self.seed).permutation(len(clean)) % _FOLDS
            of_known_kinds = list(_left_out(x, y, owner, folds, trees=40, seed=self.seed))
            self.spread_ = calibrated(of_known_kinds, len(clean))
            x[:, -1] = 0.0  # the process learnt from all kinds
            kinds = _kinds(self.process_.inputs(x[:, :COUNT], told), owner, len(clean))
            of_new_kinds = list(_left_out(x, y, owner, kinds, trees=20, seed=self.seed))
            self.doubt_ = doubted([*of_known_kinds, *of_new_kinds], self.spread_)
        return self

    def update(self, curve: ArrayLike, meta: Meta = None) -> None:
        """One more finished curve: how well it was predicted widens or narrows later intervals.

        Adaptive conformal inference (Gibbs, Candès 2021) on the 90% interval from a quarter and a half of the curve.
        The forest itself learns from it at the next `fit`.
        """
        clean = cleaned(curve)
        for part in (len(clean) // 4, len(clean) // 2):
            if part:
                low, high = self.predict(clean[:part], len(clean), meta).quantile([0.05, 0.95])[0]
                missed = not low <= clean[-1] <= high
                self.spread_ = float(np.clip(self.spread_ * np.exp(_STEP * (missed - 0.1)), 0.5, 4.0))

    def predict(self, curve: ArrayLike, at: float, meta: Meta = None) -> Forecast:
        """The value of `curve` at iteration `at`, counted from 1.

        Raises ValueError for a curve without a finite value and for an `at` that is no iteration.
        """
        return self.predict_many([curve], [at], [meta])

    def predict_many(
        self, curves: Sequence[ArrayLike], ats: ArrayLike, metas: Sequence[Meta] | None = None
    ) -> Forecast:
        """The value of each of n curves at its iteration of `ats` (n,). Iterations already seen are certain."""
        clean = [cleaned(curve) for curve in curves]
        given = _as_many(metas, len(clean))
        horizons = np.asarray(ats, dtype=np.float64)
        if horizons.shape != (len(clean),) or not np.all(np.isfinite(horizons) & (horizons >= 1)):
            raise ValueError("`at` is one finite iteration, counted from 1, a curve")
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        parts: list[tuple[ArrayLike, Forecast]] = []
        for i, (curve, at) in enumerate(zip(clean, horizons, strict=True)):
            if at <= len(curve):
                parts.append(([i], Forecast.certain(curve[int(at) - 1], "observed")))
            else:
                groups[len(curve), i // _TOGETHER].append(i)
        if groups:
            rows = [i for group in groups.values() for i in group]
            stacks = [np.stack([clean[i] for i in group]) for group in groups.values()]
            parts.append((rows, self._ahead(stacks, horizons[rows], [given[i] for i in rows])))
        return Forecast.assemble(len(clean), parts)

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        named = {"forest/": self.forest_, "process/": self.process_}
        forest = {prefix + k: v for prefix, f in named.items() if f is not None for k, v in f.state().items()}
        meta = {f"meta/{name}": values for name, values in self.meta_.state().items()}
        numbers = {"seed": self.seed, "spread": self.spread_, "doubt": self.doubt_}
        return {"version": self.version, **numbers, **forest, **meta}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LearningCurvePredictor:
        """Raises ValueError for the state of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        made = cls(int(state["seed"]))
        made.spread_, made.doubt_ = float(state["spread"]), float(state["doubt"])
        made.meta_ = MetaColumns.from_state(_under("meta/", state))
        if "forest/roots" in state:
            made.forest_ = QuantileForest.from_state(_under("forest/", state))
            made.process_ = CurveProcess.from_state(_under("process/", state))
        return made

    def _ahead(self, stacks: Sequence[Floats], horizons: Floats, metas: Sequence[Meta]) -> Forecast:
        """Of stacks of curves (m, n), one below the other, each curve with its horizon and what is known of it."""
        scales = [CurveScale.of(stack) for stack in stacks]
        scaled = [scale.down(stack) for scale, stack in zip(scales, stacks, strict=True)]
        to = np.split(horizons, np.cumsum([len(stack) for stack in stacks])[:-1])
        x = np.concatenate([curve_features(y, ats) for y, ats in zip(scaled, to, strict=True)])
        if self.forest_ is None or self.process_ is None:
            gains = sobered(spread_out(quantiles(_prior_forest().sample(x)), self.spread_), x)
        else:
            known = self.meta_.matrix(metas)
            said = self.process_.predict(x, known) * _remaining(x)
            x = np.concatenate([x, known, said[:, None]], axis=1)
            if self._both is None:
                self._both = QuantileForest.joined([self.forest_, _prior_forest()])
            gains = mixed(_said(self._both, x, len(_prior_forest().roots)), self.spread_, self.doubt_)
        last = np.concatenate([y[:, -1] for y in scaled])[:, None]
        values = last + gains * (_TOP - last)
        scale = CurveScale(*(np.concatenate(parts) for parts in zip(*(vars(s).values() for s in scales), strict=True)))
        source = "learning curve" if self.forest_ is not None else "learning curve, cold"
        return Forecast.quantiles(GRID, scale.up(values), source, lower=scale.lower, upper=scale.upper)


def _as_many(metas: Sequence[Meta] | None, n: int) -> Sequence[Meta]:
    if metas is not None and len(metas) != n:
        raise ValueError(f"{n} curves need as many metas, not {len(metas)}")
    return [None] * n if metas is None else metas


def _under(prefix: str, state: Mapping[str, Any]) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _lessons(curves: Sequence[Floats], shares: Sequence[float]) -> tuple[Floats, Floats, Ints, Bools]:
    """Features, targets, the curve that each is of, and whether it is a point of the process: every curve cut at
    shares of its length, to be continued to its end, and of half its cuts to three fifths of it."""
    lengths = np.array([len(curve) for curve in curves])
    x, y, owner, points = [], [], [], []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        stack = np.stack([curves[i] for i in rows.tolist()])
        pointed = {max(1, round(cut * length)) for cut in _POINTS}
        for end, cuts in ((length, shares), (round(0.6 * length), shares[::2])):
            for n in sorted({max(1, round(cut * length)) for cut in cuts}):
                if n < end:
                    last = stack[:, n - 1]
                    x.append(curve_features(stack[:, :n], np.full(len(rows), float(end))))
                    y.append((stack[:, end - 1] - last) / (_TOP - last))
                    owner.append(rows)
                    points.append(np.full(len(rows), end == length and n in pointed))
    return np.concatenate(x), np.concatenate(y), np.concatenate(owner), np.concatenate(points)


def _remaining(x: Floats) -> Floats:
    """(m,) the share of the iterations up to the horizon that is still to come."""
    return np.asarray(1.0 - x[:, SEEN])


def _grown(x: Floats, y: Floats, owner: Ints, finished: int, *, trees: int, seed: int) -> QuantileForest:
    """Half of the `trees` predict the target, the others how far it is from what the process says, the last of x.

    `_TELLING` more tell lessons of the `finished` curves of the history, 1, from those of the prior, 0.
    """

    def forest(x: Floats, target: Floats, trees: int, seed: int) -> QuantileForest:
        return QuantileForest.fit(x, target, owner, trees=trees, smallest_leaf=4, features=0.5, seed=seed)

    plain, after = forest(x[:, :-1], y, trees // 2, seed), forest(x, y - x[:, -1], trees // 2, seed + 1)
    return QuantileForest.joined([plain, after, forest(x, (owner < finished).astype(np.float64), _TELLING, seed)])


def _said(forest: QuantileForest, x: Floats, cold: int) -> Said:
    """By a forest as `_grown` makes it, after which come `cold` trees that learnt from the prior alone."""
    trees = len(forest.roots) - _TELLING - cold
    parts = []
    for i in range(0, max(len(x), 1), BATCH):
        rows = x[i : i + BATCH]
        leaves = forest.leaves(rows)
        leaves[:, trees // 2 : trees] += rows[:, -1, None, None]
        alike = np.maximum(leaves[:, trees : trees + _TELLING].mean(axis=(1, 2)), _LEAST_FAMILIAR)
        plain, pooled, prior = (
            np.sort(leaves[:, part].reshape(len(rows), -1), axis=1)
            for part in (slice(trees // 2), slice(trees), slice(trees + _TELLING, None))
        )
        values = quantiles(plain, 2)
        values += alike[:, None] * (quantiles(pooled) - values)
        parts.append((values, sobered(quantiles(prior), rows), alike))
    return Said(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _left_out(x: Floats, y: Floats, owner: Ints, folds: Ints, *, trees: int, seed: int) -> Iterator[LeftOut]:
    """Of each fold of the history's curves, folds (finished,) numbering those; the curves of the prior are in none."""
    finished = len(folds)
    fold = np.append(folds, np.full(owner.max() + 1 - finished, -1))[owner]
    share = np.exp(x[:, HISTORY_LENGTH] - x[:, HORIZON])
    checked = (share >= _CHECKED[0]) & (share <= _CHECKED[1])
    for k in np.unique(folds).tolist():
        rows, rest = np.flatnonzero((fold == k) & checked), fold != k
        if len(rows) and np.any(folds != k):
            forest = _grown(x[rest], y[rest], owner[rest], finished, trees=trees, seed=seed)
            said = _said(QuantileForest.joined([forest, _prior_forest()]), x[rows], len(_prior_forest().roots))
            yield LeftOut(said, y[rows], _TOP - x[rows, 0])


def _kinds(inputs: Floats, owner: Ints, finished: int) -> Ints:
    """(finished,) the cluster of each curve of the history, by the mean of its lessons' `inputs` (n, columns).

    All are split in two across the direction in which they differ most, and both parts again (Boley 1998). Leaving out
    one cluster after another shows how a model does on kinds that it has not seen (Meredig and others 2018).
    """
    own = owner < finished
    means = np.zeros((finished, inputs.shape[1]))
    np.add.at(means, owner[own], inputs[own])
    means /= np.maximum(np.bincount(owner[own], minlength=finished), 1)[:, None]
    cluster = np.zeros(finished, dtype=np.int64)
    for split in range(_SPLITS):
        for k in np.unique(cluster).tolist():
            rows = np.flatnonzero(cluster == k)
            away = means[rows] - means[rows].mean(axis=0)
            across = away @ np.linalg.svd(away, full_matrices=False)[2][0]
            cluster[rows] += (across > 0) * 2**split
    return cluster


@lru_cache(maxsize=1)
def _prior_forest() -> QuantileForest:
    x, y, owner, _ = _prior_lessons(_DRAWN_COLD)
    return QuantileForest.fit(x, y, owner, trees=60, smallest_leaf=8, features=0.5, seed=20, share=_DRAWN_A_TREE)


def _prior_lessons(count: int) -> tuple[Floats, Floats, Ints, Bools]:
    """Of `count` curves of each length."""
    random = np.random.default_rng(20)
    return _lessons([curve for length in LENGTHS for curve in prior_curves(length, count, random)], _CUTS[::2])

"""Quantile forests of the normalised gain: by a site's history and by the prior, and their held-out predictions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forest import BATCH, QuantileForest
from predictors.learning_curve.blending import HeldOut, SourceQuantiles, sample_quantiles, shrink_overconfident
from predictors.learning_curve.examples import TOP, prior_examples
from predictors.learning_curve.features import HISTORY_LENGTH, HORIZON

_PRIOR_CURVES = 960
"""curves drawn for the forest of the prior, of each length"""
_PRIOR_SHARE = 0.09
"""share of them that each tree is fitted on: draws are cheap, and errors of trees on different draws correlate less"""
_CALIBRATED = (0.2, 0.6)
"""intervals are calibrated on examples that have seen a share of the run between these"""
_CLUSTER_SPLITS = 2
_CLASSIFIER_TREES = 30
_MIN_FAMILIARITY = 0.1


def grow_forest(x: Floats, y: Floats, owner: Ints, finished: int, *, trees: int, seed: int) -> QuantileForest:
    """A forest on features x (n, features), the last being the prediction of the Gaussian process, and targets y (n,).

    The first half of the `trees` predict the target from the other features, the second half its distance from the
    process' prediction. `_CLASSIFIER_TREES` more classify examples by their curve, owner (n,): 1 for the first
    `finished`, which are of the history, 0 for those of the prior.
    """

    def forest(x: Floats, target: Floats, trees: int, seed: int) -> QuantileForest:
        return QuantileForest.fit(x, target, owner, trees=trees, smallest_leaf=4, features=0.5, seed=seed)

    plain, residual = forest(x[:, :-1], y, trees // 2, seed), forest(x, y - x[:, -1], trees // 2, seed + 1)
    classifier = forest(x, (owner < finished).astype(np.float64), _CLASSIFIER_TREES, seed)
    return QuantileForest.joined([plain, residual, classifier])


@lru_cache(maxsize=1)
def prior_forest() -> QuantileForest:
    """The forest fitted on curves of the prior alone, grown once in a process."""
    x, y, owner, _ = prior_examples(_PRIOR_CURVES)
    return QuantileForest.fit(x, y, owner, trees=60, smallest_leaf=8, features=0.5, seed=20, share=_PRIOR_SHARE)


def predict_sources(forest: QuantileForest, x: Floats) -> SourceQuantiles:
    """Quantiles for x (m, features) by a forest of `grow_forest` joined with `prior_forest`."""
    trees = len(forest.roots) - _CLASSIFIER_TREES - len(prior_forest().roots)
    parts = []
    for i in range(0, max(len(x), 1), BATCH):
        rows = x[i : i + BATCH]
        leaves = forest.leaves(rows)
        leaves[:, trees // 2 : trees] += rows[:, -1, None, None]
        familiarity = np.maximum(leaves[:, trees : trees + _CLASSIFIER_TREES].mean(axis=(1, 2)), _MIN_FAMILIARITY)
        plain, pooled, prior = (
            np.sort(leaves[:, part].reshape(len(rows), -1), axis=1)
            for part in (slice(trees // 2), slice(trees), slice(trees + _CLASSIFIER_TREES, None))
        )
        values = sample_quantiles(plain, 2)
        values += familiarity[:, None] * (sample_quantiles(pooled) - values)
        parts.append((values, shrink_overconfident(sample_quantiles(prior), rows), familiarity))
    return SourceQuantiles(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def predict_held_out(x: Floats, y: Floats, owner: Ints, folds: Ints, *, trees: int, seed: int) -> Iterator[HeldOut]:
    """Predictions for each fold by a forest fitted without it.

    folds: (finished,) fold of each curve of the history; curves of the prior are in none.
    """
    finished = len(folds)
    fold = np.append(folds, np.full(owner.max() + 1 - finished, -1))[owner]
    seen = np.exp(x[:, HISTORY_LENGTH] - x[:, HORIZON])
    calibrated = (seen >= _CALIBRATED[0]) & (seen <= _CALIBRATED[1])
    for k in np.unique(folds).tolist():
        rows, rest = np.flatnonzero((fold == k) & calibrated), fold != k
        if len(rows) and np.any(folds != k):
            forest = grow_forest(x[rest], y[rest], owner[rest], finished, trees=trees, seed=seed)
            quantiles = predict_sources(QuantileForest.joined([forest, prior_forest()]), x[rows])
            yield HeldOut(quantiles, y[rows], TOP - x[rows, 0])


def cluster_curves(inputs: Floats, owner: Ints, finished: int) -> Ints:
    """(finished,) cluster of each curve of the history, by the mean of the `inputs` (n, columns) of its examples.

    All curves are split in two along their first principal component, and both halves again (Boley 1998). Holding out
    one cluster after another shows how a model does on kinds of curves that it has not seen (Meredig and others 2018).
    """
    own = owner < finished
    means = np.zeros((finished, inputs.shape[1]))
    np.add.at(means, owner[own], inputs[own])
    means /= np.maximum(np.bincount(owner[own], minlength=finished), 1)[:, None]
    cluster = np.zeros(finished, dtype=np.int64)
    for split in range(_CLUSTER_SPLITS):
        for k in np.unique(cluster).tolist():
            rows = np.flatnonzero(cluster == k)
            centred = means[rows] - means[rows].mean(axis=0)
            projected = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
            cluster[rows] += (projected > 0) * 2**split
    return cluster

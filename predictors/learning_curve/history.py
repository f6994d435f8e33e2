"""The model that learns from a site's finished curves: a Gaussian process, and a quantile forest that corrects it.

Both are fitted on examples of the history and on some of the prior; a third set of trees tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forest import BATCH, QuantileForest
from predictors.learning_curve.blending import HeldOut, SourceQuantiles
from predictors.learning_curve.features import HISTORY_LENGTH, HORIZON, TOP, make_examples, remaining_share
from predictors.learning_curve.gaussian_process import CurveGaussianProcess
from predictors.learning_curve.metadata import Meta, MetadataEncoder
from predictors.learning_curve.prior import prior_examples, prior_quantiles, shrink_overconfident
from predictors.learning_curve.quantiles import sample_quantiles
from predictors.state import State, prefixed, unprefixed

_PRIOR_CURVES = 12
"""curves of the prior, of each of its lengths, that the forest is fitted on beside the history"""
_MOST_PROCESS_CURVES = 500
"""curves of the history that the Gaussian process is fitted on: its time grows with their third power"""
_MASKED_SHARE = 0.3
"""share of the examples whose metadata is hidden, so that curves without any can be predicted"""
_MAX_RATE = 1.5
"""bound of the target of the process: the gain over the share of the run that remains"""
_FOLDS = 3
_CALIBRATED = (0.2, 0.6)
"""intervals are calibrated on examples that have seen a share of the run between these"""
_CLUSTER_SPLITS = 2
_CLASSIFIER_TREES = 30
_MIN_FAMILIARITY = 0.1


@dataclass(frozen=True, eq=False)
class HistoryModel:
    """metadata: the columns of what is known of runs. process: the Gaussian process. forest: the trees of `_grow`."""

    metadata: MetadataEncoder
    process: CurveGaussianProcess
    forest: QuantileForest

    @classmethod
    def fit(
        cls, curves: Sequence[Floats], metas: Sequence[Meta], seed: int
    ) -> tuple[HistoryModel, list[HeldOut], list[HeldOut]]:
        """Fit on finished, normalised curves, and on examples of the prior.

        Returns the model, and what models without them predict for random folds of the curves, and for whole clusters.
        """
        finished = len(curves)
        random = np.random.default_rng(seed)
        metadata = MetadataEncoder.fit(metas)
        own = make_examples(curves)
        x, y, owner, in_process = own.followed_by(prior_examples(_PRIOR_CURVES), finished)
        rows = np.minimum(owner, finished)
        masked_rows = rows.copy()
        masked_rows[np.flatnonzero(random.random(len(own.owner)) < _MASKED_SHARE)] = finished
        in_process &= np.isin(owner, random.permutation(finished)[:_MOST_PROCESS_CURVES]) | (owner >= finished)
        encoded = metadata.encode([*metas, None])
        known, masked = encoded[rows], encoded[masked_rows]
        rate = np.clip(y / remaining_share(x), -_MAX_RATE, _MAX_RATE)
        process, held_out_rate = CurveGaussianProcess.fit(
            x[in_process], known[in_process], rate[in_process], owner[in_process], (x, masked, owner)
        )
        inputs = _forest_inputs(x, masked, held_out_rate)
        forest = _grow(inputs, y, owner, finished, trees=120, seed=seed)
        folds = np.random.default_rng(seed).permutation(finished) % _FOLDS
        of_folds = list(_predict_held_out(inputs, y, owner, folds, trees=40, seed=seed))
        inputs[:, -1] = 0.0  # the process was fitted on all clusters
        clusters = cluster_curves(process.scaled_inputs(x, known), owner, finished)
        of_clusters = list(_predict_held_out(inputs, y, owner, clusters, trees=20, seed=seed))
        return cls(metadata, process, forest), of_folds, of_clusters

    def predict(self, x: Floats, metas: Sequence[Meta]) -> SourceQuantiles:
        """Quantiles of the gain for features x (m, features) of curves, and what is known of their runs."""
        known = self.metadata.encode(metas)
        return _predict(self.forest, _forest_inputs(x, known, self.process.predict(x, known)))

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same model."""
        return {
            **prefixed("forest/", self.forest.state()),
            **prefixed("process/", self.process.state()),
            **prefixed("meta/", self.metadata.state()),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> HistoryModel:
        """The model whose `state` this is."""
        return cls(
            MetadataEncoder.from_state(unprefixed("meta/", state)),
            CurveGaussianProcess.from_state(unprefixed("process/", state)),
            QuantileForest.from_state(unprefixed("forest/", state)),
        )


def _forest_inputs(x: Floats, known: Floats, rate: Floats) -> Floats:
    """(n, columns) features x, encoded metadata, and the gain by the process, which predicts a `rate` (n,)."""
    return np.concatenate([x, known, (rate * remaining_share(x))[:, None]], axis=1)


def _grow(x: Floats, y: Floats, owner: Ints, finished: int, *, trees: int, seed: int) -> QuantileForest:
    """A forest on inputs x (n, columns), the last being the gain by the process, and targets y (n,).

    The first half of the `trees` predict the target from the other inputs, the second half its distance from the
    process' prediction. `_CLASSIFIER_TREES` more classify examples by their curve, owner (n,): 1 for the first
    `finished`, which are of the history, 0 for those of the prior.
    """

    def forest(x: Floats, target: Floats, trees: int, seed: int) -> QuantileForest:
        return QuantileForest.fit(x, target, owner, trees=trees, smallest_leaf=4, features=0.5, seed=seed)

    plain, residual = forest(x[:, :-1], y, trees // 2, seed), forest(x, y - x[:, -1], trees // 2, seed + 1)
    classifier = forest(x, (owner < finished).astype(np.float64), _CLASSIFIER_TREES, seed)
    return QuantileForest.joined([plain, residual, classifier])


def _predict(forest: QuantileForest, x: Floats) -> SourceQuantiles:
    """Quantiles for inputs x (m, columns) by a forest of `_grow`, and by the prior.

    The less familiar a curve is, the less the trees weigh that correct the process.
    """
    trees = len(forest.roots) - _CLASSIFIER_TREES
    parts = []
    for i in range(0, max(len(x), 1), BATCH):
        rows = x[i : i + BATCH]
        leaves = forest.leaves(rows)
        leaves[:, trees // 2 : trees] += rows[:, -1, None, None]
        familiarity = np.maximum(leaves[:, trees:].mean(axis=(1, 2)), _MIN_FAMILIARITY)
        plain, pooled = (np.sort(leaves[:, :end].reshape(len(rows), -1), axis=1) for end in (trees // 2, trees))
        values = sample_quantiles(plain, 2)
        values += familiarity[:, None] * (sample_quantiles(pooled) - values)
        parts.append((values, shrink_overconfident(prior_quantiles(rows), rows), familiarity))
    return SourceQuantiles(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _predict_held_out(x: Floats, y: Floats, owner: Ints, folds: Ints, *, trees: int, seed: int) -> Iterator[HeldOut]:
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
            forest = _grow(x[rest], y[rest], owner[rest], finished, trees=trees, seed=seed)
            yield HeldOut(_predict(forest, x[rows]), y[rows], TOP - x[rows, 0])


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

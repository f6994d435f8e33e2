"""Quantile regression forest (Meinshausen 2006) of extremely randomised trees (Geurts, Ernst, Wehenkel 2006).

Grown by scikit-learn, stored and evaluated as plain arrays: a model is saved without pickle, and a batch is predicted
without a Python loop over its rows. Each leaf keeps a few evenly spaced order statistics of its training targets; those
of all trees together are a sample of the predictive distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor

from predictors.arrays import Floats, Ints

LEAF_VALUES = 4
"""order statistics kept of each leaf"""
BATCH = 4096
"""rows that are evaluated at once"""
_LEVELS_AT_ONCE = 4
"""steps down the trees between two checks whether every row has reached a leaf"""


@dataclass(frozen=True, eq=False)
class QuantileForest:
    """The nodes of all trees in flat arrays.

    From node i the next one is below[i] where x[feature[i]] <= threshold[i], and below[i] + 1 otherwise. A leaf's next
    node is itself.

    roots: (trees,) root of each tree. feature, threshold, below: (nodes,). leaf: (nodes, LEAF_VALUES) increasing order
    statistics of the targets, for leaves.
    """

    roots: Ints
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    below: NDArray[np.int32]
    leaf: NDArray[np.float32]

    @classmethod
    def fit(
        cls,
        x: Floats,
        y: Floats,
        groups: Ints,
        *,
        trees: int,
        smallest_leaf: int,
        features: float,
        seed: int,
        share: float = 0.7,
    ) -> QuantileForest:
        """Grow `trees` trees on features x (n, features) and targets y (n,).

        groups: (n,) rows of the same group are not independent; each tree is grown on a random `share` of the groups.
        smallest_leaf: least rows of a leaf. features: share of the features that are tried at a split.

        Raises ValueError for values that are not finite; checked once, as checking them for each tree takes longer than
        to grow a small one.
        """
        random = np.random.default_rng(seed)
        x, y = x.astype(np.float32), y.astype(np.float64)
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("a feature or a target is not a finite number")
        names, group = np.unique(groups, return_inverse=True)
        roots: list[int] = []
        parts: list[tuple[NDArray[Any], ...]] = []
        start = 0
        for _ in range(trees):
            seen = random.random(len(names)) < share if len(names) > 1 else np.ones(1, dtype=np.bool_)
            rows = np.flatnonzero(seen[group]) if seen.any() else np.arange(len(y))
            grown = ExtraTreeRegressor(
                min_samples_leaf=smallest_leaf, max_features=features, random_state=int(random.integers(2**31))
            ).fit(x[rows], y[rows], check_input=False)
            roots.append(start)
            parts.append(_flatten(grown, x[rows], y[rows], start))
            start += grown.tree_.node_count
        return cls(np.array(roots), *(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @classmethod
    def joined(cls, forests: Sequence[QuantileForest]) -> QuantileForest:
        """One forest of the trees of all forests, in their order."""
        starts = np.cumsum([0, *(len(forest.feature) for forest in forests)])[:-1]
        pairs = list(zip(forests, starts.tolist(), strict=True))
        return cls(
            np.concatenate([forest.roots + start for forest, start in pairs]),
            np.concatenate([forest.feature for forest in forests]),
            np.concatenate([forest.threshold for forest in forests]),
            np.concatenate([forest.below + np.int32(start) for forest, start in pairs]),
            np.concatenate([forest.leaf for forest in forests]),
        )

    def sample(self, x: Floats) -> Floats:
        """(n, trees * LEAF_VALUES) sorted, equally likely draws of the predictive distribution at x (n, features)."""
        return np.concatenate([self._sample(x[i : i + BATCH]) for i in range(0, max(len(x), 1), BATCH)])

    def _sample(self, x: Floats) -> Floats:
        return np.sort(self.leaves(x).reshape(len(x), -1), axis=1)

    def leaves(self, x: Floats) -> Floats:
        """(n, trees, LEAF_VALUES) values of the leaf that each row of x (n, features) falls into, for each tree."""
        values = x.astype(np.float32).ravel()
        start = np.repeat(np.arange(len(x)) * x.shape[1], len(self.roots))
        node = np.tile(self.roots, len(x))
        feature, threshold, below = self._nodes
        while True:
            before = node
            for _ in range(_LEVELS_AT_ONCE):
                node = below.take(node) + (values.take(feature.take(node) + start) > threshold.take(node))
            if (before == node).all():
                break
        return self.leaf.take(node, axis=0).reshape(len(x), len(self.roots), LEAF_VALUES).astype(np.float64)

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.intp]]:
        """Feature, threshold and below, as NumPy indexes with them fastest."""
        return self.feature.astype(np.intp), self.threshold, self.below.astype(np.intp)

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays, from which `from_state` makes the same forest."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QuantileForest:
        """The forest whose `state` this is."""
        return cls(*(np.asarray(state[name]) for name in cls.__dataclass_fields__))


def _flatten(grown: ExtraTreeRegressor, x: Floats, y: Floats, start: int) -> tuple[NDArray[Any], ...]:
    """Feature, threshold, below and leaf of one tree, whose first node gets the number `start`."""
    tree = grown.tree_
    nodes = np.arange(tree.node_count)
    parents = np.flatnonzero(tree.children_left >= 0)
    # Nodes are renumbered so that the two children of a node follow each other.
    place = np.zeros_like(nodes)
    place[tree.children_left[parents]] = 2 * np.arange(len(parents)) + 1
    place[tree.children_right[parents]] = 2 * np.arange(len(parents)) + 2
    feature, threshold = np.zeros(len(nodes), dtype=np.int16), np.full(len(nodes), np.inf, dtype=np.float32)
    below = nodes.astype(np.int32)
    feature[place[parents]] = tree.feature[parents]
    threshold[place[parents]] = tree.threshold[parents]
    below[place[parents]] = place[tree.children_left[parents]]
    leaf_of_row = place[grown.apply(x, check_input=False)]
    order = np.lexsort((y, leaf_of_row))
    ends = np.searchsorted(leaf_of_row[order], nodes, side="right")
    count = ends - np.searchsorted(leaf_of_row[order], nodes)
    fractions = (np.arange(LEAF_VALUES) + 0.5) / LEAF_VALUES
    chosen = (ends - count)[:, None] + np.floor(fractions * count[:, None]).astype(np.int64)
    leaf = np.where(count[:, None] > 0, y[order][np.minimum(chosen, len(y) - 1)], 0.0)
    return feature, threshold, (start + below).astype(np.int32), leaf.astype(np.float32)

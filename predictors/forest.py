"""Quantile regression forest (Meinshausen 2006) over extremely randomised trees (Geurts, Ernst, Wehenkel 2006).

Grown by scikit-learn, kept and evaluated as plain arrays, so that a model is stored without pickle and a batch is
predicted without a Python loop over its rows. Each leaf keeps a few evenly spaced order statistics of the targets that
fell into it; all of them together, over the trees, are a sample of the predictive distribution.
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

KEPT = 4
"""order statistics kept a leaf"""
BATCH = 4096
"""rows that are looked at together"""
_STRIDE = 4
"""steps down the trees before it is looked whether all are in leaves"""


@dataclass(frozen=True, eq=False)
class QuantileForest:
    """Trees side by side: from node i it goes to below[i] where feature[i] <= threshold[i], to the node after that
    where it is not; from a leaf to itself.

    roots (trees,); feature, threshold, below (nodes,); leaf (nodes, KEPT): increasing targets.
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
        """Grow on x (n, features), y (n,); a tree sees a share of the groups (n,), whose rows are not independent."""
        random = np.random.default_rng(seed)
        names, group = np.unique(groups, return_inverse=True)
        roots: list[int] = []
        parts: list[tuple[NDArray[Any], ...]] = []
        start = 0
        for _ in range(trees):
            seen = random.random(len(names)) < share if len(names) > 1 else np.ones(1, dtype=np.bool_)
            rows = np.flatnonzero(seen[group]) if seen.any() else np.arange(len(y))
            grown = ExtraTreeRegressor(
                min_samples_leaf=smallest_leaf, max_features=features, random_state=int(random.integers(2**31))
            ).fit(x[rows], y[rows])
            roots.append(start)
            parts.append(_flat(grown, x[rows], y[rows], start))
            start += grown.tree_.node_count
        return cls(np.array(roots), *(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @classmethod
    def joined(cls, forests: Sequence[QuantileForest]) -> QuantileForest:
        """The trees of all, in their order, as one forest."""
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
        """(n, trees * KEPT) sorted draws, equally likely, of the predictive distribution at x (n, features)."""
        return np.concatenate([self._sample(x[i : i + BATCH]) for i in range(0, max(len(x), 1), BATCH)])

    def _sample(self, x: Floats) -> Floats:
        return np.sort(self.leaves(x).reshape(len(x), -1), axis=1)

    def leaves(self, x: Floats) -> Floats:
        """(n, trees, KEPT): what each tree says of x (n, features)."""
        values = x.astype(np.float32).ravel()
        start = np.repeat(np.arange(len(x)) * x.shape[1], len(self.roots))
        node = np.tile(self.roots, len(x))
        feature, threshold, below = self._nodes
        while True:
            before = node
            for _ in range(_STRIDE):
                node = below.take(node) + (values.take(feature.take(node) + start) > threshold.take(node))
            if (before == node).all():
                break
        return self.leaf.take(node, axis=0).reshape(len(x), len(self.roots), KEPT).astype(np.float64)

    @cached_property
    def _nodes(self) -> tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.intp]]:
        """Feature, threshold and below, places as wide as NumPy wants them."""
        return self.feature.astype(np.intp), self.threshold, self.below.astype(np.intp)

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QuantileForest:
        return cls(*(np.asarray(state[name]) for name in cls.__dataclass_fields__))


def _flat(grown: ExtraTreeRegressor, x: Floats, y: Floats, start: int) -> tuple[NDArray[Any], ...]:
    tree = grown.tree_
    nodes = np.arange(tree.node_count)
    parents = np.flatnonzero(tree.children_left >= 0)
    # The two nodes below one follow each other.
    place = np.zeros_like(nodes)
    place[tree.children_left[parents]] = 2 * np.arange(len(parents)) + 1
    place[tree.children_right[parents]] = 2 * np.arange(len(parents)) + 2
    feature, threshold = np.zeros(len(nodes), dtype=np.int16), np.full(len(nodes), np.inf, dtype=np.float32)
    below = nodes.astype(np.int32)
    feature[place[parents]] = tree.feature[parents]
    threshold[place[parents]] = tree.threshold[parents]
    below[place[parents]] = place[tree.children_left[parents]]
    fell = place[grown.apply(x)]
    order = np.lexsort((y, fell))
    ends = np.searchsorted(fell[order], nodes, side="right")
    count = ends - np.searchsorted(fell[order], nodes)
    middle = (np.arange(KEPT) + 0.5) / KEPT
    taken = (ends - count)[:, None] + np.floor(middle * count[:, None]).astype(np.int64)
    leaf = np.where(count[:, None] > 0, y[order][np.minimum(taken, len(y) - 1)], 0.0)
    return feature, threshold, (start + below).astype(np.int32), leaf.astype(np.float32)

"""Quantile regression forest (Meinshausen 2006) over extremely randomised trees (Geurts, Ernst, Wehenkel 2006).

Grown by scikit-learn, kept and evaluated as plain arrays, so that a model is stored without pickle and a batch is
predicted without a Python loop over its rows. Each leaf keeps a few evenly spaced order statistics of the targets that
fell into it; all of them together, over the trees, are a sample of the predictive distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """Trees side by side: node i tests feature[i] <= threshold[i] and goes left[i] or right[i]; a leaf goes to itself.

    roots (trees,); feature, threshold, left, right (nodes,); leaf (nodes, KEPT): increasing targets.
    """

    roots: Ints
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    leaf: NDArray[np.float32]

    @classmethod
    def fit(
        cls, x: Floats, y: Floats, groups: Ints, *, trees: int, smallest_leaf: int, features: float, seed: int
    ) -> QuantileForest:
        """Grow on x (n, features), y (n,); each tree sees 70% of the groups (n,), whose rows are not independent."""
        random = np.random.default_rng(seed)
        names, group = np.unique(groups, return_inverse=True)
        roots: list[int] = []
        parts: list[tuple[NDArray[Any], ...]] = []
        start = 0
        for _ in range(trees):
            seen = random.random(len(names)) < 0.7 if len(names) > 1 else np.ones(1, dtype=np.bool_)
            rows = np.flatnonzero(seen[group]) if seen.any() else np.arange(len(y))
            grown = ExtraTreeRegressor(
                min_samples_leaf=smallest_leaf, max_features=features, random_state=int(random.integers(2**31))
            ).fit(x[rows], y[rows])
            roots.append(start)
            parts.append(_flat(grown, x[rows], y[rows], start))
            start += grown.tree_.node_count
        feature, threshold, left, right, leaf = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return cls(np.array(roots), feature, threshold, left, right, leaf)

    @classmethod
    def joined(cls, forests: Sequence[QuantileForest]) -> QuantileForest:
        """The trees of all, in their order, as one forest."""
        starts = np.cumsum([0, *(len(forest.feature) for forest in forests)])[:-1]
        pairs = list(zip(forests, starts.tolist(), strict=True))
        return cls(
            np.concatenate([forest.roots + start for forest, start in pairs]),
            np.concatenate([forest.feature for forest in forests]),
            np.concatenate([forest.threshold for forest in forests]),
            np.concatenate([forest.left + np.int32(start) for forest, start in pairs]),
            np.concatenate([forest.right + np.int32(start) for forest, start in pairs]),
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
        start = np.arange(len(x))[:, None] * x.shape[1]
        node = np.broadcast_to(self.roots, (len(x), len(self.roots))).astype(np.int32)
        while True:
            before = node
            for _ in range(_STRIDE):
                low = values.take(start + self.feature.take(node)) <= self.threshold.take(node)
                node = np.where(low, self.left.take(node), self.right.take(node))
            if (before == node).all():
                break
        return self.leaf[node].astype(np.float64)

    def state(self) -> dict[str, NDArray[Any]]:
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> QuantileForest:
        return cls(*(np.asarray(state[name]) for name in cls.__dataclass_fields__))


def _flat(grown: ExtraTreeRegressor, x: Floats, y: Floats, start: int) -> tuple[NDArray[Any], ...]:
    tree = grown.tree_
    nodes = np.arange(tree.node_count)
    inner = tree.children_left >= 0
    fell = grown.apply(x)
    order = np.lexsort((y, fell))
    ends = np.searchsorted(fell[order], nodes, side="right")
    count = ends - np.searchsorted(fell[order], nodes)
    middle = (np.arange(KEPT) + 0.5) / KEPT
    place = (ends - count)[:, None] + np.floor(middle * count[:, None]).astype(np.int64)
    leaf = np.where(count[:, None] > 0, y[order][np.minimum(place, len(y) - 1)], 0.0)
    return (
        np.where(inner, tree.feature, 0).astype(np.int16),
        tree.threshold.astype(np.float32),
        (start + np.where(inner, tree.children_left, nodes)).astype(np.int32),
        (start + np.where(inner, tree.children_right, nodes)).astype(np.int32),
        leaf.astype(np.float32),
    )

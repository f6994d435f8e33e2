"""Forests of how far a target is from several anchors, pooled.

A tree predicts constants: that a job takes as long as the one before it takes many splits to say, and one leaf to say
of the difference. Which anchor is the right one differs by job, so each gets forests of its own, and the draws of all
are one distribution. Half of the forests learn from the later half of the rows alone, as what is learnt drifts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from predictors.forest import BATCH, QuantileForest

_TREES = 10
"""an anchor and half"""
_SMALLEST_LEAF = 4
_FEATURES = 0.5


@dataclass(frozen=True, eq=False)
class AnchoredForest:
    """One forest, of which every `2 * _TREES` trees after each other say how far the target is from one anchor."""

    forest: QuantileForest

    @classmethod
    def fit(cls, x: Floats, anchors: Floats, y: Floats, seed: int) -> AnchoredForest:
        """Grow on x (n, features), anchors (n, k) and y (n,), the oldest row first."""
        random = np.random.default_rng(seed)
        rows = np.arange(len(y))
        grown = [
            QuantileForest.fit(
                x[part],
                (y - anchor)[part],
                part,
                trees=_TREES,
                smallest_leaf=_SMALLEST_LEAF,
                features=_FEATURES,
                seed=int(random.integers(2**31)),
            )
            for anchor in anchors.T
            for part in (rows, rows[len(rows) // 2 :])
        ]
        return cls(QuantileForest.joined(grown))

    def sample(self, x: Floats, anchors: Floats) -> Floats:
        """(n, draws) sorted and equally likely, for x (n, features) and anchors (n, k)."""
        parts = [
            self.forest.leaves(x[i : i + BATCH]) + np.repeat(anchors[i : i + BATCH], 2 * _TREES, axis=1)[:, :, None]
            for i in range(0, max(len(x), 1), BATCH)
        ]
        return np.concatenate([np.sort(part.reshape(len(part), -1), axis=1) for part in parts])


def likeliest(draws: Floats) -> Floats:
    """(n,) of logarithms drawn, sorted (n, s): the draw whose min(p, t) / max(p, t) with all of them is the largest.

    exp(-|c - y|) summed over the draws y on either side of c, by cumulative sums.
    """
    moved = draws - np.median(draws, axis=1, keepdims=True)
    below = np.exp(-moved) * np.cumsum(np.exp(moved), axis=1)
    above = np.exp(moved) * (np.cumsum(np.exp(-moved)[:, ::-1], axis=1)[:, ::-1] - np.exp(-moved))
    return np.asarray(np.take_along_axis(draws, (below + above).argmax(axis=1)[:, None], axis=1)[:, 0])

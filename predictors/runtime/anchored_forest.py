"""Quantile forests of the distance of a target from several anchors, pooled into one distribution.

Trees predict constants: for a run time to equal the previous one they need many splits, for the difference to be zero a
single leaf. Which anchor fits best differs between jobs, so each anchor has forests of its own, whose draws are pooled.
Half of the forests are fitted on the later half of the rows only, because the relation drifts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from predictors.forest import BATCH, QuantileForest

_TREES = 10
"""of each forest; an anchor has two forests"""
_MIN_LEAF = 4
_FEATURE_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class AnchoredForest:
    """The forests of all anchors joined: each `2 * _TREES` successive trees predict the distance from one anchor."""

    forest: QuantileForest

    @classmethod
    def fit(cls, x: Floats, anchors: Floats, y: Floats, seed: int) -> AnchoredForest:
        """Fit on features x (n, features), anchors (n, k) and targets y (n,), the oldest row first."""
        random = np.random.default_rng(seed)
        rows = np.arange(len(y))
        grown = [
            QuantileForest.fit(
                x[part],
                (y - anchor)[part],
                part,
                trees=_TREES,
                smallest_leaf=_MIN_LEAF,
                features=_FEATURE_SHARE,
                seed=int(random.integers(2**31)),
            )
            for anchor in anchors.T
            for part in (rows, rows[len(rows) // 2 :])
        ]
        return cls(QuantileForest.joined(grown))

    def sample(self, x: Floats, anchors: Floats) -> Floats:
        """(n, draws) sorted, equally likely draws of the target for features x (n, features) and anchors (n, k)."""
        parts = [
            self.forest.leaves(x[i : i + BATCH]) + np.repeat(anchors[i : i + BATCH], 2 * _TREES, axis=1)[:, :, None]
            for i in range(0, max(len(x), 1), BATCH)
        ]
        return np.concatenate([np.sort(part.reshape(len(part), -1), axis=1) for part in parts])


def max_agreement_draw(draws: Floats) -> Floats:
    """(n,) of sorted draws (n, s) of logarithms, the one with the largest mean of min(p, t) / max(p, t) over all draws.

    That is the mean of exp(-|c - y|) over the draws y, computed by cumulative sums on either side of c.
    """
    centred = draws - np.median(draws, axis=1, keepdims=True)
    below = np.exp(-centred) * np.cumsum(np.exp(centred), axis=1)
    above = np.exp(centred) * (np.cumsum(np.exp(-centred)[:, ::-1], axis=1)[:, ::-1] - np.exp(-centred))
    return np.asarray(np.take_along_axis(draws, (below + above).argmax(axis=1)[:, None], axis=1)[:, 0])

"""Training examples: finished curves cut at several lengths, each to be continued to a later iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from predictors.learning_curve.features import SEEN_SHARE, curve_features
from predictors.learning_curve.prior import LENGTHS, sample_prior_curves

CUTS = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8)
"""shares of its length at which a curve of the history is cut"""
TOP = 1.05
"""the top, to which targets are relative, in normalised units: a little above 1, so that a perfect curve can move"""
_PROCESS_CUTS = frozenset({0.16, 0.25, 0.4, 0.5})
"""the cuts that, continued to the end, are training points of the Gaussian process"""


class Examples(NamedTuple):
    """n examples.

    x: (n, features). target: (n,) gain from the last value seen to the horizon, as a share of the distance to `TOP`.
    owner: (n,) number of the curve. process_point: (n,) whether the Gaussian process is fitted on the example.
    """

    x: Floats
    target: Floats
    owner: Ints
    process_point: Bools


def make_examples(curves: Sequence[Floats], cuts: Sequence[float] = CUTS) -> Examples:
    """Examples of normalised curves: each cut is continued to the end, every other one also to three fifths of it."""
    lengths = np.array([len(curve) for curve in curves])
    x, target, owner, points = [], [], [], []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        stack = np.stack([curves[i] for i in rows.tolist()])
        process_cuts = {max(1, round(cut * length)) for cut in _PROCESS_CUTS}
        for end, shares in ((length, cuts), (round(0.6 * length), cuts[::2])):
            for n in sorted({max(1, round(share * length)) for share in shares}):
                if n < end:
                    last = stack[:, n - 1]
                    x.append(curve_features(stack[:, :n], np.full(len(rows), float(end))))
                    target.append((stack[:, end - 1] - last) / (TOP - last))
                    owner.append(rows)
                    points.append(np.full(len(rows), end == length and n in process_cuts))
    return Examples(np.concatenate(x), np.concatenate(target), np.concatenate(owner), np.concatenate(points))


def prior_examples(count: int) -> Examples:
    """Examples of `count` curves of each of the prior's lengths, always the same ones; every other cut is used."""
    random = np.random.default_rng(20)
    return make_examples(
        [curve for length in LENGTHS for curve in sample_prior_curves(length, count, random)], CUTS[::2]
    )


def remaining_share(x: Floats) -> Floats:
    """(m,) share of the iterations up to the horizon that is still to come, for features x (m, features)."""
    return np.asarray(1.0 - x[:, SEEN_SHARE])

"""What a model sees of the beginning of a learning curve: where it stands, how it moves, what the bank expects."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats
from predictors.curve_bank import posterior, weights
from predictors.curve_shapes import design

HISTORY_LENGTH, HORIZON, SEEN = 12, 13, 14
"""columns: logarithms of the iterations seen and of the iteration asked for, and the share of the second"""
_SEGMENTS = 10
_TINY = 1e-3


def curve_features(curves: Floats, horizon: float) -> Floats:
    """(m, features) of curves (m, n) in units of their scale, to be continued to iteration `horizon`.

    Levels are relative to the last value: what is learnt at one height then helps at another.
    """
    m, n = curves.shape
    last, first = curves[:, -1], curves[:, 0]
    tail = max(2, n // 5)
    recent, before = curves[:, -tail:], curves[:, -2 * tail : -tail]
    earlier = before.mean(axis=1) if before.shape[1] else first
    level = curves[:, -max(1, n // 10) :].mean(axis=1)
    steps = np.diff(curves[:, -max(4, n // 3) :], axis=1)
    noise = steps.std(axis=1) / np.sqrt(2.0) if steps.shape[1] else np.zeros(m)
    half = max(3, n // 2)
    x = np.arange(1.0, n + 1.0)
    growth = _slope(np.log(x[-half:]), curves[:, -half:]) * np.log(horizon / n)
    expected, spread, likeliest = _bank(curves, horizon)
    edges = np.floor(np.linspace(0, n, _SEGMENTS + 1)).astype(np.int64)
    segments = [curves[:, a : max(b, a + 1)].mean(axis=1) - last for a, b in pairwise(edges)]
    return np.stack(
        [
            last, curves.max(axis=1) - last, level - last, first, curves[:, min(1, n - 1)] - first,
            expected - last, np.log(spread + _TINY), likeliest - last, earlier - level,
            _slope(np.arange(len(recent[0])) / n, recent), np.log(noise + _TINY), growth,
            np.full(m, np.log(n)), np.full(m, np.log(horizon)), np.full(m, n / horizon),
            curves.argmax(axis=1) / n, np.log(recent.std(axis=1) + _TINY), *segments,
            curves[:, min(4, n - 1)] - last, curves[:, :5].mean(axis=1), np.median(curves, axis=1) - last,
        ],
        axis=1,
    )  # fmt: skip


def _slope(x: Floats, y: NDArray[np.float64]) -> Floats:
    """(m,) of the least squares line through y (m, p) at x (p,)."""
    centred = x - x.mean()
    square = float(centred @ centred)
    return y @ centred / square if square > 0 else np.zeros(len(y))


def _bank(curves: Floats, horizon: float) -> tuple[Floats, Floats, Floats]:
    """(m,) mean and standard deviation of the bank's mixture, and the location of its likeliest shape."""
    bank = design(curves.shape[1], horizon)
    evidence, mean, scale, _ = posterior(bank.points(curves), bank)
    weight = weights(evidence)
    mean = np.clip(mean, 0.0, 1.0)
    expected = (weight * mean).sum(axis=1)
    spread = np.sqrt((weight * ((mean - expected[:, None]) ** 2 + scale**2)).sum(axis=1))
    return expected, spread, np.take_along_axis(mean, weight.argmax(axis=1)[:, None], axis=1)[:, 0]

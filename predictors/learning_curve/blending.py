"""What the history and what a prior say of curves becomes one distribution, and how far each is to be believed. Pure.

Quantiles stand at the levels of `GRID`, of the share of the distance to the top that is still gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from predictors.arrays import Floats, clipped
from predictors.learning_curve.features import HISTORY_LENGTH, HORIZON

GRID = np.array([0.005, 0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.45, 0.5, 0.55, 0.65, 0.75, 0.85, 0.9, 0.95, 0.98, 0.995])
_LOW, _QUARTER, _MIDDLE, _THREE_QUARTERS, _HIGH = np.searchsorted(GRID, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
_NORMAL = ndtri(GRID)
_T_QUANTILES = stdtrit(3.0, GRID) / stdtrit(3.0, 0.75)
_COVERED = 0.9
_DOUBTS = (0.0, *np.geomspace(0.1, 1000.0, 17).tolist())
_UNKEPT, _PROMISING = 0.2, (70.0, 200.0)
"""how much less than the prior expects runs of the first horizon gain; those of the second gain as much"""
_UPSIDE, _DOWNSIDE = 0.7, 0.9
"""and how wide the prior's intervals are above and below the median, of what they would be"""
_SEEN = 5
_LEAST_BLUR, _STRANGE_BLUR = 0.003, 0.04
"""standard deviations, as shares of the distance to the top, of a curve of the history, and how much more of another"""
_NARROWEST = 2e-4


class Said(NamedTuple):
    """warm, cold: (m, levels of the grid) quantiles of the target, by the history and by the prior. familiarity: (m,)
    how likely a lesson is one of the history and not of the prior."""

    warm: Floats
    cold: Floats
    familiarity: Floats


class LeftOut(NamedTuple):
    """What a model that did not learn from some curves said of their lessons; y: (m,) the targets. room: (m,) how far
    it is from where they stand to the top."""

    said: Said
    y: Floats
    room: Floats


def mixed(said: Said, spread: float, doubt: float) -> Floats:
    """Quantiles (m, levels of the grid): at each level the mean of what the history and what the prior says.

    The history's weight is the probability that a curve is one of its kind and not the prior's: by Bayes' rule, the
    odds that familiarity tells, as if all curves to come were of kinds that were learnt from, divided by `doubt`.
    """
    alike = said.familiarity
    warm = _smoothed(spread_out(said.warm, _widened(spread, alike))) + _blurred(alike)
    cold = spread_out(said.cold, max(spread, 1.0))
    weight = alike / (alike + doubt * (1.0 - alike))
    return np.asarray(cold + weight[:, None] * (warm - cold))


def _smoothed(gains: Floats) -> Floats:
    """Quantiles (m, levels of the grid) halfway to those of Student's t with three degrees of freedom, scaled on each
    side of the median to the same quartile: few draws say little of the tails, and nothing of fine structure."""
    low, middle, high = (gains[:, level : level + 1] for level in (_QUARTER, _MIDDLE, _THREE_QUARTERS))
    return np.asarray((gains + middle + np.where(GRID > 0.5, high - middle, middle - low) * _T_QUANTILES) / 2.0)


def _widened(spread: float, familiarity: Floats) -> Floats:
    """(m, 1) what the history allows to be narrower is so only as far as a curve is like it."""
    return np.asarray(1.0 + (spread - 1.0) * np.where(spread < 1.0, familiarity, 1.0))[:, None]


def sobered(gains: Floats, x: Floats) -> Floats:
    """Quantiles (m, levels of the grid) of the share still gained, by draws of the prior, as real curves have it.

    The prior promises more than short runs keep, and they surprise less often than it says. That was seen of curves of
    `_SEEN` iterations or more; of fewer, the prior's word stands. x: (m, features).
    """
    short, long = np.log(_PROMISING)
    middle = gains[:, _MIDDLE : _MIDDLE + 1]
    off = gains - middle
    kept = 1.0 - _UNKEPT * clipped((long - x[:, HORIZON : HORIZON + 1]) / (long - short), 0.0, 1.0)
    sober = middle * kept + np.where(off > 0, _UPSIDE, _DOWNSIDE) * off
    return np.asarray(np.where(x[:, HISTORY_LENGTH : HISTORY_LENGTH + 1] >= np.log(_SEEN), sober, gains))


def _blurred(familiarity: Floats) -> Floats:
    """(m, levels of the grid) a normal error added to draws, which are of few curves: small where they are alike."""
    return (_LEAST_BLUR + _STRANGE_BLUR * (1.0 - familiarity))[:, None] * _NORMAL


def calibrated(left_out: Sequence[LeftOut], finished: int) -> float:
    """By how much intervals about the median must be spread so that 90% of them cover, on curves left out in turn.

    Split conformal prediction (Vovk; Romano, Patterson, Candès 2019) with the interval's own width as the scale and
    the correction for few curves.
    """
    needed = []
    for said, y, _ in left_out:
        low, middle, high = _smoothed(spread_out(said.warm, 1.0))[:, [_LOW, _MIDDLE, _HIGH]].T
        off = y - middle
        ratio = np.where(off > 0, off / np.maximum(high - middle, 1e-9), off / np.minimum(low - middle, -1e-9))
        needed.append(np.where(ratio < 1.0, 1.0 + (ratio - 1.0) / said.familiarity, ratio))
    covered = min(1.0, _COVERED * (1.0 + 1.0 / finished))
    return float(np.clip(np.quantile(np.concatenate(needed), covered), 0.5, 4.0)) if needed else 1.0


def doubted(left_out: Sequence[LeftOut], spread: float) -> float:
    """The doubt with which the mixtures of what history and prior say have the least pinball loss, in curves' units."""

    def loss(doubt: float) -> float:
        total = 0.0
        for said, y, room in left_out:
            off = y[:, None] - mixed(said, spread, doubt)
            total += float((np.maximum(GRID * off, (GRID - 1.0) * off) * room[:, None]).sum())
        return total

    return float(min(_DOUBTS, key=loss))


def quantiles(draws: Floats, times: int = 1) -> Floats:
    """(m, levels of the grid) of sorted draws (m, s), each taken so many times."""
    count = draws.shape[1] * times
    position = np.minimum(np.maximum(GRID * count - 0.5, 0.0), count - 1.0)
    below = position.astype(np.int64)
    above = np.minimum(below + 1, count - 1)
    values = draws.take(below // times, axis=1)
    return np.asarray(values + (position - below) * (draws.take(above // times, axis=1) - values))


def spread_out(values: Floats, spread: float | Floats) -> Floats:
    """Quantiles (m, levels of the grid) spread about the median, and a little apart."""
    middle = values[:, _MIDDLE : _MIDDLE + 1]
    return np.asarray(middle + spread * (values - middle) + _NARROWEST * (GRID - 0.5))

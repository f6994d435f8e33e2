"""Averages the quantiles by the history and those by the prior, and finds how wide and how trusting to be.

A curve that is unlike those of the history goes by the prior, with wide intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from predictors.arrays import Floats
from predictors.learning_curve.quantiles import MEDIAN, QUANTILE_LEVELS, scale_about_median

_LOW, _QUARTER, _THREE_QUARTERS, _HIGH = np.searchsorted(QUANTILE_LEVELS, [0.05, 0.25, 0.75, 0.95]).tolist()
_NORMAL = ndtri(QUANTILE_LEVELS)
_STUDENT_T = stdtrit(3.0, QUANTILE_LEVELS) / stdtrit(3.0, 0.75)
_COVERAGE = 0.9
_PENALTIES = (0.0, *np.geomspace(0.1, 1000.0, 17).tolist())
_FAMILIAR_NOISE, _UNFAMILIAR_NOISE = 0.003, 0.04
"""standard deviations of the normal error of familiar curves, and what unfamiliar ones add to it"""


class SourceQuantiles(NamedTuple):
    """What the model of the history and that of the prior predict for m curves.

    history, prior: (m, levels) quantiles. familiarity: (m,) by a classifier, the probability that such an example
    comes from the history and not from the prior.
    """

    history: Floats
    prior: Floats
    familiarity: Floats


class HeldOut(NamedTuple):
    """Predictions for m examples of curves that the model was not fitted on.

    quantiles: what was predicted. target: (m,) the gains that came. headroom: (m,) distance from the last value to the
    top, in normalised units.
    """

    quantiles: SourceQuantiles
    target: Floats
    headroom: Floats


def blend(quantiles: SourceQuantiles, spread: float, shift_penalty: float) -> Floats:
    """(m, levels) quantiles averaged over history and prior level by level.

    The weight of the history is the probability that the curve is of a kind in it: the odds of the familiarity divided
    by `shift_penalty`, which corrects for curves to come being of other kinds than those in the history.
    """
    familiarity = quantiles.familiarity
    history = _smooth_tails(scale_about_median(quantiles.history, _spread_by_familiarity(spread, familiarity)))
    history = history + _normal_error(familiarity)
    prior = scale_about_median(quantiles.prior, max(spread, 1.0))
    weight = familiarity / (familiarity + shift_penalty * (1.0 - familiarity))
    return np.asarray(prior + weight[:, None] * (history - prior))


def _smooth_tails(gains: Floats) -> Floats:
    """Quantiles (m, levels) averaged with those of Student's t of three degrees of freedom that has the same quartiles
    on each side of the median: the forest's few draws determine neither the tails nor fine structure."""
    low, median, high = (gains[:, level : level + 1] for level in (_QUARTER, MEDIAN, _THREE_QUARTERS))
    return np.asarray(
        (gains + median + np.where(QUANTILE_LEVELS > 0.5, high - median, median - low) * _STUDENT_T) / 2.0
    )


def _spread_by_familiarity(spread: float, familiarity: Floats) -> Floats:
    """(m, 1) the spread of each curve: a factor below 1 applies only as far as the curve is familiar."""
    return np.asarray(1.0 + (spread - 1.0) * np.where(spread < 1.0, familiarity, 1.0))[:, None]


def _normal_error(familiarity: Floats) -> Floats:
    """(m, levels) quantiles of the normal error added to the forest's draws, which come from few curves."""
    return (_FAMILIAR_NOISE + _UNFAMILIAR_NOISE * (1.0 - familiarity))[:, None] * _NORMAL


def fit_spread(held_out: Sequence[HeldOut], finished: int) -> float:
    """The factor, in [0.5, 4], by which intervals must be scaled to cover 90% of held-out targets; 1 without any.

    Split conformal prediction (Vovk; Romano, Patterson, Candès 2019), the error measured in units of the interval's own
    width, with the correction for `finished` curves.
    """
    factors = []
    for quantiles, target, _ in held_out:
        low, median, high = _smooth_tails(scale_about_median(quantiles.history, 1.0))[:, [_LOW, MEDIAN, _HIGH]].T
        error = target - median
        ratio = np.where(error > 0, error / np.maximum(high - median, 1e-9), error / np.minimum(low - median, -1e-9))
        factors.append(np.where(ratio < 1.0, 1.0 + (ratio - 1.0) / quantiles.familiarity, ratio))
    level = min(1.0, _COVERAGE * (1.0 + 1.0 / finished))
    return float(np.clip(np.quantile(np.concatenate(factors), level), 0.5, 4.0)) if factors else 1.0


def fit_shift_penalty(held_out: Sequence[HeldOut], spread: float) -> float:
    """The shift penalty of `blend` with the least pinball loss on the held-out examples, in the units of the curves."""

    def loss(penalty: float) -> float:
        total = 0.0
        for quantiles, target, headroom in held_out:
            error = target[:, None] - blend(quantiles, spread, penalty)
            total += float(
                (np.maximum(QUANTILE_LEVELS * error, (QUANTILE_LEVELS - 1.0) * error) * headroom[:, None]).sum()
            )
        return total

    return float(min(_PENALTIES, key=loss))

"""What a model sees of a loss curve: its latest changes in units of their size, and where simple laws take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, clipped
from predictors.loss.extrapolation import declines, linear_prediction
from predictors.loss.least_squares import LOGS, WINDOW, fits

_RECENT = 10
_EDGES = np.array([0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60])
_BINS = np.diff(np.eye(WINDOW + 1)[:, _EDGES], axis=1) / np.diff(_EDGES)
"""mean changes between the edges, from changes over 0, 1, .. iterations"""
_SMOOTHED = np.array([[(age < span) / span for span in (3, 5, 10, 20)] for age in range(WINDOW)][::-1])
_BOUND = 8.0
LAWS = 31
_CONTINUING = 25
"""laws that continue the losses: the first; the others stay at their level"""
_KINDS = (
    *(31 * ["sine"]), *(11 * ["plain"]), *(17 * ["log"]), *(6 * ["plain"]), *(23 * ["sine"]),
    *(4 * ["log"]), "plain", *(2 * ["log"]), *(2 * ["sine"]), *(2 * ["log"]),
)  # fmt: skip
"""which features are looked at as they are, by the inverse hyperbolic sine, or by the logarithm"""
_BY_SINE, _BY_LOG = (np.flatnonzero(np.array(_KINDS) == kind) for kind in ("sine", "log"))
_AT_LEAST = np.array([*(17 * [1e-6]), 0.0, 0.0, 0.0, 1e-12, 0.0, 0.0, 1e-3, 1e-3])


@dataclass(frozen=True)
class Losses:
    """n curves as they are looked at.

    latest (n, 61): their last losses, before those the first; length, first, low, mean (n,): of all their losses.
    """

    latest: Floats
    length: Floats
    first: Floats
    low: Floats
    mean: Floats

    @classmethod
    def of(cls, curves: Sequence[Floats]) -> Losses:
        latest = np.empty((len(curves), WINDOW + 1))
        for row, curve in zip(latest, curves, strict=True):
            row[: max(0, len(row) - len(curve))] = curve[0]
            row[max(0, len(row) - len(curve)) :] = curve[-len(row) :]
        told = np.array([(len(curve), curve[0], curve.min(), curve.sum() / len(curve)) for curve in curves])
        return cls(latest, *told.T)


@dataclass(frozen=True)
class Look:
    """n curves, to be continued, in units of a reach: the size of a change, times the iterations ahead.

    features (n, f); laws (n, LAWS): the change that each law expects; apart (n,): how far the laws are from each other;
    reach (n,).
    """

    features: Floats
    laws: Floats
    apart: Floats
    reach: Floats


def looked_at(losses: Losses, ahead: Floats) -> Look:
    """Of n curves, to be continued by `ahead` (n,) iterations.

    The size of a change is the mean of the last ten; of a curve with few points, or with equal ones, a part of its
    value that falls with their number.
    """
    k, last = losses.length, losses.latest[:, -1]
    steps = (losses.latest[:, 1:] - losses.latest[:, :-1])[:, ::-1]
    mean_step = np.abs(steps[:, :_RECENT]).sum(axis=1) / clipped(k - 1.0, 1.0, _RECENT)
    unit = np.maximum(mean_step, np.abs(last) * np.maximum(0.5 / k**4, 1e-6) + 1e-300)
    size = np.abs(last) + 1e-8 * unit
    reach = unit * ahead
    steps = steps / unit[:, None]
    y = losses.latest[:, 1:]
    z = (y - last[:, None]) / reach[:, None]
    positive = (losses.low > 0)[:, None]
    relative = (reach / size)[:, None]
    logs = np.log(np.where(positive, y / size[:, None], 1.0)) / relative

    def grown(of_logs: Floats) -> Floats:
        return np.where(positive, np.expm1(clipped(of_logs * relative, -5.0, 1.0)) / relative, 0.0)

    fit = fits(np.concatenate([z[:, None], logs[:, None]], axis=1), k, ahead)
    changes = (last[:, None] - losses.latest[:, ::-1]) / unit[:, None]
    to_come, ratio = declines(changes, k, ahead)
    predicted, missed = linear_prediction(steps, k, ahead)
    laws = np.concatenate(
        [
            fit.mixed[:, 0], grown(fit.mixed[:, 1]), grown(fit.ends[:, :LOGS]), fit.ends[:, LOGS:], to_come, predicted,
            z @ _SMOOTHED, np.zeros((len(z), 1)),
        ],
        axis=1,
    )  # fmt: skip
    laws = _bounded(laws, _BOUND)
    middle = np.sort(laws[:, :_CONTINUING], axis=1)[:, _CONTINUING // 2]
    apart = np.sqrt(((laws[:, : _CONTINUING - 1] - middle[:, None]) ** 2).sum(axis=1) / (_CONTINUING - 1)) + 0.02

    features = np.concatenate(
        [
            3.0 * laws, fit.levels,
            fit.disagreement, fit.distance, fit.off, missed / ahead[:, None],
            fit.exponential, ratio, changes @ _BINS, steps[:, :12],
            np.array(
                [
                    k, ahead, ahead / k, unit / size, middle, apart, unit / (np.abs(losses.first - last) + unit),
                    clipped((losses.low - last) / unit, -50.0, 0.0),
                    clipped((losses.mean - last) / unit, -100.0, 100.0),
                    _deviation(steps[:, 1:12] - steps[:, :11]), _deviation(steps[:, :8]),
                ]
            ).T,
        ],
        axis=1,
    )  # fmt: skip
    features[:, _BY_SINE] = np.arcsinh(features[:, _BY_SINE])
    features[:, _BY_LOG] = np.log(features[:, _BY_LOG] + _AT_LEAST)
    return Look(_bounded(features, 20.0), laws, apart, reach)


def _bounded(values: Floats, bound: float) -> Floats:
    return np.asarray(np.where(np.isnan(values), 0.0, np.minimum(np.maximum(values, -bound), bound)))


def _deviation(values: Floats) -> Floats:
    off = values - values.sum(axis=1, keepdims=True) / values.shape[1]
    return np.asarray(np.sqrt((off**2).sum(axis=1) / values.shape[1]))

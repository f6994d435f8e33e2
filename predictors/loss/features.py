"""Features of a loss curve: its latest changes in units of their size, and predictions of the extrapolation rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats, clip
from predictors.loss.extrapolation import linear_prediction, shrinking_changes
from predictors.loss.least_squares import LOG_LINES, WINDOW, fit_least_squares

_RECENT_STEPS = 10
_EDGES = np.array([0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60])
_BIN_AVERAGES = np.diff(np.eye(WINDOW + 1)[:, _EDGES], axis=1) / np.diff(_EDGES)
"""maps changes over the last 0, 1, .. iterations to mean steps between the edges"""
_MOVING_AVERAGES = np.array([[(age < span) / span for span in (3, 5, 10, 20)] for age in range(WINDOW)][::-1])
_EXPERT_BOUND, _FEATURE_BOUND = 8.0, 20.0
EXPERTS = 31
"""extrapolation rules that the network weighs"""
_CONTINUING_EXPERTS = 25
"""the first experts extrapolate the curve; the others average its latest values, or repeat the last one"""
_TRANSFORMS = (
    *(31 * ["asinh"]), *(11 * ["none"]), *(17 * ["log"]), *(6 * ["none"]), *(23 * ["asinh"]),
    *(4 * ["log"]), "none", *(2 * ["log"]), *(2 * ["asinh"]), *(2 * ["log"]),
)  # fmt: skip
"""how each feature is transformed"""
_ASINH_COLUMNS, _LOG_COLUMNS = (np.flatnonzero(np.array(_TRANSFORMS) == kind) for kind in ("asinh", "log"))
_LOG_OFFSETS = np.array([*(17 * [1e-6]), 0.0, 0.0, 0.0, 1e-12, 0.0, 0.0, 1e-3, 1e-3])


@dataclass(frozen=True)
class LossWindows:
    """The latest losses of n curves, and statistics of all their losses.

    latest: (n, 61) the last losses, padded on the left with the first one. length, first, low, mean: (n,) number of
    losses, the first, the lowest and the mean.
    """

    latest: Floats
    length: Floats
    first: Floats
    low: Floats
    mean: Floats

    @classmethod
    def of(cls, curves: Sequence[Floats]) -> LossWindows:
        """The windows of n curves, each (k,)."""
        latest = np.empty((len(curves), WINDOW + 1))
        for row, curve in zip(latest, curves, strict=True):
            row[: max(0, len(row) - len(curve))] = curve[0]
            row[max(0, len(row) - len(curve)) :] = curve[-len(row) :]
        statistics = np.array([(len(curve), curve[0], curve.min(), curve.sum() / len(curve)) for curve in curves])
        return cls(latest, *statistics.T)


@dataclass(frozen=True)
class LossFeatures:
    """What the network sees of n curves.

    values: (n, f) transformed features. experts: (n, EXPERTS) change that each expert predicts, in units of `unit`.
    dispersion: (n,) standard deviation of the continuing experts about their median. unit: (n,) size of a step times
    the iterations ahead, in the unit of the losses.
    """

    values: Floats
    experts: Floats
    dispersion: Floats
    unit: Floats


def extract_features(windows: LossWindows, ahead: Floats) -> LossFeatures:
    """Features of n curves whose losses `ahead` (n,) iterations later are predicted.

    The size of a step is the mean of the last ten. Of curves with few points, or of equal ones, it is a share of the
    last loss that falls with the number of points.
    """
    k, last = windows.length, windows.latest[:, -1]
    steps = (windows.latest[:, 1:] - windows.latest[:, :-1])[:, ::-1]
    mean_step = np.abs(steps[:, :_RECENT_STEPS]).sum(axis=1) / clip(k - 1.0, 1.0, _RECENT_STEPS)
    step_size = np.maximum(mean_step, np.abs(last) * np.maximum(0.5 / k**4, 1e-6) + 1e-300)
    level = np.abs(last) + 1e-8 * step_size
    unit = step_size * ahead
    steps = steps / step_size[:, None]
    y = windows.latest[:, 1:]
    z = (y - last[:, None]) / unit[:, None]
    positive = (windows.low > 0)[:, None]
    relative = (unit / level)[:, None]
    logs = np.log(np.where(positive, y / level[:, None], 1.0)) / relative

    def from_logs(predicted: Floats) -> Floats:
        return np.where(positive, np.expm1(clip(predicted * relative, -5.0, 1.0)) / relative, 0.0)

    fit = fit_least_squares(np.concatenate([z[:, None], logs[:, None]], axis=1), k, ahead)
    changes = (last[:, None] - windows.latest[:, ::-1]) / step_size[:, None]
    shrinking, ratios = shrinking_changes(changes, k, ahead)
    predicted, prediction_error = linear_prediction(steps, k, ahead)
    experts = np.concatenate(
        [
            fit.mixtures[:, 0], from_logs(fit.mixtures[:, 1]), from_logs(fit.line_ends[:, :LOG_LINES]),
            fit.line_ends[:, LOG_LINES:], shrinking, predicted, z @ _MOVING_AVERAGES, np.zeros((len(z), 1)),
        ],
        axis=1,
    )  # fmt: skip
    experts = _bounded(experts, _EXPERT_BOUND)
    median = np.sort(experts[:, :_CONTINUING_EXPERTS], axis=1)[:, _CONTINUING_EXPERTS // 2]
    squares = (experts[:, : _CONTINUING_EXPERTS - 1] - median[:, None]) ** 2
    dispersion = np.sqrt(squares.sum(axis=1) / (_CONTINUING_EXPERTS - 1)) + 0.02

    values = np.concatenate(
        [
            3.0 * experts, fit.line_levels,
            fit.disagreement, fit.error, fit.line_errors, prediction_error / ahead[:, None],
            fit.exponential, ratios, changes @ _BIN_AVERAGES, steps[:, :12],
            np.array(
                [
                    k, ahead, ahead / k, step_size / level, median, dispersion,
                    step_size / (np.abs(windows.first - last) + step_size),
                    clip((windows.low - last) / step_size, -50.0, 0.0),
                    clip((windows.mean - last) / step_size, -100.0, 100.0),
                    _standard_deviation(steps[:, 1:12] - steps[:, :11]), _standard_deviation(steps[:, :8]),
                ]
            ).T,
        ],
        axis=1,
    )  # fmt: skip
    values[:, _ASINH_COLUMNS] = np.arcsinh(values[:, _ASINH_COLUMNS])
    values[:, _LOG_COLUMNS] = np.log(values[:, _LOG_COLUMNS] + _LOG_OFFSETS)
    return LossFeatures(_bounded(values, _FEATURE_BOUND), experts, dispersion, unit)


def _bounded(values: Floats, bound: float) -> Floats:
    """Values within -bound and bound, 0 for NaN."""
    return np.asarray(np.where(np.isnan(values), 0.0, np.minimum(np.maximum(values, -bound), bound)))


def _standard_deviation(values: Floats) -> Floats:
    """(n,) standard deviations of the rows of values (n, p)."""
    centred = values - values.sum(axis=1, keepdims=True) / values.shape[1]
    return np.asarray(np.sqrt((centred**2).sum(axis=1) / values.shape[1]))

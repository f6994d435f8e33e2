"""Forecasts a loss some iterations ahead.

"sublinear" and "linear" are SLAQ's two families (Zhang, Stafman, Or, Freedman, SoCC 2017, section 4.1), fitted by least
squares with weights that decay with age. "auto" extrapolates the latest changes: a network (`network`) weighs some
thirty extrapolation rules (`features`), trained on a prior over loss curves (`prior`) and on simulated training
algorithms (`algorithms`). Its intervals are widened by how it would have done on the past of the same curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.loss.features import LossWindows, extract_features
from predictors.loss.network import LEVELS, MIDDLE, LossNetwork
from predictors.loss.slaq_families import predict_linear, predict_sublinear
from predictors.missing_values import fill_missing

LossFamily: TypeAlias = Literal["auto", "sublinear", "linear"]

_BACKTESTS = 2
"""earlier points from which losses that are known by now are forecast"""
_FEWEST_POINTS = 3
"""losses that such a forecast needs"""
_PRIOR_ERRORS = 1.0
"""errors that the prior of their variance counts as"""
_LOW, _HIGH = 1, len(LEVELS) - 2
_NORMAL_DISTANCE = float(ndtri(LEVELS[_HIGH]))
"""of these levels from the median of a normal distribution, in standard deviations"""
_MAX_ERROR = 4.0
"""in standard deviations; a larger error counts as this"""
_TINY = 1e-300
_BATCH = 64
"""curves whose features are computed at once: some 150 kB each"""


class LossPredictor:
    """Forecasts a loss some iterations after the last one reported.

    Needs no `fit`. family: "auto", or one of SLAQ's, "sublinear" f(k) = 1/(a k^2 + b k + c) + d and "linear"
    f(k) = mu^(k - b) + c. Raises ValueError for any other.
    """

    version: ClassVar[str] = "loss-4"

    def __init__(self, family: LossFamily = "auto") -> None:
        if family not in ("auto", "sublinear", "linear"):
            raise ValueError(f"a loss family is auto, sublinear or linear, not {family!r}")
        self.family = family

    def predict(self, losses: ArrayLike, ahead: int) -> Forecast:
        """The loss `ahead` iterations after the last of `losses` (k,).

        Raises ValueError for losses without a finite value, and unless `ahead` is at least 1.
        """
        return self.predict_many([losses], [ahead])

    def predict_many(self, curves: Sequence[ArrayLike], ahead: ArrayLike) -> Forecast:
        """The loss of each of n curves `ahead` iterations after its last one: one number for all, or (n,).

        Raises ValueError as `predict` does.
        """
        given = list(curves)
        filled = {id(curve): fill_missing(curve) for curve in given}
        clean = [filled[id(curve)] for curve in given]
        steps = np.broadcast_to(np.asarray(ahead, dtype=np.float64), (len(clean),))
        if not np.all(np.isfinite(steps) & (steps >= 1)):
            raise ValueError("a loss is predicted at least one iteration ahead")
        if not clean:
            return Forecast.unknown(0)
        if self.family == "auto":
            return _predict_by_network(clean, np.rint(steps))
        return self._predict_by_family(clean, np.rint(steps))

    def _predict_by_family(self, curves: Sequence[Floats], ahead: Floats) -> Forecast:
        """A curve that occurs several times, with other iterations ahead, is fitted once."""
        fit = predict_sublinear if self.family == "sublinear" else predict_linear
        rows: dict[int, list[int]] = {}
        for row, curve in enumerate(curves):
            rows.setdefault(id(curve), []).append(row)
        mean, spread = np.empty((2, len(curves)))
        for same in rows.values():
            mean[same], spread[same] = fit(curves[same[0]], ahead[same])
        return Forecast.normal(mean, spread, self.family)


def _predict_by_network(curves: Sequence[Floats], ahead: Floats) -> Forecast:
    values = np.empty((len(curves), len(LEVELS)))
    for start in range(0, len(curves), _BATCH):
        rows = slice(start, start + _BATCH)
        values[rows] = _widened_by_backtest(curves[rows], ahead[rows])
    return Forecast.quantiles(LEVELS, values, "loss changes")


def _widened_by_backtest(curves: Sequence[Floats], ahead: Floats) -> Floats:
    """Quantiles (n, levels) by the network, widened by its errors on the past of the same curves.

    Losses known by now are forecast from one and from two horizons ago, where the horizon is `ahead` (n,) or, for short
    curves, a third of their length. The errors are normalised by the predicted width. Their variance, with a scaled
    inverse chi-square prior about 1 that counts as `_PRIOR_ERRORS` errors, widens the intervals where it exceeds 1.
    """
    n = len(curves)
    k = np.concatenate([np.array([len(curve) for curve in curves], dtype=np.float64)] * _BACKTESTS)
    back = np.maximum(np.minimum(np.concatenate([ahead] * _BACKTESTS), k // (_BACKTESTS + 1)), 1.0)
    cut = k - back * np.repeat(np.arange(1.0, _BACKTESTS + 1), n)
    usable = cut >= _FEWEST_POINTS
    cut, back = np.where(usable, cut, 1.0), np.where(usable, back, 1.0)
    pairs = list(zip([*curves] * _BACKTESTS, cut.astype(np.int64).tolist(), strict=True))
    seen = [*curves, *(curve[:end] for curve, end in pairs)]
    features = extract_features(LossWindows.of(seen), np.concatenate([ahead, back]))
    changes = features.unit[:, None] * _network().quantiles(features)
    values = np.array([curve[-1] for curve in seen])[:, None] + changes
    median, past = values[:, MIDDLE], values[n:]
    targets = (cut + back).astype(np.int64).tolist()
    actual = np.array([curve[min(at, len(curve)) - 1] for (curve, _), at in zip(pairs, targets, strict=True)])
    error = actual - past[:, MIDDLE]
    width = np.where(error > 0, past[:, _HIGH] - past[:, MIDDLE], past[:, MIDDLE] - past[:, _LOW])
    errors = usable * _NORMAL_DISTANCE * np.abs(error) / np.maximum(width, np.abs(error) / _MAX_ERROR + _TINY)
    squares, count = (part.reshape(_BACKTESTS, n).sum(axis=0) for part in (errors**2, usable))
    factor = np.sqrt(np.maximum((_PRIOR_ERRORS + squares) / (_PRIOR_ERRORS + count), 1.0))
    return np.asarray(median[:n, None] + factor[:, None] * (values[:n] - median[:n, None]))


@lru_cache(maxsize=1)
def _network() -> LossNetwork:
    """The network in network.npz, written by docs/make_loss_network.py. Raises ValueError for one of another
    version."""
    with resources.files("predictors.loss").joinpath("network.npz").open("rb") as file, np.load(file) as state:
        if str(state["version"]) != LossPredictor.version:
            raise ValueError(
                f"predictors/loss/network.npz is {state['version']}, not {LossPredictor.version}: make it anew"
            )
        return LossNetwork.from_state(state)

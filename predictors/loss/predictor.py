"""A loss some iterations ahead (algorithms 2).

"sublinear" and "linear" are SLAQ's two families (Zhang, Stafman, Or, Freedman, SoCC 2017, section 4.1), by least
squares with weights that decay with age. "auto" continues the curve by its latest changes: a network weighs some thirty
simple laws by which it may go on (`predictors.loss.features`), as it learnt to from a prior over the shapes of loss
curves (`predictors.loss.prior`) and from training algorithms on random problems (`predictors.loss.algorithms`).
Intervals widen by how it would have done on the curve's own past.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.arrays import Bools, Floats
from predictors.forecast import Forecast
from predictors.loss.features import Losses, looked_at
from predictors.loss.network import LEVELS, MIDDLE, LossNetwork
from predictors.missing_values import cleaned

LossFamily: TypeAlias = Literal["auto", "sublinear", "linear"]

DECAY = 0.9
"""weight of a point, of that of the next one"""
LATEST = 60
"""points that a fit looks at: older ones weigh less than a five-hundredth"""
_FLOORS = np.concatenate([[0.0], np.geomspace(0.002, 8.0, 40)])
"""what the sublinear family's d may lie below the lowest loss, in units of the curve's fall"""
_BASES = 1.0 - np.geomspace(1e-4, 0.9, 200)
_PAST = 2
"""points before, from which it is forecast what is known by now"""
_FEWEST = 3
"""points that are enough for that"""
_PRIOR_ERRORS = 1.0
_LOW, _HIGH = 1, len(LEVELS) - 2
_USUAL = float(ndtri(LEVELS[_HIGH]))
"""standard deviations of a normal distribution between its median and these levels"""
_FARTHEST = 4.0
"""such distances: an error counts for no more"""
_NOTHING = 1e-300
_BATCH = 64
"""curves looked at together: what is made of them takes some 150 kB each"""


class LossPredictor:
    """Forecasts a loss some iterations after the last one reported.

    family: "auto", or one of SLAQ's, "sublinear" f(k) = 1/(a k^2 + b k + c) + d and "linear" f(k) = mu^(k - b) + c.
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
        """Of each of n curves the loss so many iterations after its last, one number for all or one a curve."""
        given = list(curves)
        cleaned_once = {id(curve): cleaned(curve) for curve in given}
        clean = [cleaned_once[id(curve)] for curve in given]
        steps = np.broadcast_to(np.asarray(ahead, dtype=np.float64), (len(clean),))
        if not np.all(np.isfinite(steps) & (steps >= 1)):
            raise ValueError("a loss is predicted at least one iteration ahead")
        if not clean:
            return Forecast.unknown(0)
        return _continued(clean, np.rint(steps)) if self.family == "auto" else self._fitted(clean, np.rint(steps))

    def _fitted(self, curves: Sequence[Floats], ahead: Floats) -> Forecast:
        """Each curve is fitted once, however many of its iterations are asked for."""
        fit = _sublinear if self.family == "sublinear" else _linear
        rows: dict[int, list[int]] = {}
        for row, curve in enumerate(curves):
            rows.setdefault(id(curve), []).append(row)
        mean, spread = np.empty((2, len(curves)))
        for same in rows.values():
            mean[same], spread[same] = fit(curves[same[0]], ahead[same])
        return Forecast.normal(mean, spread, self.family)


def _continued(curves: Sequence[Floats], ahead: Floats) -> Forecast:
    values = np.empty((len(curves), len(LEVELS)))
    for start in range(0, len(curves), _BATCH):
        rows = slice(start, start + _BATCH)
        values[rows] = _widened(curves[rows], ahead[rows])
    return Forecast.quantiles(LEVELS, values, "loss changes")


def _widened(curves: Sequence[Floats], ahead: Floats) -> Floats:
    """Quantiles (n, levels) by the network, as much wider as those from points before would have had to be.

    From one and from two horizons ago is forecast what is known by now; of a curve with few points, horizons of a third
    of it. The variance of these errors, in units of what was said of them, is one a priori, which counts as much as
    `_PRIOR_ERRORS` of them (scaled inverse chi-square); where it comes out larger, intervals widen.
    """
    n = len(curves)
    k = np.concatenate([np.array([len(curve) for curve in curves], dtype=np.float64)] * _PAST)
    back = np.maximum(np.minimum(np.concatenate([ahead] * _PAST), k // (_PAST + 1)), 1.0)
    then = k - back * np.repeat(np.arange(1.0, _PAST + 1), n)
    told = then >= _FEWEST
    then, back = np.where(told, then, 1.0), np.where(told, back, 1.0)
    ends = list(zip([*curves] * _PAST, then.astype(np.int64).tolist(), strict=True))
    looks = [*curves, *(curve[:end] for curve, end in ends)]
    look = looked_at(Losses.of(looks), np.concatenate([ahead, back]))
    values = np.array([curve[-1] for curve in looks])[:, None] + look.reach[:, None] * _network().quantiles(look)
    middle, past = values[:, MIDDLE], values[n:]
    came = (then + back).astype(np.int64).tolist()
    off = (
        np.array([curve[min(at, len(curve)) - 1] for (curve, _), at in zip(ends, came, strict=True)]) - past[:, MIDDLE]
    )
    said = np.where(off > 0, past[:, _HIGH] - past[:, MIDDLE], past[:, MIDDLE] - past[:, _LOW])
    errors = told * _USUAL * np.abs(off) / np.maximum(said, np.abs(off) / _FARTHEST + _NOTHING)
    squares, count = (part.reshape(_PAST, n).sum(axis=0) for part in (errors**2, told))
    wider = np.sqrt(np.maximum((_PRIOR_ERRORS + squares) / (_PRIOR_ERRORS + count), 1.0))
    return np.asarray(middle[:n, None] + wider[:, None] * (values[:n] - middle[:n, None]))


@lru_cache(maxsize=1)
def _network() -> LossNetwork:
    """That of the package, made by docs/make_loss_network.py."""
    with resources.files("predictors.loss").joinpath("network.npz").open("rb") as file, np.load(file) as state:
        if str(state["version"]) != LossPredictor.version:
            raise ValueError(
                f"predictors/loss/network.npz is {state['version']}, not {LossPredictor.version}: make it anew"
            )
        return LossNetwork.from_state(state)


def _recent(losses: Floats) -> tuple[Floats, Floats, Floats]:
    """The latest losses, their iterations counted from the first of all, and their weights."""
    y = losses[-LATEST:]
    k = np.arange(len(losses) - len(y) + 1.0, len(losses) + 1.0)
    return y, k, DECAY ** np.arange(len(y) - 1.0, -1.0, -1.0)


def _sublinear(losses: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """SLAQ's first family: for each d of a grid, 1/(y - d) is a quadratic in k; the d that fits the losses best.

    A quadratic that has a pole or turns back before the iteration asked for is no loss curve and is passed over. Of
    three losses, 1/(y - d) is a line in k: a quadratic fits them whatever d is.
    """
    y, k, weight = _recent(losses)
    fall = _fall(y)
    last, unknown = np.full(len(ahead), y[-1]), np.full(len(ahead), fall)
    if len(y) < _FEWEST:
        return last, _spread(unknown, fall, len(losses), ahead)
    powers = np.vander(np.append(k - k[-1], ahead) / len(y), min(len(y) - 1, 3))
    gap = _FLOORS[:, None] + 1e-3
    above = (y - y.min()) / fall + gap
    root = np.sqrt(weight) * above**2
    q, r = np.linalg.qr(root[:, :, None] * powers[: len(y)])
    quadratic = np.linalg.solve(r, q.transpose(0, 2, 1) @ (root / above)[:, :, None])
    past, future = np.split((powers @ quadratic)[:, :, 0], [len(y)], axis=1)
    sound: Bools = np.all(past > 0, axis=1)
    errors = (1.0 / np.where(sound[:, None], past, 1.0) - above) ** 2 @ weight / weight.sum()
    falls: Bools = sound[:, None] & (future >= past[:, -1:])
    best = np.argmin(np.where(falls, errors[:, None], np.inf), axis=0)
    at = best, np.arange(len(ahead))
    mean = y.min() + fall * (1.0 / np.where(falls[at], future[at], 1.0) - gap[best, 0])
    known = np.where(falls[at], fall * np.sqrt(errors[best]), unknown)
    return np.where(falls[at], mean, last), _spread(known, fall, len(losses), ahead)


def _linear(losses: Floats, ahead: Floats) -> tuple[Floats, Floats]:
    """SLAQ's second family: for each mu of a grid, the losses are linear in mu^k; the mu that fits them best."""
    y, k, weight = _recent(losses)
    fall = _fall(y)
    above = (y - y[-1]) / fall
    power = _BASES[:, None] ** (k - k[-1])
    total = weight.sum()
    x_mean, y_mean = power @ weight / total, float(above @ weight / total)
    square = (power - x_mean[:, None]) ** 2 @ weight
    product = (power - x_mean[:, None]) @ (weight * (above - y_mean))
    gain = np.maximum(np.divide(product, square, out=np.zeros_like(product), where=square > 1e-300), 0.0)
    level = y_mean - gain * x_mean
    errors = (gain[:, None] * power + level[:, None] - above) ** 2 @ weight / total
    best = int(np.argmin(errors))
    known = np.full(len(ahead), fall * np.sqrt(errors[best]))
    return y[-1] + fall * (gain[best] * _BASES[best] ** ahead + level[best]), _spread(known, fall, len(losses), ahead)


def _fall(y: Floats) -> float:
    """How far the losses reach, the unit in which they are fitted."""
    return max(float(y.max() - y.min()), 1e-9 * float(np.abs(y).max()), 1e-300)


def _spread(known: Floats, fall: float, points: int, ahead: Floats) -> Floats:
    """Standard deviations: the fit's own, growing ahead, and much more where few points were fitted."""
    return np.asarray(np.hypot(known * np.sqrt(1.0 + ahead / points), fall / points)) + 1e-12

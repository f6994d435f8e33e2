"""Speed of a training job by GPUs and nodes, from the few placements that it was measured on.

The step time is Pollux' (Qiao et al., OSDI 2021, section 3.2): gradient and synchronisation overlap in part,
T = (T_grad^g + T_sync^g)^(1/g); T_sync is 0 on one GPU, a + b (GPUs - 2) within a node and another a + b (GPUs - 2)
across nodes, here with c (GPUs a node - 1) where those of a node share its link. T_grad grows with the GPUs a node too,
1 + d (GPUs a node - 1)^e, where they share its processors and its memory. Few points cannot tell as many parameters:
drawn from a prior once, they are weighted by how well they explain the points, the time scale of the job integrated
out. What the model misses is alike at like placements: a Gaussian process over the logarithms of GPUs and nodes. Where
hardly any draw explains the points, the weights are tempered and the forecast is wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast

_DRAWS = 8000
_KEPT = 300
_FEWEST = 60.0
"""effective number of draws that a forecast stands on"""
_NOISE = 0.07
"""standard deviation of the logarithm of a measured step time about what it would be in the mean"""
_MISSED = 0.15
"""and of that mean about the model, the same within a factor of two in GPUs and nodes"""
_SCALE_SPREAD = 30.0
"""of the logarithm of the time scale a priori: next to nothing is known of it"""


class SpeedPredictor:
    """Forecasts iterations a second on so many GPUs of so many nodes."""

    version: ClassVar[str] = "speed-2"

    def __init__(self) -> None:
        self.gpus_, self.nodes_, self.step_time_ = np.zeros(0), np.zeros(0), np.zeros(0)

    def fit(self, gpus: ArrayLike, nodes: ArrayLike, step_time: ArrayLike) -> SpeedPredictor:
        """Learn from step times in seconds (k,), measured on `gpus` (k,) GPUs over `nodes` (k,) nodes.

        Raises ValueError unless all are positive, finite and alike in length, and no node is without a GPU.
        """
        count, spread = _placements(gpus, nodes)
        times = np.atleast_1d(np.asarray(step_time, dtype=np.float64))
        if times.shape != count.shape or not np.all(np.isfinite(times) & (times > 0)):
            raise ValueError("a step time is a positive number of seconds, one a placement")
        self.gpus_, self.nodes_, self.step_time_ = count, spread, times
        return self

    def predict(self, gpus: ArrayLike, nodes: ArrayLike) -> Forecast:
        """Iterations a second on `gpus` (n,) GPUs over `nodes` (n,) nodes; unknown before anything was measured."""
        count, spread = _placements(gpus, nodes)
        if not len(self.step_time_) or not len(count):
            return Forecast.unknown(len(count))
        measured = (self.gpus_, self.nodes_)
        covariance = _missed(measured, measured) + _NOISE**2 * np.eye(len(self.gpus_))
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        draws, level, off, temper = self._posterior(precision)
        shared = _missed((count, spread), measured)
        gain = shared @ precision
        centres = level + _by_draw(count.tobytes(), spread.tobytes())[draws].T.copy() + gain @ off
        unknown = _MISSED**2 - (gain * shared).sum(axis=1) + (1.0 - gain.sum(axis=1)) ** 2 / _total(precision)
        sd = np.sqrt(np.maximum(unknown, 0.0) + _NOISE**2 / temper)
        return Forecast.quantiles(LEVELS[1:-1], np.exp(_mixture(-centres, sd)), "measured speed", lower=0.0)

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        return {"version": self.version, "gpus": self.gpus_, "nodes": self.nodes_, "step_time": self.step_time_}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SpeedPredictor:
        """Raises ValueError for the state of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        made = cls()
        return made.fit(state["gpus"], state["nodes"], state["step_time"]) if len(state["gpus"]) else made

    def _posterior(self, precision: Floats) -> tuple[Ints, Floats, Floats, float]:
        """Equally likely draws (_KEPT,), of each the level of the logarithm of the time (_KEPT,) and the points'
        distances from it (k, _KEPT); what the weights were tempered by."""
        off = np.log(self.step_time_)[:, None] - _log_step_times(self.gpus_, self.nodes_)
        level = precision.sum(axis=0) @ off / _total(precision)
        misfit = (np.einsum("ij,ij->j", precision @ off, off) - _total(precision) * level**2) / 2.0
        temper, weight = 1.0, _weights(misfit)
        while 1.0 / (weight**2).sum() < _FEWEST:
            temper *= 0.7
            weight = _weights(temper * misfit)
        draws = np.searchsorted(np.cumsum(weight), (np.arange(_KEPT) + 0.5) / _KEPT).clip(max=_DRAWS - 1)
        return draws, level[draws], off[:, draws] - level[draws], temper


def _total(precision: Floats) -> float:
    """Of the level, by the points and what is known of it before."""
    return float(precision.sum() + 1.0 / _SCALE_SPREAD**2)


def _missed(some: tuple[Floats, Floats], others: tuple[Floats, Floats]) -> Floats:
    """(n, k) covariance of what the model misses at n and at k placements, both GPUs and nodes."""
    distance = sum(np.log2(a[:, None] / b) ** 2 for a, b in zip(some, others, strict=True))
    return np.asarray(_MISSED**2 * np.exp(-distance / 2.0))


def _weights(misfit: Floats) -> Floats:
    weight = np.exp(misfit.min() - misfit)
    return np.asarray(weight / weight.sum())


def _placements(gpus: ArrayLike, nodes: ArrayLike) -> tuple[Floats, Floats]:
    count = np.atleast_1d(np.asarray(gpus, dtype=np.float64))
    spread = np.atleast_1d(np.asarray(nodes, dtype=np.float64))
    if count.shape != spread.shape or count.ndim != 1:
        raise ValueError("as many counts of nodes as of GPUs are needed")
    if not np.all(np.isfinite(count) & (spread >= 1) & (count >= spread)):
        raise ValueError("a placement has at least one GPU on each of its nodes")
    return count, spread


@lru_cache(maxsize=1)
def _prior() -> Mapping[str, Floats]:
    """Parameters (_DRAWS,), times in units of the gradient's; a GPU more adds a share of the first synchronisation."""
    random = np.random.default_rng(11)

    def between(low: float, high: float) -> Floats:
        return np.exp(random.uniform(np.log(low), np.log(high), _DRAWS))

    local = between(0.01, 2.0)
    across = local * between(0.3, 10.0)
    return {
        "local": local,
        "local_more": local * between(0.003, 2.0),
        "across": across,
        "across_more": across * between(0.001, 0.1),
        "shared": across * between(0.003, 1.0),
        "overlap": between(1.0, 8.0),
        "crowding": between(0.01, 0.5) * (random.random(_DRAWS) < 0.5),
        "bend": random.uniform(0.3, 1.0, _DRAWS),
    }


@lru_cache(maxsize=8)
def _by_draw(gpus: bytes, nodes: bytes) -> Floats:
    """(_DRAWS, n) the same as `_log_step_times`, for those who ask for a few draws of the same placements again."""
    return np.ascontiguousarray(_log_step_times(np.frombuffer(gpus), np.frombuffer(nodes)).T)


def _log_step_times(gpus: Floats, nodes: Floats) -> Floats:
    """(n, _DRAWS) logarithm of the step time in units of the gradient's, by the draws of the prior."""
    return np.stack([_log_step_time(*place) for place in zip(gpus.tolist(), nodes.tolist(), strict=True)])


@lru_cache(maxsize=256)
def _log_step_time(gpus: float, nodes: float) -> Floats:
    """(_DRAWS,) the same on one placement, by all draws."""
    prior = _prior()
    more, beside = max(gpus - 2.0, 0.0), gpus / nodes - 1.0
    if gpus <= 1:
        sync = np.zeros(_DRAWS)
    elif nodes <= 1:
        sync = prior["local"] + prior["local_more"] * more
    else:
        sync = prior["across"] + prior["across_more"] * more + prior["shared"] * beside
    gradient = 1.0 + prior["crowding"] * beside ** prior["bend"]
    return np.asarray(np.log(gradient ** prior["overlap"] + sync ** prior["overlap"]) / prior["overlap"])


def _mixture(centres: Floats, sd: Floats) -> Floats:
    """(n, inner levels) quantiles of equal mixtures of normals at `centres` (n, m), of spreads `sd` (n,)."""
    part = ndtri((np.arange(9) + 0.5) / 9.0)
    runs = np.sort(centres, axis=1)[:, None, :] + np.multiply.outer(sd, part)[:, :, None]
    values = runs.reshape(len(sd), -1)
    values.sort(axis=1, kind="stable")  # which merges runs that are in order
    position = LEVELS[1:-1] * (values.shape[1] - 1)
    below = np.floor(position).astype(np.int64)
    low, high, share = values[:, below], values[:, np.minimum(below + 1, values.shape[1] - 1)], position - below
    return np.asarray(np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1.0 - share)))

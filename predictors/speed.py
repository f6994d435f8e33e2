"""Forecasts the speed of a training job by GPUs and nodes, from the few placements on which it was measured.

The model of the step time is Pollux' (Qiao et al., OSDI 2021, section 3.2): gradient and synchronisation overlap in
part, T = (T_grad^g + T_sync^g)^(1/g). T_sync is 0 on one GPU, a + b (GPUs - 2) within a node, and another a + b (GPUs -
2) across nodes, here with an additional c (GPUs per node - 1) for GPUs that share the link of their node. T_grad grows
with the GPUs per node too, by 1 + d (GPUs per node - 1)^e, where they share processors and memory.

A few measurements do not determine so many parameters: draws from a prior are weighted by their likelihood. Jobs of
one kind share these parameters, and each has a time scale of its own, which is integrated out: so only ratios within a
job tell how the kind scales, however large or small its jobs are (a mixed-effects model; Pinheiro and Bates,
Mixed-Effects Models in S and S-PLUS, 2000, chapter 2). The model error is a Gaussian process over the logarithms of
GPUs and nodes, so that it is similar at similar placements; a part of it is the kind's, a part each job's. Where hardly
any draw explains the measurements, the weights are tempered, which widens the forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import LEVELS, Forecast

_DRAWS = 8000
_KEPT = 300
_KEPT_OF_A_KIND = 1000
_MIN_EFFECTIVE_DRAWS = 60.0
"""least effective sample size of the weighted draws; weights are tempered until it is reached"""
_NOISE = 0.07
"""standard deviation of the logarithm of a measured step time about its expectation"""
_MODEL_ERROR = 0.15
"""standard deviation of the logarithm of a kind's expectation about the model; its length scale is a factor of two in
GPUs and nodes"""
_JOB_ERROR = 0.12
"""standard deviation of the logarithm of a job's expectation about its kind's, of the same length scale"""
_SCALE_SPREAD = 30.0
"""prior standard deviation of the logarithm of a job's time scale: next to no information"""


class Measured(NamedTuple):
    """Step times of one job in seconds (k,), on `gpus` (k,) GPUs over `nodes` (k,) nodes."""

    gpus: Floats
    nodes: Floats
    step_time: Floats

    @classmethod
    def of(cls, gpus: ArrayLike, nodes: ArrayLike, step_time: ArrayLike) -> Measured:
        """Raises ValueError unless all are of the same length, positive and finite, and each node has a GPU."""
        gpu_count, node_count = _placements(gpus, nodes)
        times = np.atleast_1d(np.asarray(step_time, dtype=np.float64))
        if times.shape != gpu_count.shape or not np.all(np.isfinite(times) & (times > 0)):
            raise ValueError("a step time is a positive number of seconds, one a placement, each of one job")
        return cls(gpu_count, node_count, times)


class SpeedPredictor:
    """Forecasts iterations per second of a job on a number of GPUs over a number of nodes."""

    version: ClassVar[str] = "speed-4"

    def __init__(self) -> None:
        self.measured_ = Measured(np.zeros(0), np.zeros(0), np.zeros(0))
        self.job_: Ints = np.zeros(0, dtype=np.int64)
        self._kinds: dict[int, _Kind] = {}
        """what all jobs but one tell of their kind, by that one; where it was not measured, what all do"""

    def fit(
        self, gpus: ArrayLike, nodes: ArrayLike, step_time: ArrayLike, job: ArrayLike | None = None
    ) -> SpeedPredictor:
        """Fit on step times in seconds (k,), measured on `gpus` (k,) GPUs over `nodes` (k,) nodes.

        job (k,): a whole number for each job of the kind; where it is missing, all were measured in job 0.

        Raises ValueError as `Measured.of` does, and unless each is of one job.
        """
        self.measured_ = Measured.of(gpus, nodes, step_time)
        jobs = np.zeros(len(self.measured_.gpus)) if job is None else np.atleast_1d(np.asarray(job))
        self.job_ = jobs.astype(np.int64)
        if self.job_.shape != self.measured_.gpus.shape:
            raise ValueError("a step time is a positive number of seconds, one a placement, each of one job")
        self._kinds = {}
        return self

    def predict(self, gpus: ArrayLike, nodes: ArrayLike, job: int = 0, own: Measured | None = None) -> Forecast:
        """Iterations per second of one of the jobs on `gpus` (n,) GPUs over `nodes` (n,) nodes.

        own: what was measured of the job, in place of what was fitted of it; the job may be another than those. Unknown
        of a job of which nothing was measured. Raises ValueError unless `gpus` and `nodes` are of the same length, and
        each node has a GPU.
        """
        gpu_count, node_count = _placements(gpus, nodes)
        measured = own if own is not None else Measured(*(column[self.job_ == job] for column in self.measured_))
        if not len(measured.gpus) or not len(gpu_count):
            return Forecast.unknown(len(gpu_count))
        return self._kind_without(job).forecast(measured, (gpu_count, node_count))

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        return {"version": self.version, **self.measured_._asdict(), "job": self.job_}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SpeedPredictor:
        """The predictor whose `state` this is. Raises ValueError for one of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        restored = cls()
        columns = (state[name] for name in ("gpus", "nodes", "step_time", "job"))
        return restored.fit(*columns) if len(state["gpus"]) else restored

    def _kind_without(self, job: int) -> _Kind:
        left_out = job if job in self.job_ else -1
        if left_out not in self._kinds:
            numbers, counts = np.unique(self.job_[self.job_ != left_out], return_counts=True)
            rows = np.isin(self.job_, numbers[counts > 1])  # a single measurement gives no ratio
            self._kinds[left_out] = _Kind.of(Measured(*(column[rows] for column in self.measured_)), self.job_[rows])
        return self._kinds[left_out]


@dataclass(frozen=True, eq=False)
class _Kind:
    """The posterior of a kind's scaling, given k measurements of its jobs.

    placements: GPUs and nodes (k,) each. draws (m,): a sample of equally likely draws of the prior. precision (k, k):
    of the measurements' logarithms about the model, each job's time scale integrated out; explained (k, m): this times
    their residuals. temper: the exponent by which the draws' weights were tempered.
    """

    placements: tuple[Floats, Floats]
    draws: Ints
    precision: Floats
    explained: Floats
    temper: float

    @classmethod
    def of(cls, measured: Measured, job: Ints) -> _Kind:
        """job (k,): the number of the job of which each was measured."""
        gpus, nodes, step_time = measured
        if not len(gpus):
            return cls((gpus, nodes), np.arange(_DRAWS), np.zeros((0, 0)), np.zeros((0, _DRAWS)), 1.0)
        same_job = job[:, None] == job
        covariance = _error_covariance((gpus, nodes), (gpus, nodes), same_job)
        covariance += _NOISE**2 * np.eye(len(gpus)) + _SCALE_SPREAD**2 * same_job
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        residuals = np.log(step_time)[:, None] - _log_step_times(gpus, nodes)
        explained = precision @ residuals
        draws, temper = _sample(np.einsum("ij,ij->j", explained, residuals) / 2.0, _KEPT_OF_A_KIND)
        return cls((gpus, nodes), draws, precision, explained[:, draws], temper)

    def forecast(self, own: Measured, placements: tuple[Floats, Floats]) -> Forecast:
        """Iterations per second on n placements of a further job, of which `own` was measured."""
        there = own.gpus, own.nodes
        own_to_kind = _error_covariance(there, self.placements)
        residuals = np.log(own.step_time)[:, None] - _log_step_times(*there)[:, self.draws]
        residuals -= own_to_kind @ self.explained
        covariance = _error_covariance(there, there, same_job=True) + _NOISE**2 * np.eye(len(own.gpus))
        precision = np.linalg.inv(covariance - own_to_kind @ self.precision @ own_to_kind.T)
        scale_variance = 1.0 / (precision.sum() + _SCALE_SPREAD**-2)
        scales = precision.sum(axis=0) @ residuals * scale_variance
        squares = np.einsum("ij,ij->j", precision @ residuals, residuals) - scales**2 / scale_variance
        chosen, temper = _sample(squares / 2.0, _KEPT)
        scales = scales[chosen]
        to_kind = _error_covariance(placements, self.placements)
        to_own = _error_covariance(placements, there, same_job=True) - to_kind @ self.precision @ own_to_kind.T
        gain = to_own @ precision
        by_draw = _draws_by_placement(*(column.tobytes() for column in placements))[self.draws[chosen]].T.copy()
        centres = scales + by_draw + to_kind @ self.explained[:, chosen] + gain @ (residuals[:, chosen] - scales)
        variance = _MODEL_ERROR**2 + _JOB_ERROR**2 - ((to_kind @ self.precision) * to_kind).sum(axis=1)
        variance += (1.0 - gain.sum(axis=1)) ** 2 * scale_variance - (gain * to_own).sum(axis=1)
        sd = np.sqrt(np.maximum(variance, 0.0) + _NOISE**2 / min(temper, self.temper))
        return Forecast.quantiles(LEVELS[1:-1], np.exp(_mixture(-centres, sd)), "measured speed", lower=0.0)


def _sample(negative_log_likelihood: Floats, size: int) -> tuple[Ints, float]:
    """(size,) indices of equally likely ones by these (n,), and the exponent by which the weights were tempered."""
    temper, weight = 1.0, _weights(negative_log_likelihood)
    while 1.0 / (weight**2).sum() < _MIN_EFFECTIVE_DRAWS:
        temper *= 0.7
        weight = _weights(temper * negative_log_likelihood)
    drawn = np.searchsorted(np.cumsum(weight), (np.arange(size) + 0.5) / size)
    return drawn.clip(max=len(weight) - 1), temper


def _error_covariance(
    some: tuple[Floats, Floats], others: tuple[Floats, Floats], same_job: Bools | bool = False
) -> Floats:
    """(n, k) covariance of the error between n and k placements, each a pair of GPUs and nodes.

    same_job (n, k) or broadcast to it: whether both are of one job.
    """
    distance = sum(np.log2(a[:, None] / b) ** 2 for a, b in zip(some, others, strict=True))
    return np.asarray((_MODEL_ERROR**2 + same_job * _JOB_ERROR**2) * np.exp(-distance / 2.0))


def _weights(negative_log_likelihood: Floats) -> Floats:
    weight = np.exp(negative_log_likelihood.min() - negative_log_likelihood)
    return np.asarray(weight / weight.sum())


def _placements(gpus: ArrayLike, nodes: ArrayLike) -> tuple[Floats, Floats]:
    gpu_count = np.atleast_1d(np.asarray(gpus, dtype=np.float64))
    node_count = np.atleast_1d(np.asarray(nodes, dtype=np.float64))
    if gpu_count.shape != node_count.shape or gpu_count.ndim != 1:
        raise ValueError("as many counts of nodes as of GPUs are needed")
    if not np.all(np.isfinite(gpu_count) & (node_count >= 1) & (gpu_count >= node_count)):
        raise ValueError("a placement has at least one GPU on each of its nodes")
    return gpu_count, node_count


@lru_cache(maxsize=1)
def _prior() -> Mapping[str, Floats]:
    """Parameters (_DRAWS,) by name; times are in units of T_grad with one GPU on each node."""
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
def _draws_by_placement(gpus: bytes, nodes: bytes) -> Floats:
    """(_DRAWS, n) `_log_step_times` transposed and cached, for looking up a few draws of the same placements again."""
    return np.ascontiguousarray(_log_step_times(np.frombuffer(gpus), np.frombuffer(nodes)).T)


def _log_step_times(gpus: Floats, nodes: Floats) -> Floats:
    """(n, _DRAWS) logarithm of the step time in units of T_grad, for each draw of the prior."""
    return np.stack([_log_step_time(*place) for place in zip(gpus.tolist(), nodes.tolist(), strict=True)])


@lru_cache(maxsize=256)
def _log_step_time(gpus: float, nodes: float) -> Floats:
    """(_DRAWS,) the same for one placement."""
    prior = _prior()
    additional_gpus, additional_on_node = max(gpus - 2.0, 0.0), gpus / nodes - 1.0
    if gpus <= 1:
        sync = np.zeros(_DRAWS)
    elif nodes <= 1:
        sync = prior["local"] + prior["local_more"] * additional_gpus
    else:
        sync = prior["across"] + prior["across_more"] * additional_gpus + prior["shared"] * additional_on_node
    gradient = 1.0 + prior["crowding"] * additional_on_node ** prior["bend"]
    return np.asarray(np.log(gradient ** prior["overlap"] + sync ** prior["overlap"]) / prior["overlap"])


def _mixture(centres: Floats, sd: Floats) -> Floats:
    """(n, inner levels) quantiles of uniform mixtures of normals with means `centres` (n, m) and deviations `sd`
    (n,)."""
    part = ndtri((np.arange(9) + 0.5) / 9.0)
    runs = np.sort(centres, axis=1)[:, None, :] + np.multiply.outer(sd, part)[:, :, None]
    values = runs.reshape(len(sd), -1)
    values.sort(axis=1, kind="stable")  # a stable sort merges the sorted parts
    position = LEVELS[1:-1] * (values.shape[1] - 1)
    below = np.floor(position).astype(np.int64)
    low, high, share = values[:, below], values[:, np.minimum(below + 1, values.shape[1] - 1)], position - below
    return np.asarray(np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1.0 - share)))

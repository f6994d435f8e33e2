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
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import LEVELS, Forecast

_DRAWS = 8000
_KEPT = 300
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


class SpeedPredictor:
    """Forecasts iterations per second of a job on a number of GPUs over a number of nodes."""

    version: ClassVar[str] = "speed-3"

    def __init__(self) -> None:
        self.gpus_, self.nodes_, self.step_time_ = np.zeros(0), np.zeros(0), np.zeros(0)
        self.job_: Ints = np.zeros(0, dtype=np.int64)

    def fit(
        self, gpus: ArrayLike, nodes: ArrayLike, step_time: ArrayLike, job: ArrayLike | None = None
    ) -> SpeedPredictor:
        """Fit on step times in seconds (k,), measured on `gpus` (k,) GPUs over `nodes` (k,) nodes.

        job (k,): a whole number for each job of the kind; where it is missing, all were measured in job 0.

        Raises ValueError unless all are of the same length, the first three positive and finite, and each node has a
        GPU.
        """
        gpu_count, node_count = _placements(gpus, nodes)
        times = np.atleast_1d(np.asarray(step_time, dtype=np.float64))
        jobs = np.zeros(len(times), dtype=np.int64) if job is None else np.atleast_1d(np.asarray(job, dtype=np.int64))
        if not gpu_count.shape == times.shape == jobs.shape or not np.all(np.isfinite(times) & (times > 0)):
            raise ValueError("a step time is a positive number of seconds, one a placement, each of one job")
        self.gpus_, self.nodes_, self.step_time_, self.job_ = gpu_count, node_count, times, jobs
        return self

    def predict(self, gpus: ArrayLike, nodes: ArrayLike, job: int = 0) -> Forecast:
        """Iterations per second of one of the jobs on `gpus` (n,) GPUs over `nodes` (n,) nodes; unknown for others.

        Raises ValueError unless both are of the same length, and each node has a GPU.
        """
        gpu_count, node_count = _placements(gpus, nodes)
        own = self.job_ == job
        if not own.any() or not len(gpu_count):
            return Forecast.unknown(len(gpu_count))
        level_of, level = np.unique(self.job_, return_inverse=True)
        measured = (self.gpus_, self.nodes_)
        covariance = _error_covariance(measured, measured, level[:, None] == level) + _NOISE**2 * np.eye(len(level))
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        jobs = np.eye(len(level_of))[level]
        levels_covariance = _levels_covariance(precision, jobs)
        draws, levels, residuals, temper = self._posterior(precision, jobs, levels_covariance)
        covariance_to_measured = _error_covariance((gpu_count, node_count), measured, own[None, :])
        gain = covariance_to_measured @ precision
        by_draw = _draws_by_placement(gpu_count.tobytes(), node_count.tobytes())[draws].T.copy()
        mine = np.searchsorted(level_of, job)
        centres = levels[mine] + by_draw + gain @ residuals
        of_levels = np.eye(len(level_of))[mine] - gain @ jobs
        from_levels = np.einsum("ij,jk,ik->i", of_levels, levels_covariance, of_levels)
        variance = _MODEL_ERROR**2 + _JOB_ERROR**2 - (gain * covariance_to_measured).sum(axis=1) + from_levels
        sd = np.sqrt(np.maximum(variance, 0.0) + _NOISE**2 / temper)
        return Forecast.quantiles(LEVELS[1:-1], np.exp(_mixture(-centres, sd)), "measured speed", lower=0.0)

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        measured = {"gpus": self.gpus_, "nodes": self.nodes_, "step_time": self.step_time_, "job": self.job_}
        return {"version": self.version, **measured}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SpeedPredictor:
        """The predictor whose `state` this is. Raises ValueError for one of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        restored = cls()
        columns = (state[name] for name in ("gpus", "nodes", "step_time", "job"))
        return restored.fit(*columns) if len(state["gpus"]) else restored

    def _posterior(
        self, precision: Floats, jobs: Floats, levels_covariance: Floats
    ) -> tuple[Ints, Floats, Floats, float]:
        """A sample of the posterior: indices of equally likely draws (_KEPT,), the logarithm of each job's time scale
        in each (jobs, _KEPT), the residuals of the measurements (k, _KEPT), and the exponent by which weights were
        tempered. jobs (k, jobs): 1 where a measurement is of a job."""
        residuals = np.log(self.step_time_)[:, None] - _log_step_times(self.gpus_, self.nodes_)
        weighted = jobs.T @ precision @ residuals
        levels = levels_covariance @ weighted
        squares = np.einsum("ij,ij->j", precision @ residuals, residuals)
        negative_log_likelihood = (squares - np.einsum("ij,ij->j", weighted, levels)) / 2.0
        temper, weight = 1.0, _weights(negative_log_likelihood)
        while 1.0 / (weight**2).sum() < _MIN_EFFECTIVE_DRAWS:
            temper *= 0.7
            weight = _weights(temper * negative_log_likelihood)
        draws = np.searchsorted(np.cumsum(weight), (np.arange(_KEPT) + 0.5) / _KEPT).clip(max=_DRAWS - 1)
        return draws, levels[:, draws], residuals[:, draws] - jobs @ levels[:, draws], temper


def _levels_covariance(precision: Floats, jobs: Floats) -> Floats:
    """(jobs, jobs) posterior covariance of the logarithms of the jobs' time scales; jobs (k, jobs) as above."""
    return np.asarray(np.linalg.inv(jobs.T @ precision @ jobs + np.eye(jobs.shape[1]) / _SCALE_SPREAD**2))


def _error_covariance(some: tuple[Floats, Floats], others: tuple[Floats, Floats], same_job: Bools) -> Floats:
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

"""When jobs started, beside when that had been forecast: what a forecast start is corrected and spread by, and which
forecast it is.

The queue alone does not decide: jobs come, priorities change, users have limits. How far starts lie from simulated ones
shows in those that came (Gibbs and Candès 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from predictors.arrays import Floats
from slurmplug.forecasting.starts.live_queue import NO_LIMIT

STARTS = "starts"
"""the name under which the ledger has them among the models"""
NEAREST = 100
"""So many outcomes whose forecasts and time limits were nearest tell of a forecast."""
FEWEST = 30
"""Of fewer outcomes nothing is told."""
TAIL = 0.1
"""on each side of an interval"""

Method: TypeAlias = Literal["simulated", "learnt", "average"]
"""By the queue simulated forward, by a model of waits (`wait_model`), by the mean of the logarithms of both."""
METHODS: tuple[Method, ...] = ("simulated", "learnt", "average")


class Corrected(NamedTuple):
    """By which method starts were forecast, and (n, outcomes) seconds of each as they came of such forecasts; no
    columns where outcomes are too few."""

    method: Method
    waits: Floats


@dataclass(frozen=True, eq=False)
class StartOutcomes:
    """Of n jobs: the median of the simulated starts, and when they started, each in seconds from when
    it was forecast; limit: their time limits in seconds, NaN for none. learnt: as `forecast`, by a model of waits that
    knew no more; NaN for a job without, None where there is none at all."""

    forecast: Floats
    limit: Floats
    came: Floats
    learnt: Floats | None = None
    version: ClassVar[str] = "starts-3"

    def state(self) -> Mapping[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same."""
        names = "version", "forecast", "limit", "came", "learnt"
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StartOutcomes:
        """Raises ValueError for the state of another version."""
        if state.get("version") != cls.version:
            raise ValueError(f"outcomes of version {state.get('version')!r} are not those of {cls.version!r}")
        learnt = state["learnt"]
        forecast, limit, came = (np.asarray(state[name]) for name in ("forecast", "limit", "came"))
        return cls(forecast, limit, came, None if learnt is None else np.asarray(learnt))

    def corrected(self, simulated: Floats, learnt: Floats, limit: float, always: Method | None = None) -> Corrected:
        """The starts of a job and its variants, by the method that forecast those that came best: one for all of them,
        and corrected alike, as the first is, so that they differ by nothing else.

        simulated, learnt: (n,) seconds, NaN where no model learnt any. limit: that of the job in seconds, NaN for none.
        always: that method and no other, where both have outcomes. A start that the simulation never reaches is not
        learnt either.
        """
        one_alone = np.isnan(learnt).any() or not self._of_each
        method: Method = "simulated" if one_alone else always or self.best
        forecasts = np.where(np.isfinite(simulated), _by(method, simulated, learnt), simulated)
        known = np.isfinite(forecasts[0])
        outcomes = self if method == "simulated" else self._of_each[method]
        ratios = outcomes.ratios(float(forecasts[0]), limit) if known else np.zeros(0)
        return Corrected(method, as_they_came(forecasts, ratios))

    @cached_property
    def best(self) -> Method:
        """The method of the least mean absolute error, where each outcome is forecast by the others."""
        each = self._of_each
        return min(each, key=lambda method: each[method].error()) if each else "simulated"

    @cached_property
    def _of_each(self) -> Mapping[Method, StartOutcomes]:
        """By method, of the jobs of which each has a forecast; none where these are too few."""
        rows = np.zeros(0, dtype=np.int64) if self.learnt is None else np.flatnonzero(~np.isnan(self.learnt))
        if self.learnt is None or len(rows) < FEWEST:
            return {}
        simulated, learnt = self.forecast[rows], self.learnt[rows]
        return {
            method: StartOutcomes(_by(method, simulated, learnt), self.limit[rows], self.came[rows])
            for method in METHODS
        }

    def error(self) -> float:
        """The mean absolute error in seconds of these forecasts, each corrected by the other outcomes."""
        forecasts, limits, came = self._logarithms
        between = (forecasts[:, None] - forecasts) ** 2 + (limits[:, None] - limits) ** 2
        np.fill_diagonal(between, np.inf)
        count = min(NEAREST, len(came) - 1)
        near = np.argpartition(between, count - 1, axis=1)[:, :count]
        middle = np.quantile((came - forecasts)[near], 0.5, axis=1, method="inverted_cdf")
        return float(np.abs(np.expm1(np.maximum(forecasts + middle, 0.0)) - self.came).mean())

    def ratios(self, forecast: float, limit: float) -> Floats:
        """(k,) by how much the logarithm of one second more than the wait was greater than forecast, of the outcomes
        nearest to this forecast of a job with this time limit in seconds, NaN for none; empty where they are too few.

        Distances are of logarithms, those of forecast and limit alike.
        """
        if len(self.came) < FEWEST:
            return np.zeros(0)
        forecasts, limits, came = self._logarithms
        between = (forecasts - np.log1p(forecast)) ** 2 + (limits - _log_limit(np.array(limit))) ** 2
        near = np.argpartition(between, NEAREST)[:NEAREST] if len(between) > NEAREST else slice(None)
        return np.asarray(came[near] - forecasts[near])

    @cached_property
    def _logarithms(self) -> tuple[Floats, Floats, Floats]:
        return np.log1p(self.forecast), _log_limit(self.limit), np.log1p(self.came)


NO_OUTCOMES = StartOutcomes(*np.zeros((3, 0)))


def _by(method: Method, simulated: Floats, learnt: Floats) -> Floats:
    if method == "average":
        return np.asarray(np.expm1((np.log1p(simulated) + np.log1p(learnt)) / 2))
    return learnt if method == "learnt" else simulated


def _log_limit(limit: Floats) -> Floats:
    return np.log1p(np.where(np.isnan(limit), NO_LIMIT, limit))


def as_they_came(forecasts: Floats, ratios: Floats) -> Floats:
    """(n, k) seconds, of n forecasts with the ratios (k,) of outcomes."""
    return np.asarray(np.expm1(np.maximum(np.log1p(forecasts)[:, None] + ratios, 0.0)))


def median_and_interval(samples: Floats) -> Floats:
    """(..., 3): the median and the ends of an 80% interval of samples (..., k), some of which may be infinite."""
    return np.moveaxis(np.quantile(samples, [0.5, TAIL, 1 - TAIL], axis=-1, method="inverted_cdf"), 0, -1)


def ends_of(starts: Floats, seconds: Floats) -> Floats:
    """(..., k * m) samples of when jobs end, of samples of their starts (..., k) and run times (..., m)."""
    found = starts[..., :, None] + seconds[..., None, :]
    return np.asarray(found.reshape(*found.shape[:-2], -1))

"""When jobs started, beside when a simulation had forecast it: what a forecast start is corrected and spread by.

The queue alone does not decide: jobs come, priorities change, users have limits. How far starts lie from simulated ones
shows in those that came (Gibbs and Candès 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from predictors.arrays import Floats
from slurmplug.forecasting.live_queue import NO_LIMIT

STARTS = "starts"
"""the name under which the ledger has them among the models"""
NEAREST = 100
"""So many outcomes whose forecasts and time limits were nearest tell of a forecast."""
FEWEST = 30
"""Of fewer outcomes nothing is told."""
TAIL = 0.1
"""on each side of an interval"""


@dataclass(frozen=True, eq=False)
class StartOutcomes:
    """Of n jobs: the median of the simulated starts, and when they started, each in seconds from when
    it was forecast; limit: their time limits in seconds, NaN for none."""

    forecast: Floats
    limit: Floats
    came: Floats
    version: ClassVar[str] = "starts-2"

    def state(self) -> Mapping[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same."""
        return {"version": self.version, "forecast": self.forecast, "limit": self.limit, "came": self.came}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StartOutcomes:
        """Raises ValueError for the state of another version."""
        if state.get("version") != cls.version:
            raise ValueError(f"outcomes of version {state.get('version')!r} are not those of {cls.version!r}")
        return cls(*(np.asarray(state[name]) for name in ("forecast", "limit", "came")))

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

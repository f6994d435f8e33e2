"""When jobs started, beside when a simulation had forecast it: what a forecast start is corrected and spread by.

The queue alone does not decide: jobs come, priorities change, users have limits. How far starts lie from simulated ones
shows in those that came (Gibbs and Candès 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from predictors.arrays import Floats

STARTS = "starts"
"""the name under which the ledger has them among the models"""
NEAREST = 100
"""So many outcomes whose forecasts were nearest tell of a forecast."""
FEWEST = 30
"""Of fewer outcomes nothing is told."""
TAIL = 0.1
"""on each side of an interval"""


@dataclass(frozen=True, eq=False)
class StartOutcomes:
    """Of n jobs, the oldest first: the median of the simulated starts, and when they started, each in seconds from when
    it was forecast."""

    forecast: Floats
    came: Floats
    version: ClassVar[str] = "starts-1"

    def state(self) -> Mapping[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same."""
        return {"version": self.version, "forecast": self.forecast, "came": self.came}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StartOutcomes:
        """Raises ValueError for the state of another version."""
        if state.get("version") != cls.version:
            raise ValueError(f"outcomes of version {state.get('version')!r} are not those of {cls.version!r}")
        return cls(np.asarray(state["forecast"]), np.asarray(state["came"]))

    def ratios(self, forecast: float) -> Floats:
        """(k,) by how much the logarithm of one second more than the wait was greater than forecast, of the outcomes
        nearest to this forecast; empty where they are too few."""
        if len(self.came) < FEWEST:
            return np.zeros(0)
        near = np.argsort(np.abs(np.log1p(self.forecast) - np.log1p(forecast)), kind="stable")[:NEAREST]
        return np.asarray(np.log1p(self.came[near]) - np.log1p(self.forecast[near]))


NO_OUTCOMES = StartOutcomes(np.zeros(0), np.zeros(0))


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

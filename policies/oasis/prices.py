"""Prices of resources by how much of them is taken (section IV-B, equation 22), in logarithms.

p = L (U / L)^(g / c). U is the most that a job pays for a unit of a resource, L so little that a job finds every price
of an empty cluster low enough. Both come from the jobs seen so far, as nobody knows those to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from policies.oasis.bid import Bid
from predictors.arrays import Floats

Ceiling: TypeAlias = Literal["paper", "work"]
"""Of U: a job's utility for one worker-slot (23), or for each of those that its work takes."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Logarithms of U (R,) for each resource and of L."""

    upper: Floats
    lower: float

    def log_price(self, share: Floats) -> Floats:
        """(..., R) the logarithm of the price where a share (..., R) of the capacity is taken."""
        return np.asarray(self.lower + share * (self.upper - self.lower))

    @property
    def ratio(self) -> float:
        """The competitive ratio of theorem 4: 2 max_r (1, ln U^r / L)."""
        return 2.0 * max(1.0, float(np.max(self.upper) - self.lower))


def terms(bid: Bid, ceiling: Ceiling, demand: Floats) -> Floats:
    """(2 + R,) of one job: the logarithms of its f(T - a) / (4 D sum alpha), of D sum alpha, and of its U^r.

    D are its worker-slots; `demand` is alpha, or beta for the prices of parameter servers. A resource that it does not
    need is -inf in U.
    """
    slots = max(bid.worker_slots, 1.0)
    total = slots * float(demand.sum())
    with np.errstate(divide="ignore"):
        upper = np.where(demand > 0, np.log(bid.best) - np.log(demand), -np.inf)
    if ceiling == "work":
        upper -= np.log(slots)
    return np.concatenate([[np.log(bid.floor) - np.log(4.0 * total), np.log(total)], upper])


def bounds(past: Sequence[Floats] | Floats, slots: int, capacity: float) -> Bounds:
    """U and L of these jobs' `terms` (k, 2 + R), in a cluster of so many slots and so much capacity, sum_h sum_r c_h^r.

    1 / eta is the minimum of its bound, D sum alpha / (T sum c). U is at least L, where a resource is needed by nobody.
    """
    table = np.asarray(past, dtype=np.float64)
    eta = float(table[:, 1].min()) - np.log(slots * capacity)
    lower = float(table[:, 0].min()) + min(eta, 0.0)
    return Bounds(np.maximum(table[:, 2:].max(axis=0), lower), lower)

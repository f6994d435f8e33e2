"""What one job brings to OASiS: its work, its workers and what its completion is worth (section III).

Resources are in units of the largest server's capacity, so that a price of one resource compares with another's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from predictors.arrays import Bools, Floats, Ints


def utility(th: Floats, latency: ArrayLike) -> Floats:
    """f(x) = th1 / (1 + exp(th2 (x - th3))) for a latency x in the unit of th3 (section V-A); th: these three."""
    return np.asarray(th[0] * expit(-th[1] * (np.asarray(latency, dtype=np.float64) - th[2])))


def log_utility(th: Floats, latency: ArrayLike) -> Floats:
    """The logarithm of `utility`, which stays finite where a steep sigmoid is too small for a number."""
    return np.asarray(np.log(th[0]) + log_expit(-th[1] * (np.asarray(latency, dtype=np.float64) - th[2])))


@dataclass(frozen=True, eq=False)
class Servers:
    """Parameter servers of a job: demand (R,) of each (beta), and how many a worker needs (b / B)."""

    demand: Floats
    each: float


@dataclass(frozen=True, eq=False)
class Bid:
    """One job, in slots counted from the present one.

    work: units to do. done (N + 1,): units that 0, 1, .. N workers do in a slot, not falling; the work is told in
    worker-slots where `done[1]` is 1. least: the fewest workers at a time. value (T,): the utility of completion in
    each slot. first: the share of the present slot that is left. demand (R,): of a worker (alpha). hosts (H,): the
    servers that may host its workers. best: the utility that the upper price bound takes for it, floor: the lower.
    """

    work: float
    done: Floats
    value: Floats
    demand: Floats
    hosts: Bools
    best: float
    floor: float
    least: int = 1
    first: float = 1.0
    servers: Servers | None = None

    @property
    def workers(self) -> int:
        """The most at a time (N_i, one a data chunk)."""
        return len(self.done) - 1

    @cached_property
    def worker_slots(self) -> float:
        """ceil(E N M (tau + 2 e / b)): slots of one worker that the work takes."""
        return max(1.0, float(np.ceil(self.work / self.done[1] - 1e-9)))

    @cached_property
    def proportional(self) -> bool:
        """Whether every worker does as much as the first, alone or with others."""
        straight = self.done[1] * np.arange(len(self.done))
        return self.servers is None and self.least <= 1 and bool(np.allclose(self.done, straight, rtol=1e-6, atol=0.0))


@dataclass(frozen=True, eq=False)
class Schedule:
    """Workers (T, H) and parameter servers (T, K) in each slot, what they cost and the slot of completion."""

    workers: Ints
    servers: Ints
    cost: float
    payoff: float
    end: int

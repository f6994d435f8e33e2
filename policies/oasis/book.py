"""What is allocated in the slots to come, and Algorithm 1: at what price a job is admitted (section IV-B)."""

from __future__ import annotations

import numpy as np

from policies.oasis.bid import Bid, Schedule
from policies.oasis.prices import Bounds
from policies.oasis.schedule import best_schedule
from predictors.arrays import Floats, Ints


class Book:
    """The allocation (g and v of the paper) over T slots, as a working copy.

    capacity (T, H, R), beside (T, K, R): of the servers that host workers, and of those for parameter servers.
    """

    def __init__(self, capacity: Floats, beside: Floats | None = None) -> None:
        self.capacity, self.taken = capacity, np.zeros_like(capacity)
        self.beside = np.zeros((len(capacity), 0, capacity.shape[2])) if beside is None else beside
        self.beside_taken = np.zeros_like(self.beside)

    def offer(self, bid: Bid, bounds: Bounds, beside: Bounds | None = None) -> Schedule | None:
        """The schedule of the greatest payoff at today's prices; admitted is who has a positive one."""
        if bid.servers is None or beside is None:
            return best_schedule(bid, _prices(self.capacity, self.taken, bounds), self.capacity - self.taken)
        return best_schedule(
            bid,
            _prices(self.capacity, self.taken, bounds),
            self.capacity - self.taken,
            _prices(self.beside, self.beside_taken, beside),
            self.beside - self.beside_taken,
        )

    def take(self, demand: Floats, workers: Ints) -> None:
        """A job has these workers (k, 3), slot, server and number, of this demand (R,)."""
        np.add.at(self.taken, (workers[:, 0], workers[:, 1]), workers[:, 2, None] * demand)

    def take_beside(self, demand: Floats, servers: Ints) -> None:
        """And these parameter servers (k, 3)."""
        np.add.at(self.beside_taken, (servers[:, 0], servers[:, 1]), servers[:, 2, None] * demand)


def _prices(capacity: Floats, taken: Floats, bounds: Bounds) -> Floats:
    share = np.divide(taken, capacity, out=np.ones_like(taken), where=capacity > 0)
    return np.exp(bounds.log_price(np.clip(share, 0.0, 1.0)))

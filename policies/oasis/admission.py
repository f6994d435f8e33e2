"""Algorithm 1: prices by allocation, admission job by job, and a better plan under contention (section IV-B).

The price of a resource is p = L (U / L)^(g / c) (equation 22), in logarithms here: U is the most that a job pays for a
unit of the resource, L so little that a job can afford every price of an empty cluster. Both come from the jobs seen so
far, since future ones are unknown.

OASiS never takes an admission back. A queue can: a job that was admitted and has not ended may wait again for one of
more utility. So under contention all jobs are also planned in other orders on an empty cluster, and the plan with the
most utility is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.oasis.bids import Bid, Ceiling
from policies.oasis.schedule import Schedule, best_schedule
from predictors.arrays import Floats, Ints

_MAX_ORDERS = 60
"""orders of the jobs that are tried at most"""


@dataclass(frozen=True, eq=False)
class PriceBounds:
    """The logarithms of U (R,) for each resource and of L."""

    upper: Floats
    lower: float

    def log_price(self, share: Floats) -> Floats:
        """(..., R) the logarithm of the price where a share (..., R) of the capacity is allocated."""
        return np.asarray(self.lower + share * (self.upper - self.lower))

    @property
    def ratio(self) -> float:
        """The competitive ratio of theorem 4: 2 max_r (1, ln U^r / L)."""
        return 2.0 * max(1.0, float(np.max(self.upper) - self.lower))


def price_terms(bid: Bid, ceiling: Ceiling, demand: Floats) -> Floats:
    """(2 + R,) of one job: the logarithms of its f(T - a) / (4 D sum alpha), of D sum alpha, and of its U^r.

    D are its worker-slots; `demand` is alpha, or beta for the prices of parameter servers. A resource that it does not
    need is -inf in U.
    """
    slots = max(bid.worker_slots, 1.0)
    total = slots * float(demand.sum())
    with np.errstate(divide="ignore"):
        upper = np.where(demand > 0, np.log(bid.upper_value) - np.log(demand), -np.inf)
    if ceiling == "work":
        upper -= np.log(slots)
    return np.concatenate([[np.log(bid.lower_value) - np.log(4.0 * total), np.log(total)], upper])


def price_bounds(past: Sequence[Floats] | Floats, slots: int, capacity: float) -> PriceBounds:
    """U and L from the `price_terms` (k, 2 + R) of past jobs, for this many slots and a capacity of sum_h sum_r c_h^r.

    1 / eta is the minimum of its bound, D sum alpha / (T sum c). U is at least L, where no job needs a resource.
    """
    table = np.asarray(past, dtype=np.float64)
    eta = float(table[:, 1].min()) - np.log(slots * capacity)
    lower = float(table[:, 0].min()) + min(eta, 0.0)
    return PriceBounds(np.maximum(table[:, 2:].max(axis=0), lower), lower)


class Allocations:
    """What is allocated in each of T slots (g and v of the paper), as a working copy.

    capacity (T, H, R), ps_capacity (T, K, R): of the servers that host workers, and of those for parameter servers.
    """

    def __init__(self, capacity: Floats, ps_capacity: Floats | None = None) -> None:
        self.capacity, self.allocated = capacity, np.zeros_like(capacity)
        self.ps_capacity = np.zeros((len(capacity), 0, capacity.shape[2])) if ps_capacity is None else ps_capacity
        self.ps_allocated = np.zeros_like(self.ps_capacity)

    def offer(self, bid: Bid, bounds: PriceBounds, ps_bounds: PriceBounds | None = None) -> Schedule | None:
        """The schedule with the greatest payoff at current prices, None where there is none; not allocated yet."""
        prices, free = _prices(self.capacity, self.allocated, bounds), self.capacity - self.allocated
        if bid.parameter_servers is None or ps_bounds is None:
            return best_schedule(bid, prices, free)
        ps_prices = _prices(self.ps_capacity, self.ps_allocated, ps_bounds)
        return best_schedule(bid, prices, free, ps_prices, self.ps_capacity - self.ps_allocated)

    def add(self, bid: Bid, schedule: AdmittedSchedule) -> None:
        """Allocate the workers and the parameter servers of a job."""
        slots, servers, count = schedule.workers.T
        np.add.at(self.allocated, (slots, servers), count[:, None] * bid.demand)
        if bid.parameter_servers is not None:
            slots, servers, count = schedule.parameter_servers.T
            np.add.at(self.ps_allocated, (slots, servers), count[:, None] * bid.parameter_servers.demand)


def _prices(capacity: Floats, allocated: Floats, bounds: PriceBounds) -> Floats:
    share = np.divide(allocated, capacity, out=np.ones_like(allocated), where=capacity > 0)
    return np.exp(bounds.log_price(np.clip(share, 0.0, 1.0)))


@dataclass(frozen=True, eq=False)
class AdmittedSchedule:
    """An admitted job's workers and parameter servers as `entries`, their cost and the job's payoff."""

    workers: Ints
    parameter_servers: Ints
    cost: float
    payoff: float

    @property
    def end(self) -> int:
        """The slot of completion."""
        return int(self.workers[:, 0].max(initial=0))

    @property
    def begin(self) -> int:
        """The first slot with workers."""
        return int(self.workers[:, 0].min(initial=self.end))

    def count(self, slot: int) -> int:
        """The number of workers in this slot."""
        return int(self.workers[self.workers[:, 0] == slot, 2].sum())


@dataclass(frozen=True, eq=False)
class AdmissionPlan:
    """The admitted jobs, and the (cost, payoff) of the best schedule of each rejected one, NaN where it has none."""

    admitted: Mapping[int, AdmittedSchedule]
    rejected: Mapping[int, tuple[float, float]]

    @property
    def offers(self) -> dict[int, tuple[float, float]]:
        """The (cost, payoff) of every job."""
        return {job: (schedule.cost, schedule.payoff) for job, schedule in self.admitted.items()} | dict(self.rejected)

    def total_utility(self, bids: Mapping[int, Bid]) -> float:
        """The sum of the utilities of all admitted jobs, as planned."""
        return float(sum(bids[job].value[schedule.end] for job, schedule in self.admitted.items()))


@dataclass(frozen=True, eq=False)
class Market:
    """What the jobs bid for: a maker of empty allocations, and the price bounds of workers and parameter servers."""

    empty: Callable[[], Allocations]
    bounds: PriceBounds
    ps_bounds: PriceBounds | None = None


def admit(
    market: Market, bids: Mapping[int, Bid], kept: Mapping[int, AdmittedSchedule], order: Sequence[int]
) -> AdmissionPlan:
    """Algorithm 1: the schedules in `kept` stay; then each job of `order` is admitted if its best payoff is > 0."""
    allocations = market.empty()
    for job, schedule in kept.items():
        allocations.add(bids[job], schedule)
    admitted, rejected = dict(kept), {}
    for job in order:
        found = allocations.offer(bids[job], market.bounds, market.ps_bounds)
        if found is None:
            rejected[job] = (np.nan, np.nan)
        elif found.payoff <= 0:
            rejected[job] = (found.cost, found.payoff)
        else:
            workers, parameter_servers = entries(found.workers), entries(found.parameter_servers)
            admitted[job] = AdmittedSchedule(workers, parameter_servers, found.cost, found.payoff)
            allocations.add(bids[job], admitted[job])
    return AdmissionPlan(admitted, rejected)


def entries(count: Ints) -> Ints:
    """(k, 3) slot, server and number, of the instances (T, H), few of which are not 0."""
    when, where = count.nonzero()
    return np.stack([when, where, count[when, where]], axis=1).astype(np.int64)


def improve_plan(market: Market, bids: Mapping[int, Bid], plan: AdmissionPlan, offers: int, seed: int) -> AdmissionPlan:
    """The plan with the most utility among this one and those by other orders of all jobs, `offers` of them at most.

    The orders: by utility for work, by utility, by both, rejected jobs first; then the best order with single jobs
    moved at random by `seed`. Exact search is infeasible; in small cases this is close to the optimum
    (docs/results.md).
    """
    jobs = sorted(bids)
    tries = min(_MAX_ORDERS, offers // max(1, len(jobs)))
    if not tries or len(jobs) <= 1:
        return plan
    most = {job: float(bids[job].value.max()) for job in jobs}
    needs = {job: bids[job].worker_slots * float(bids[job].demand.max()) for job in jobs}

    def by(power: float) -> list[int]:
        return sorted(jobs, key=lambda job: (-most[job] / needs[job] ** power, job))

    orders = [by(1.0), by(0.0), by(0.5), sorted(by(1.0), key=lambda job: job in plan.admitted)]
    best, best_utility, order = plan, plan.total_utility(bids), orders[0]
    random = np.random.default_rng(seed)
    for attempt in range(tries):
        if attempt < len(orders):
            candidate = orders[attempt]
        else:
            candidate = list(order)
            moved = candidate.pop(int(random.integers(len(candidate))))
            candidate.insert(int(random.integers(len(candidate) + 1)), moved)
        found = admit(market, bids, {}, candidate)
        if found.total_utility(bids) > best_utility + 1e-9 * abs(best_utility):
            best, best_utility = found, found.total_utility(bids)
            order = [*found.admitted, *found.rejected]
    return best

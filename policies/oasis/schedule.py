"""Algorithm 2: the schedule of one job with the least cost, for every slot that it might end in (section IV-C).

In a slot the cheapest servers come first. Over the slots up to an end, workers that contribute equally are bought one
by one, the cheapest first, which is exact. With parameter servers, a minimum number of workers, or progress that is not
linear in the workers, a dynamic programme over the work decides how much of it each slot does. Either is one forward
pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from policies.oasis.bids import Bid
from predictors.arrays import Floats, Ints

CostsByEnd: TypeAlias = tuple[Floats, Callable[[int], Ints]]
"""(T,) the least cost of an end in each slot, and a function from an end to the workers (T,) of its schedule."""

_MAX_PARTS = 400
"""parts that the dynamic programme divides the work into at most"""
_PARTS_PER_SLOT = 4
"""parts at most in what the fewest workers do in a slot"""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Workers (T, H) and parameter servers (T, K) by slot, their cost, the job's payoff, the slot of completion."""

    workers: Ints
    parameter_servers: Ints
    cost: float
    payoff: float
    end: int


def best_schedule(
    bid: Bid, prices: Floats, free: Floats, ps_prices: Floats | None = None, ps_free: Floats | None = None
) -> Schedule | None:
    """The schedule with the greatest payoff at these prices; None where the work cannot be done within T slots.

    prices, free: (T, H, R), the price of a unit of each resource and the free capacity of the servers that host
    workers. ps_prices, ps_free: (T, K, R), the same of those that host parameter servers.

    Raises:
        ValueError: the job has parameter servers and their prices are missing
    """
    each, order, room = _cheapest_servers(prices, np.where(bid.hosts[:, None], free, 0.0), bid.demand)
    share = np.ones(len(each))
    share[0] = bid.slot_left
    bought = _instance_prices(each, order, room, bid.max_workers) * share[:, None]
    if bid.parameter_servers is not None:
        if ps_prices is None or ps_free is None:
            raise ValueError("a job with parameter servers needs the prices of those that host them")
        ps_each, ps_order, ps_room = _cheapest_servers(ps_prices, ps_free, bid.parameter_servers.demand)
        per_worker = bid.parameter_servers.per_worker
        needed = np.ceil(np.arange(bid.max_workers + 1) * per_worker - 1e-9).astype(np.int64)
        paid = _totals(_instance_prices(ps_each, ps_order, ps_room, int(needed.max()))) * share[:, None]
        cost = _totals(bought) + paid[:, needed]
        cost[:, needed > np.arange(bid.max_workers + 1)] = np.inf  # (7): no more parameter servers than workers
    else:
        cost = _totals(bought)
    if bid.linear:
        costs, workers_to = _greedy(bid, bought, share)
    else:
        cost[:, 1 : bid.min_workers] = np.inf
        costs, workers_to = _dynamic_programme(bid, cost, share)
    with np.errstate(invalid="ignore"):
        payoff = np.where(np.isfinite(costs), bid.value - costs, -np.inf)
    end = int(np.argmax(payoff))
    if not np.isfinite(payoff[end]):
        return None
    workers = workers_to(end)
    servers = np.zeros((len(prices), 0 if ps_prices is None else ps_prices.shape[1]), dtype=np.int64)
    if bid.parameter_servers is not None:
        servers = _distribute(ps_order, ps_room, needed[workers])
    return Schedule(_distribute(order, room, workers), servers, float(costs[end]), float(payoff[end]), end)


def _cheapest_servers(prices: Floats, free: Floats, demand: Floats) -> tuple[Floats, Ints, Ints]:
    """(T, H) in each slot, the cheapest server first: the price of one instance on it, the server, its room.

    `free` may be negative, where jobs without a bid took capacity that was planned: then there is no room.
    """
    some = demand > 0
    with np.errstate(invalid="ignore"):
        room = np.floor((free[:, :, some] / demand[some]).min(axis=2) + 1e-9).clip(min=0.0).astype(np.int64)
    price = prices @ demand
    order = np.argsort(np.where(room > 0, price, np.inf), axis=1, kind="stable")
    return np.take_along_axis(price, order, 1), order, np.take_along_axis(room, order, 1)


def _instance_prices(each: Floats, order: Ints, room: Ints, most: int) -> Floats:
    """(T, most) the price of the first, second, .. instance in each slot; inf beyond the room."""
    slots, hosts = order.shape
    count = np.minimum(room, most)
    upto = np.cumsum(count, axis=1)
    wanted = np.arange(most)
    offset = (np.arange(slots) * (upto[:, -1].max(initial=0) + most + 1))[:, None]
    at = np.searchsorted((upto + offset).ravel(), (wanted + offset).ravel(), side="right").reshape(slots, most)
    column = np.clip(at - np.arange(slots)[:, None] * hosts, 0, hosts - 1)
    price = np.take_along_axis(each, column, 1)
    return np.where(wanted < upto[:, -1:], price, np.inf)


def _totals(bought: Floats) -> Floats:
    return np.concatenate([np.zeros((len(bought), 1)), np.cumsum(bought, axis=1)], axis=1)


def _distribute(order: Ints, room: Ints, count: Ints) -> Ints:
    """(T, H) `count` (T,) instances distributed over the servers, the cheapest first."""
    before = np.cumsum(room, axis=1) - room
    taken = np.clip(count[:, None] - before, 0, room)
    out = np.zeros_like(taken)
    np.put_along_axis(out, order, taken, 1)
    return out


def _greedy(bid: Bid, bought: Floats, share: Floats) -> CostsByEnd:
    """For each end the cost of the cheapest worker-slots that do the work, where progress is linear in the workers.

    A worker of the present slot does `share` of a slot's work at that share of the price. The search ends where even
    the price of the cheapest worker-slot for all the work could not give a greater payoff.
    """
    slots = len(bought)
    need = bid.work / bid.progress[1] - 1e-9
    rates = np.where(share[:, None] > 0, bought / np.maximum(share[:, None], 1e-12), np.inf)
    least, counts = rates[:, 0], np.isfinite(rates).sum(axis=1)
    costs, best = np.full(slots, np.inf), -np.inf
    cheapest = need * float(least.min(initial=np.inf))
    dearest, cost = np.inf, np.inf
    rate, does = np.zeros(0), np.zeros(0)
    for t in np.flatnonzero(counts).tolist():
        if bid.value[t] - cheapest <= best:
            break
        if least[t] < dearest:
            rate = np.concatenate([rate, rates[t, : counts[t]]])
            does = np.concatenate([does, np.full(counts[t], share[t])])
            by_price = rate.argsort(kind="stable")
            rate, does = rate[by_price], does[by_price]
            count = int(does.cumsum().searchsorted(need)) + 1
            if count <= len(rate):
                rate, does = rate[:count], does[:count]
                dearest, cost = float(rate[-1]), float(rate @ does)
        costs[t] = cost
        best = max(best, bid.value[t] - cost)

    def workers_to(end: int) -> Ints:
        order = np.argsort(rates[: end + 1].ravel(), kind="stable")
        upto = np.cumsum(np.repeat(share[: end + 1], bought.shape[1])[order])
        chosen = order[: int(np.searchsorted(upto, need)) + 1]
        return np.bincount(chosen // bought.shape[1], minlength=slots)

    return costs, workers_to


def _dynamic_programme(bid: Bid, cost: Floats, share: Floats) -> CostsByEnd:
    """As `_greedy`, for any bid, over parts of the work: cost(t, D) = min_d COST_t(t, d) + cost(t - 1, D - d).

    cost (T, N + 1): of so many workers, and their parameter servers, in each slot.
    """
    slots = len(cost)
    part = max(bid.work / _MAX_PARTS, bid.progress[max(bid.min_workers, 1)] / _PARTS_PER_SLOT)
    parts = int(np.ceil(bid.work / part - 1e-9))
    paid = np.full(parts + 1, np.inf)
    paid[0] = 0.0
    choices = np.zeros((slots, parts + 1), dtype=np.int64)
    costs = np.full(slots, np.inf)
    steps = np.zeros((slots, cost.shape[1]), dtype=np.int64)
    total = np.arange(parts + 1)[:, None]
    known: dict[float, Ints] = {}
    for t in range(slots):
        steps[t] = np.floor(bid.progress * share[t] / part + 1e-9).astype(np.int64)
        if share[t] not in known:
            known[share[t]] = np.maximum(total - steps[t], 0)
        options = paid[known[share[t]]] + cost[t]
        choices[t] = options.argmin(axis=1)
        paid = options[np.arange(parts + 1), choices[t]]
        costs[t] = paid[parts]

    def workers_to(end: int) -> Ints:
        count = np.zeros(slots, dtype=np.int64)
        left = parts
        for t in range(end, -1, -1):
            count[t] = choices[t, left]
            left = max(left - int(steps[t, count[t]]), 0)
        return count

    return costs, workers_to

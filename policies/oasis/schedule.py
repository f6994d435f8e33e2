"""Algorithm 2: when and where one job's workers cost least, for every slot that it might end in (section IV-C).

In a slot the cheapest servers come first. Over the slots up to an end, workers that all do as much are bought one by
one, the cheapest first, which is exact; with parameter servers, a least number of workers or a rate that falls with
their number, a dynamic programme over the work decides how much of it each slot does. Either is one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from policies.oasis.bid import Bid, Schedule
from predictors.arrays import Floats, Ints

Found: TypeAlias = tuple[Floats, Callable[[int], Ints]]
"""(T,) the least cost of an end in each slot, and of an end the workers (T,) that it takes."""

_UNITS = 400
"""parts that the work is cut into at most, where the dynamic programme spreads it"""
_FINEST = 4
"""parts of what the fewest workers do in a slot"""


def best_schedule(
    bid: Bid, prices: Floats, free: Floats, server_prices: Floats | None = None, server_free: Floats | None = None
) -> Schedule | None:
    """The schedule with the greatest payoff at these prices; None where the work cannot be done in time.

    prices, free: (T, H, R), of a unit of each resource and what is left of it; of the servers that host workers, and
    (T, K, R) of those that host parameter servers.
    """
    each, order, room = _offers(prices, np.where(bid.hosts[:, None], free, 0.0), bid.demand)
    share = np.ones(len(each))
    share[0] = bid.first
    bought = _bought(each, order, room, bid.workers) * share[:, None]
    if bid.servers is not None:
        if server_prices is None or server_free is None:
            raise ValueError("a job with parameter servers needs the prices of those that host them")
        beside, where, there = _offers(server_prices, server_free, bid.servers.demand)
        needed = np.ceil(np.arange(bid.workers + 1) * bid.servers.each - 1e-9).astype(np.int64)
        paid = _totals(_bought(beside, where, there, int(needed.max()))) * share[:, None]
        cost = _totals(bought) + paid[:, needed]
        cost[:, needed > np.arange(bid.workers + 1)] = np.inf  # (7): no more parameter servers than workers
    else:
        cost = _totals(bought)
    if bid.proportional:
        costs, workers_to = _cheapest(bid, bought, share)
    else:
        cost[:, 1 : bid.least] = np.inf
        costs, workers_to = _programme(bid, cost, share)
    with np.errstate(invalid="ignore"):
        payoff = np.where(np.isfinite(costs), bid.value - costs, -np.inf)
    end = int(np.argmax(payoff))
    if not np.isfinite(payoff[end]):
        return None
    workers = workers_to(end)
    servers = np.zeros((len(prices), 0 if server_prices is None else server_prices.shape[1]), dtype=np.int64)
    if bid.servers is not None:
        servers = _spread(where, there, needed[workers])
    return Schedule(_spread(order, room, workers), servers, float(costs[end]), float(payoff[end]), end)


def _offers(prices: Floats, free: Floats, demand: Floats) -> tuple[Floats, Ints, Ints]:
    """(T, H) of each slot, the cheapest server first: the price of one instance there, the server, its room.

    Less than nothing may be free, where who does not bid came between a plan and its slot: that is no room.
    """
    some = demand > 0
    with np.errstate(invalid="ignore"):
        room = np.floor((free[:, :, some] / demand[some]).min(axis=2) + 1e-9).clip(min=0.0).astype(np.int64)
    price = prices @ demand
    order = np.argsort(np.where(room > 0, price, np.inf), axis=1, kind="stable")
    return np.take_along_axis(price, order, 1), order, np.take_along_axis(room, order, 1)


def _bought(each: Floats, order: Ints, room: Ints, most: int) -> Floats:
    """(T, most) the price of the first, second, .. instance of each slot; inf beyond the room."""
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


def _spread(order: Ints, room: Ints, count: Ints) -> Ints:
    """(T, H) so many (T,) instances on the servers, the cheapest first."""
    before = np.cumsum(room, axis=1) - room
    taken = np.clip(count[:, None] - before, 0, room)
    out = np.zeros_like(taken)
    np.put_along_axis(out, order, taken, 1)
    return out


def _cheapest(bid: Bid, bought: Floats, share: Floats) -> Found:
    """For each end the cost of the cheapest worker-slots that do the work, and which slots' workers these are.

    A worker of the present slot does `share` of a slot's work for as much of its price. Ends that cannot pay more than
    the best so far, were all the work as cheap as the cheapest worker-slot, are not looked at.
    """
    slots = len(bought)
    need = bid.work / bid.done[1] - 1e-9
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


def _programme(bid: Bid, cost: Floats, share: Floats) -> Found:
    """The same by dynamic programming over parts of the work: cost(t, D) = min_d COST_t(t, d) + cost(t - 1, D - d)."""
    slots = len(cost)
    part = max(bid.work / _UNITS, bid.done[max(bid.least, 1)] / _FINEST)
    units = int(np.ceil(bid.work / part - 1e-9))
    paid = np.full(units + 1, np.inf)
    paid[0] = 0.0
    choices = np.zeros((slots, units + 1), dtype=np.int64)
    costs = np.full(slots, np.inf)
    steps = np.zeros((slots, cost.shape[1]), dtype=np.int64)
    total = np.arange(units + 1)[:, None]
    known: dict[float, Ints] = {}
    for t in range(slots):
        steps[t] = np.floor(bid.done * share[t] / part + 1e-9).astype(np.int64)
        if share[t] not in known:
            known[share[t]] = np.maximum(total - steps[t], 0)
        options = paid[known[share[t]]] + cost[t]
        choices[t] = options.argmin(axis=1)
        paid = options[np.arange(units + 1), choices[t]]
        costs[t] = paid[units]

    def workers_to(end: int) -> Ints:
        count = np.zeros(slots, dtype=np.int64)
        left = units
        for t in range(end, -1, -1):
            count[t] = choices[t, left]
            left = max(left - int(steps[t, count[t]]), 0)
        return count

    return costs, workers_to

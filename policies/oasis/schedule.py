"""Algorithm 2: the schedule of one job with the least cost, for every slot that it might end in (section IV-C).

In a slot the cheapest servers come first. Over the slots up to an end, workers that contribute equally are bought one
by one, the cheapest first, which is exact. With parameter servers, a minimum number of workers, or progress that is not
linear in the workers, a dynamic programme decides how many work in each slot. Either is one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policies.oasis.bids import Bid
from predictors.arrays import Floats, Ints

_MAX_LABELS = 400
"""labels that the dynamic programme keeps after a slot"""


class CostsByEnd(NamedTuple):
    """The least cost of an end in each slot (T,), inf where none or none of the greatest payoff is known.

    workers_to: from an end to the workers (T,) of its schedule. bound_of: from an end to the factor, at least 1, by
    which its cost may exceed the least one.
    """

    costs: Floats
    workers_to: Callable[[int], Ints]
    bound_of: Callable[[int], float] = lambda end: 1.0  # noqa: ARG005


@dataclass(frozen=True, eq=False)
class Schedule:
    """Workers (T, H) and parameter servers (T, K) by slot, their cost, the job's payoff, the slot of completion.

    The cost is at most `bound` times that of the cheapest schedule with this end; 1 where it is the cheapest.
    """

    workers: Ints
    parameter_servers: Ints
    cost: float
    payoff: float
    end: int
    bound: float = 1.0


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
        by_end = _greedy(bid, bought, share)
    else:
        cost[:, 1 : bid.min_workers] = np.inf
        by_end = _dynamic_programme(bid, cost, share)
    with np.errstate(invalid="ignore"):
        payoff = np.where(np.isfinite(by_end.costs), bid.value - by_end.costs, -np.inf)
    end = int(np.argmax(payoff))
    if not np.isfinite(payoff[end]):
        return None
    workers = by_end.workers_to(end)
    servers = np.zeros((len(prices), 0 if ps_prices is None else ps_prices.shape[1]), dtype=np.int64)
    if bid.parameter_servers is not None:
        servers = _distribute(ps_order, ps_room, needed[workers])
    return Schedule(
        _distribute(order, room, workers),
        servers,
        float(by_end.costs[end]),
        float(payoff[end]),
        end,
        by_end.bound_of(end),
    )


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

    bought (T, N): the price of the first, second, .. worker in each slot. A worker of the present slot does `share[0]`
    of a slot's work, so that for each number of them the rest is bought from later slots, the cheapest first. The
    search ends where even the price of the cheapest worker-slot for all the work could not give a greater payoff.
    """
    slots = len(bought)
    need = bid.work / bid.progress[1]
    now = _totals(bought[:1])[0]
    later = np.ceil(need - share[0] * np.arange(len(now)) - 1e-9).clip(min=0.0).astype(np.int64)
    least = np.where(share > 0, bought[:, 0] / np.maximum(share, 1e-12), np.inf)
    cheapest = need * float(least.min(initial=np.inf))
    counts = np.isfinite(bought).sum(axis=1)
    costs, best = np.full(slots, np.inf), -np.inf
    prices = np.zeros(0)
    for t in range(slots):
        if bid.value[t] - cheapest <= best:
            break
        if t and counts[t] and (len(prices) < later[0] or bought[t, 0] < prices[-1]):
            prices = np.sort(np.concatenate([prices, bought[t, : counts[t]]]), kind="stable")[: later[0]]
        costs[t] = _with_later(now, later, prices).min()
        best = max(best, bid.value[t] - costs[t])

    def workers_to(end: int) -> Ints:
        order = np.argsort(bought[1 : end + 1].ravel(), kind="stable")
        present = int(np.argmin(_with_later(now, later, bought[1 : end + 1].ravel()[order])))
        chosen = order[: later[present]]
        workers = np.bincount(chosen // bought.shape[1] + 1, minlength=slots)
        workers[0] = present
        return workers

    return CostsByEnd(costs, workers_to)


def _with_later(now: Floats, later: Ints, prices: Floats) -> Floats:
    """(N + 1,) the cost of 0, 1, .. workers in the present slot and of as many `later` worker-slots as they leave.

    prices (m,): of the later worker-slots, ascending; inf where there are not enough.
    """
    totals = np.append(np.concatenate([[0.0], np.cumsum(prices)]), np.inf)
    return np.asarray(now + totals[np.minimum(later, len(prices) + 1)])


def _dynamic_programme(bid: Bid, cost: Floats, share: Floats) -> CostsByEnd:
    """As `_greedy`, for any bid, by labels: pairs of work done and its cost that no other pair dominates.

    cost (T, N + 1): of so many workers, and their parameter servers, in each slot. Work is not rounded, so the result
    is exact up to `_MAX_LABELS` labels. Beyond, of labels whose costs differ by a factor of at most 1 + delta the one
    that did the most work is kept: then a cost is at most the product of these factors times the least one, and no end
    that can be reached is lost (the trimming of Ibarra and Kim, J. ACM 22, 1975). Labels that cannot lead to a greater
    payoff than one found already are dropped.
    """
    slots = len(cost)
    done, paid = np.zeros(1), np.zeros(1)
    costs, best, trims = np.full(slots, np.inf), -np.inf, 1.0
    most_value = np.maximum.accumulate(bid.value[::-1])[::-1]
    least_rate = _least_rate_after(bid, cost, share)
    parents: list[Ints] = []
    for t in range(slots):
        work = np.minimum(done[:, None] + bid.progress * share[t], bid.work).ravel()
        price = (paid[:, None] + cost[t]).ravel()
        with np.errstate(invalid="ignore"):  # nothing left to do, and nothing left to buy
            after = np.where(work < bid.work, (bid.work - work) * least_rate[t], 0.0)
        kept = np.flatnonzero(most_value[t] - price - after > best)
        if not len(kept):
            break
        kept = kept[np.lexsort((-work[kept], price[kept]))]
        most_before = np.concatenate([[-1.0], np.maximum.accumulate(work[kept])[:-1]])
        kept = kept[work[kept] > most_before]
        if len(kept) > _MAX_LABELS:
            trimmed, factor = _trimmed(price[kept])
            kept, trims = kept[trimmed], trims * factor
        parents.append(kept)
        done, paid = work[kept], price[kept]
        if done[-1] >= bid.work - 1e-9:
            costs[t] = paid[np.searchsorted(done, bid.work - 1e-9)]
            best = max(best, bid.value[t] - costs[t])

    options = cost.shape[1]

    def workers_to(end: int) -> Ints:
        workers = np.zeros(slots, dtype=np.int64)
        label = int(np.searchsorted(_done_at(bid, parents, share, end), bid.work - 1e-9))
        for t in range(end, -1, -1):
            label, workers[t] = divmod(int(parents[t][label]), options)
        return workers

    def bound_of(end: int) -> float:
        return 1.0 if trims == 1.0 else min(trims, float(costs[end]) / _least_cost(bid, cost, share, end))

    return CostsByEnd(costs, workers_to, bound_of)


def _least_rate_after(bid: Bid, cost: Floats, share: Floats) -> Floats:
    """(T,) the least price of a unit of work in the slots after each; inf where none is for sale."""
    work = np.outer(share, bid.progress[1:])
    rates = np.divide(cost[:, 1:], work, out=np.full(work.shape, np.inf), where=work > 0).min(axis=1)
    return np.append(np.minimum.accumulate(rates[::-1])[::-1][1:], np.inf)


def _least_cost(bid: Bid, cost: Floats, share: Floats, end: int) -> float:
    """A lower bound of the cost of an end: as if a slot's workers could be bought in fractions, on the convex hull."""
    rates, works = [], []
    for t in range(end + 1):
        work, price = bid.progress * share[t], cost[t]
        at = 0
        while len(further := at + 1 + np.flatnonzero(np.isfinite(price[at + 1 :]) & (work[at + 1 :] > work[at]))):
            slopes = (price[further] - price[at]) / (work[further] - work[at])
            to = int(further[len(slopes) - 1 - np.argmin(slopes[::-1])])
            rates.append(float(slopes.min()))
            works.append(float(work[to] - work[at]))
            at = to
    order = np.argsort(rates, kind="stable")
    rate, done = np.array(rates)[order], np.cumsum(np.array(works)[order])
    bought = np.diff(np.minimum(done, bid.work), prepend=0.0)
    return float(rate @ bought)


def _done_at(bid: Bid, parents: list[Ints], share: Floats, end: int) -> Floats:
    """(labels,) the work done by the end of a slot."""
    done = np.zeros(1)
    for t in range(end + 1):
        before, workers = np.divmod(parents[t], len(bid.progress))
        done = np.minimum(done[before] + bid.progress[workers] * share[t], bid.work)
    return done


def _trimmed(price: Floats) -> tuple[Ints, float]:
    """Indices of at most `_MAX_LABELS` labels, of prices that rise, and the factor by which a price rose at most.

    Of the labels of a class of prices that differ by that factor the last is kept.
    """
    delta = 1e-6
    while True:
        with np.errstate(divide="ignore"):
            classes = np.floor(np.log(price) / np.log1p(delta))  # -inf, a class of its own, for what costs nothing
        last = np.flatnonzero(np.append(classes[1:] != classes[:-1], True))
        if len(last) <= _MAX_LABELS:
            return last, 1.0 + delta
        delta *= 2

"""Who is admitted and when each runs: Algorithm 1 job by job, and the plan made anew where jobs contend.

OASiS never takes an admission back. A queue can: a job that was admitted and has not ended may wait again for one that
is worth more. So where jobs contend, all of them are also planned in other orders on an empty book, and the plan with
the most utility stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.oasis.bid import Bid
from policies.oasis.book import Book
from policies.oasis.prices import Bounds
from predictors.arrays import Ints

_TRIES = 60
"""orders that are tried at most"""


@dataclass(frozen=True, eq=False)
class Decided:
    """What a job has that is admitted: `entries` of its workers and parameter servers, their cost and its payoff."""

    workers: Ints
    servers: Ints
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
        """Workers in this slot."""
        return int(self.workers[self.workers[:, 0] == slot, 2].sum())


@dataclass(frozen=True, eq=False)
class Planned:
    """The jobs that are admitted, and of those that are not the (cost, payoff) of their best schedule, NaN for none."""

    admitted: Mapping[int, Decided]
    rejected: Mapping[int, tuple[float, float]]

    @property
    def offers(self) -> dict[int, tuple[float, float]]:
        """Of every job (cost, payoff)."""
        return {job: (decided.cost, decided.payoff) for job, decided in self.admitted.items()} | dict(self.rejected)

    def worth(self, bids: Mapping[int, Bid]) -> float:
        """The utility of all of them, as planned."""
        return float(sum(bids[job].value[decided.end] for job, decided in self.admitted.items()))


@dataclass(frozen=True, eq=False)
class Market:
    """What jobs are offered: an empty book, and the bounds of its prices."""

    empty: Callable[[], Book]
    bounds: Bounds
    beside: Bounds | None = None


def admit(market: Market, bids: Mapping[int, Bid], standing: Mapping[int, Decided], order: Sequence[int]) -> Planned:
    """Algorithm 1: what stands stands; the jobs of `order` come one after the other, and stay out where no schedule
    pays."""
    book = market.empty()
    for job, decided in standing.items():
        _enter(book, bids[job], decided)
    admitted, rejected = dict(standing), {}
    for job in order:
        found = book.offer(bids[job], market.bounds, market.beside)
        if found is None:
            rejected[job] = (np.nan, np.nan)
        elif found.payoff <= 0:
            rejected[job] = (found.cost, found.payoff)
        else:
            workers, beside = entries(found.workers), entries(found.servers)
            admitted[job] = Decided(workers, beside, found.cost, found.payoff)
            _enter(book, bids[job], admitted[job])
    return Planned(admitted, rejected)


def _enter(book: Book, bid: Bid, decided: Decided) -> None:
    book.take(bid.demand, decided.workers)
    if bid.servers is not None:
        book.take_beside(bid.servers.demand, decided.servers)


def entries(count: Ints) -> Ints:
    """(k, 3) slot, server and number, of instances (T, H): a job is in few slots, and on few servers."""
    when, where = count.nonzero()
    return np.stack([when, where, count[when, where]], axis=1).astype(np.int64)


def revised(market: Market, bids: Mapping[int, Bid], plan: Planned, offers: int, seed: int) -> Planned:
    """The plan with the most utility among this one and those by other orders of all jobs, `offers` of them at most.

    By utility for work, by utility, by both, those left out first; then the best order with single jobs moved, at
    random by `seed`. Exact search is hopeless; in small cases this comes close to the optimum (docs/results.md).
    """
    jobs = sorted(bids)
    tries = min(_TRIES, offers // max(1, len(jobs)))
    if not tries or len(jobs) <= 1:
        return plan
    most = {job: float(bids[job].value.max()) for job in jobs}
    needs = {job: bids[job].worker_slots * float(bids[job].demand.max()) for job in jobs}

    def by(power: float) -> list[int]:
        return sorted(jobs, key=lambda job: (-most[job] / needs[job] ** power, job))

    orders = [by(1.0), by(0.0), by(0.5), sorted(by(1.0), key=lambda job: job in plan.admitted)]
    best, worth, order = plan, plan.worth(bids), orders[0]
    random = np.random.default_rng(seed)
    for attempt in range(tries):
        if attempt < len(orders):
            candidate = orders[attempt]
        else:
            candidate = list(order)
            moved = candidate.pop(int(random.integers(len(candidate))))
            candidate.insert(int(random.integers(len(candidate) + 1)), moved)
        found = admit(market, bids, {}, candidate)
        if found.worth(bids) > worth + 1e-9 * abs(worth):
            best, worth = found, found.worth(bids)
            order = [*found.admitted, *found.rejected]
    return best

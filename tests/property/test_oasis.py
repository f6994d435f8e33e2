"""What must hold of OASiS' schedules and prices in every case, against all schedules that there are."""

from dataclasses import replace
from itertools import product
from typing import Literal
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from policies.oasis import schedule
from policies.oasis.admission import PriceBounds, price_bounds, price_terms
from policies.oasis.bids import Bid, ParameterServers, utility
from policies.oasis.schedule import best_schedule


@st.composite
def offers(draw: st.DrawFn, slots: int = 3, hosts: int = 2) -> tuple[Bid, np.ndarray, np.ndarray]:
    """Prices and room of two servers over three slots, of two resources, and a job's bid for them.

    The present slot may be partly over, and more workers may add less and less progress.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    prices = random.random((slots, hosts, 2))
    free = random.integers(0, 4, (slots, hosts, 2)).astype(float)
    most = draw(st.integers(1, 4))
    value = -np.sort(-random.random(slots)) * 8
    bid = Bid(
        work=float(draw(st.integers(1, 8))),
        progress=np.arange(most + 1.0) ** draw(st.sampled_from([1.0, 1.0, 0.9, 0.5])),
        value=value,
        demand=np.array([1.0, draw(st.sampled_from([0.0, 0.5, 1.0]))]),
        hosts=np.array([True, draw(st.booleans())]),
        upper_value=1.0,
        lower_value=0.1,
        min_workers=draw(st.integers(1, most)),
        slot_left=draw(st.sampled_from([1.0, 1.0, 0.75, 0.3, 0.01])),
    )
    return bid, prices, free


def slot_shares(bid: Bid, slots: int) -> np.ndarray:
    """(T,) the share of each slot that is left."""
    return np.array([bid.slot_left, *[1.0] * (slots - 1)])


def all_schedules(bid: Bid, prices: np.ndarray, free: np.ndarray) -> float:
    """The greatest payoff, by looking at every number of workers on every server in every slot."""
    slots, hosts, _ = free.shape
    share = slot_shares(bid, slots)
    choices = []
    for t in range(slots):
        here = []
        for count in product(range(bid.max_workers + 1), repeat=hosts):
            total = sum(count)
            fits = all(np.all(n * bid.demand <= free[t, h] + 1e-9) and (n == 0 or bid.hosts[h]) for h, n in enumerate(count))  # fmt: skip  # noqa: E501
            if fits and (total == 0 or bid.min_workers <= total <= bid.max_workers):
                cost = share[t] * sum(n * float(prices[t, h] @ bid.demand) for h, n in enumerate(count))
                here.append((total, cost))
        choices.append(here)
    best = -np.inf
    for picked in product(*choices):
        done = np.cumsum(share * np.array([bid.progress[total] for total, _ in picked]))
        if done[-1] >= bid.work - 1e-9:
            end = int(np.flatnonzero(done >= bid.work - 1e-9)[0])
            best = max(best, bid.value[end] - sum(cost for _, cost in picked))
    return best


@settings(max_examples=150)
@given(offers())
def test_no_schedule_has_a_greater_payoff_than_the_one_found(offer: tuple[Bid, np.ndarray, np.ndarray]) -> None:
    bid, prices, free = offer
    found = best_schedule(bid, prices, free)
    best = all_schedules(bid, prices, free)
    assert (found is None) == np.isneginf(best)
    if found is not None:
        assert np.isclose(found.payoff, best)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0]))
def test_with_few_labels_a_schedule_costs_at_most_its_bound_more_and_no_end_is_lost(
    seed: int, slot_left: float
) -> None:
    random = np.random.default_rng(seed)
    slots, most = 12, 8
    bid = Bid(
        work=float(random.uniform(5, 40)),
        progress=np.arange(most + 1.0) ** 0.7,
        value=np.full(slots, 1e3),
        demand=np.ones(1),
        hosts=np.ones(1, dtype=bool),
        upper_value=1.0,
        lower_value=0.1,
        min_workers=int(random.integers(1, 4)),
        slot_left=slot_left,
    )
    prices = random.lognormal(0.0, 2.0, (slots, 1, 1)) * (random.random((slots, 1, 1)) < 0.9)
    free = random.integers(0, most + 1, (slots, 1, 1)).astype(float)
    with patch.object(schedule, "_MAX_LABELS", 20):
        trimmed = best_schedule(bid, prices, free)
    at_that_end = np.full(slots, -1e6)
    if trimmed is not None:
        at_that_end[trimmed.end] = 1e3
    with patch.object(schedule, "_MAX_LABELS", 100_000):
        exact = best_schedule(replace(bid, value=at_that_end), prices, free)
    assert (exact is None) == (trimmed is None)
    if exact is not None and trimmed is not None:
        assert exact.bound == 1.0
        assert exact.end == trimmed.end
        assert exact.cost - 1e-9 <= trimmed.cost <= trimmed.bound * exact.cost + 1e-9


@pytest.mark.parametrize("per_worker", [None, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_over_many_slots_a_schedule_costs_at_most_its_bound_more_than_the_least(
    seed: int, per_worker: float | None
) -> None:
    """Against the least cost as a solver finds it, of the numbers of workers in each slot up to the same end."""
    random = np.random.default_rng(seed)
    slots, most = int(random.integers(20, 50)), int(random.integers(4, 13))
    progress = np.arange(most + 1.0) ** random.choice([0.5, 0.7, 0.9])
    bid = Bid(
        work=float(random.uniform(5, 0.3 * slots * progress[-1])),
        progress=progress,
        value=np.full(slots, 1e4),
        demand=np.ones(1),
        hosts=np.ones(1, dtype=bool),
        upper_value=1.0,
        lower_value=0.1,
        min_workers=int(random.integers(1, 4)),
        slot_left=float(random.choice([1.0, 0.4])),
        parameter_servers=None if per_worker is None else ParameterServers(np.ones(1), per_worker),
    )
    prices, ps_prices = np.exp(random.uniform(-6, 2, (2, slots, 1, 1)))
    free, ps_free = random.integers(most // 2, most + 1, (2, slots, 1, 1)).astype(float)
    found = best_schedule(bid, prices, free, ps_prices, ps_free)
    assert found is not None
    each = [np.stack([price.ravel(), room.ravel()]) for price, room in ((prices, free), (ps_prices, ps_free))]
    least = least_cost(bid, each[0], each[1], found.end)
    assert least * (1 - 1e-6) <= found.cost <= min(found.bound, 1.1) * least * (1 + 1e-6)


def least_cost(bid: Bid, for_workers: np.ndarray, for_servers: np.ndarray, end: int) -> float:
    """The least cost of the job's work by an end, on one host for workers and one for parameter servers, each (2, T)
    with its prices and its room."""
    share, columns = slot_shares(bid, end + 1), []
    for t, workers in product(range(end + 1), range(bid.min_workers, bid.max_workers + 1)):
        servers = 0 if bid.parameter_servers is None else int(np.ceil(workers * bid.parameter_servers.per_worker))
        if workers <= for_workers[1, t] and servers <= for_servers[1, t]:
            cost = workers * for_workers[0, t] + servers * for_servers[0, t]
            columns.append((t, share[t] * cost, share[t] * bid.progress[workers]))
    slot, cost, work = np.array(columns).T
    chosen = np.vstack([slot == np.arange(end + 1)[:, None], work])
    limits = LinearConstraint(chosen, [*[0.0] * (end + 1), bid.work - 1e-9], [*[1.0] * (end + 1), np.inf])
    solved = milp(cost, constraints=limits, integrality=np.ones(len(cost), dtype=int), bounds=Bounds(0, 1), options={"mip_rel_gap": 1e-7})  # fmt: skip  # noqa: E501
    assert solved.success
    return float(solved.fun)


@given(offers())
def test_a_schedule_does_the_work_within_the_room_and_on_hosts_that_may(
    offer: tuple[Bid, np.ndarray, np.ndarray],
) -> None:
    bid, prices, free = offer
    found = best_schedule(bid, prices, free)
    if found is None:
        return
    count = found.workers.sum(axis=1)
    share = slot_shares(bid, len(count))
    assert share @ bid.progress[count] >= bid.work - 1e-9
    assert np.all(count[found.end + 1 :] == 0)
    assert np.all((count == 0) | ((count >= bid.min_workers) & (count <= bid.max_workers)))
    assert np.all(found.workers[:, ~bid.hosts] == 0)
    assert np.all(found.workers[:, :, None] * bid.demand <= free + 1e-9)
    paid = (share[:, None, None] * found.workers[:, :, None] * bid.demand * prices).sum()
    assert np.isclose(found.cost, paid)
    assert np.isclose(found.payoff, bid.value[found.end] - paid)


@given(offers(), st.sampled_from([0.25, 0.5, 1.0, 1.5]), st.integers(0, 2**32 - 1))
def test_parameter_servers_serve_all_workers_and_are_no_more_than_they(
    offer: tuple[Bid, np.ndarray, np.ndarray], each: float, seed: int
) -> None:
    bid, prices, free = offer
    random = np.random.default_rng(seed)
    beside, room = random.random((3, 2, 2)), random.integers(0, 4, (3, 2, 2)).astype(float)
    own = ParameterServers(np.array([0.0, 1.0]), each)
    wants = Bid(**{**vars(bid), "parameter_servers": own})
    found = best_schedule(wants, prices, free, beside, room)
    if found is None:
        return
    workers, servers = found.workers.sum(axis=1), found.parameter_servers.sum(axis=1)
    share = slot_shares(bid, len(workers))[:, None, None]
    assert np.all(servers >= workers * each - 1e-9)
    assert np.all(servers <= workers)
    assert np.all(found.parameter_servers[:, :, None] * own.demand <= room + 1e-9)
    paid = (share * found.workers[:, :, None] * bid.demand * prices).sum() + (
        share * found.parameter_servers[:, :, None] * own.demand * beside
    ).sum()
    assert np.isclose(found.cost, paid)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.sampled_from(["paper", "work"]))
def test_an_empty_cluster_admits_any_job_that_it_can_finish(
    seed: int, n: int, ceiling: Literal["paper", "work"]
) -> None:
    random = np.random.default_rng(seed)
    slots, hosts = 20, 4
    seen = []
    for _ in range(n):
        th = np.array([random.uniform(1, 100), random.choice([0.0, random.uniform(0.01, 1), random.uniform(4, 6)]), random.uniform(1, 15)])  # fmt: skip  # noqa: E501
        workers = int(random.integers(1, 9))
        work = float(random.integers(1, 8 * workers))
        value = utility(th, np.arange(slots))
        shortest = int(np.ceil(work / workers)) - 1
        bid = Bid(
            work=work,
            progress=np.arange(workers + 1.0),
            value=value,
            demand=random.uniform(0.01, 0.12, 3),
            hosts=np.ones(hosts, dtype=bool),
            upper_value=max(float(value[shortest]), 1e-3 * th[0]),
            lower_value=max(float(value[-1]), 1e-3 * th[0]),
        )
        if value[shortest] >= bid.lower_value:
            seen.append(bid)
    if not seen:
        return
    prices = price_bounds([price_terms(bid, ceiling, bid.demand) for bid in seen], slots, hosts * 3.0)
    empty = np.exp(prices.log_price(np.zeros((slots, hosts, 3))))
    for bid in seen:
        found = best_schedule(bid, empty, np.ones((slots, hosts, 3)))
        assert found is not None
        assert found.payoff > 0


@given(st.floats(-400, 0), st.floats(0, 50), st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_prices_rise_with_what_is_taken(lower: float, spread: float, shares: list[float]) -> None:
    limits = PriceBounds(np.array([lower + spread]), lower)
    low, high = sorted(shares)
    assert limits.log_price(np.array([low]))[0] <= limits.log_price(np.array([high]))[0]

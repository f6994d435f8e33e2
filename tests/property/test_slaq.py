"""What must hold of SLAQ's allocation for all worths of all units: it is the paper's heap, pop by pop."""

import heapq
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.marginal_gain.greedy import greedy_shares
from policies.marginal_gain.training_forecast import TrainingForecast


def algorithm_1(
    least: np.ndarray, most: np.ndarray, units: int, worth: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> list[int]:
    """Algorithm 1 of the paper as it is printed, with a heap; of equal jobs the first goes first."""
    count = list(least)

    def entry(job: int) -> tuple[float, int]:
        return (-float(worth(np.array([job]), np.array([[count[job]]]))[0, 0]), job)

    queue = [entry(job) for job in range(len(count)) if count[job] < most[job]]
    heapq.heapify(queue)
    while units > 0 and queue:
        _, job = heapq.heappop(queue)
        count[job] += 1
        units -= 1
        if count[job] < most[job]:
            heapq.heappush(queue, entry(job))
    return count


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """The worth of each unit of each job, up to 40 of them: any, with ties, rising and falling."""
    n = draw(st.integers(1, 6))
    worth = [draw(st.lists(st.integers(0, 5), min_size=41, max_size=41)) for _ in range(n)]
    least = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    more = draw(st.lists(st.integers(0, 36), min_size=n, max_size=n))
    falling = draw(st.booleans())
    values = np.array(worth, dtype=float)
    return np.array(least), np.array(least) + more, -np.sort(-values, axis=1) if falling else values


@given(tables(), st.integers(0, 250))
def test_one_selection_gives_what_popping_a_heap_gives(table: tuple[np.ndarray, ...], units: int) -> None:
    least, most, values = table

    def worth(some: np.ndarray, gpus: np.ndarray) -> np.ndarray:
        return np.asarray(values[some[:, None], gpus])

    assert greedy_shares(least, most, units, worth).tolist() == algorithm_1(least, most, units, worth)


@given(tables(), st.integers(0, 250), st.integers(0, 36))
def test_a_job_of_unknown_gain_takes_no_unit_from_the_others(
    table: tuple[np.ndarray, ...], units: int, known: int
) -> None:
    """The others get what they would get were the first job not to grow beyond what is known of it."""
    least, most, values = table
    values[0, least[0] + known :] = np.nan

    def worth(some: np.ndarray, gpus: np.ndarray) -> np.ndarray:
        return np.asarray(values[some[:, None], gpus])

    known_most = np.append(min(most[0], least[0] + known), most[1:])
    shares = greedy_shares(least, most, units, worth)
    assert shares[1:].tolist() == algorithm_1(least, known_most, units, worth)[1:]
    assert shares.sum() == min(most.sum(), least.sum() + units)


@given(st.integers(1, 5), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_the_total_reduction_is_the_greatest_of_all_allocations_where_more_gpus_gain_less(
    n: int, units: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    gains = -np.sort(-random.random((n, 20)), axis=1)
    least, most = np.zeros(n, dtype=int), random.integers(0, 20, n)
    given_units = greedy_shares(least, most, units, lambda some, gpus: gains[some[:, None], gpus])
    best = np.zeros(1)  # by dynamic programming: the most that the jobs so far gain from so many GPUs
    for job in range(n):
        of_job = np.append(0.0, np.cumsum(gains[job]))[: most[job] + 1]
        width = len(best) + len(of_job) - 1
        best = np.array([max(best[u - g] + of_job[g] for g in range(len(of_job)) if 0 <= u - g < len(best)) for u in range(width)])  # fmt: skip  # noqa: E501
    total = sum(gains[job, : given_units[job]].sum() for job in range(n))
    assert np.isclose(total, best[min(units, len(best) - 1)])


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_a_longer_time_and_more_gpus_never_raise_the_loss(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    outlook = TrainingForecast(
        at=random.integers(0, 50, n).astype(float),
        last=np.full(n, 200.0),
        speed_at=np.tile([1.0, 2.0, 8.0], (n, 1)),
        speed=np.sort(random.random((n, 3)), axis=1),
        pace=random.random(n),
        loss_at=np.cumsum(random.integers(1, 20, (n, 9)), axis=1).astype(float),
        losses=-np.sort(-random.random((n, 9)), axis=1),
        largest=np.ones(n),
        first=np.ones(n),
        lowest=np.zeros(n),
    )
    gpus = np.tile(np.arange(1.0, 40.0), (n, 1))
    some = np.arange(n)
    by_gpus = outlook.loss(some, gpus, np.full((n, 1), 7.0))
    by_time = outlook.loss(some, np.full_like(gpus, 3.0), 5.0 * gpus)
    assert np.all(np.diff(by_gpus, axis=1) <= 1e-12)
    assert np.all(np.diff(by_time, axis=1) <= 1e-12)

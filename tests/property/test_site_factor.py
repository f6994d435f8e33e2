"""What must hold of labels for every queue."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.rules.site_factor import assign, order

LABELS = st.one_of(st.just(np.nan), st.integers(-3, 45).map(float), st.sampled_from([0.5, 1e12, np.inf]))


@st.composite
def queues(draw: st.DrawFn, most: int = 12) -> tuple[np.ndarray, int, int]:
    """The labels in place, best first, and a spacing and a top that the queue may or may not fit."""
    in_place = draw(st.lists(LABELS, max_size=most))
    spacing = draw(st.integers(1, 6))
    top = draw(st.integers(spacing, 40))
    return np.array(in_place), spacing, top


def assigned(in_place: np.ndarray, spacing: int, top: int) -> np.ndarray:
    return assign(np.arange(len(in_place)), in_place, spacing, top)


def written(in_place: np.ndarray, new: np.ndarray) -> int:
    return int(np.sum(new != in_place))


def fewest_writes(in_place: np.ndarray, spacing: int, top: int) -> int:
    """By trying every set of labels to keep: n less the most that leave room for all others, in integers."""
    capacity = top // spacing
    ranked, rest = in_place[:capacity][::-1], in_place[capacity:]
    least = 1 if len(rest) else 0
    n = len(ranked)

    def leaves_room(kept: tuple[int, ...]) -> bool:
        at = [(-1, least - 1), *((p, ranked[p]) for p in kept), (n, top + 1)]
        return all(right - left >= q - p for (p, left), (q, right) in pairwise(at))

    whole = [p for p in range(n) if np.isfinite(ranked[p]) and ranked[p] == np.floor(ranked[p])]
    most = next(size for size in range(len(whole), -1, -1) if any(map(leaves_room, combinations(whole, size))))
    return n - most + int(np.sum(rest != 0))


@given(queues())
def test_label_order_is_the_decided_order_within_range(queue: tuple[np.ndarray, int, int]) -> None:
    in_place, spacing, top = queue
    new = assigned(in_place, spacing, top)
    capacity = top // spacing
    assert np.all(np.diff(new[:capacity]) < 0)
    assert np.all(new[capacity:] == 0)
    assert np.all((new >= 0) & (new <= top))
    if len(new) > capacity:
        assert np.all(new[:capacity] > 0)


@given(queues(most=10))
def test_writes_are_the_fewest_that_any_labelling_needs(queue: tuple[np.ndarray, int, int]) -> None:
    in_place, spacing, top = queue
    assert written(in_place, assigned(in_place, spacing, top)) == fewest_writes(in_place, spacing, top)


def by_exhaustion(in_place: np.ndarray, top: int) -> int:
    """The fewest writes over all decreasing labellings with integers in [0, top]."""
    labellings = combinations(range(top, -1, -1), len(in_place))
    return min(written(in_place, np.array(labelling)) for labelling in labellings)


@given(st.lists(st.one_of(st.just(np.nan), st.integers(0, 8).map(float)), max_size=6))
def test_no_labelling_at_all_writes_less(site_factors: list[float]) -> None:
    in_place = np.array(site_factors)
    assert written(in_place, assigned(in_place, 1, 8)) == by_exhaustion(in_place, 8)


def longest_non_decreasing(values: np.ndarray) -> int:
    """In O(n^2)."""
    best: list[int] = []
    for i, value in enumerate(values):
        best.append(1 + max((best[j] for j in range(i) if values[j] <= value), default=0))
    return max(best, default=0)


@given(st.permutations(range(40)))
def test_where_gaps_have_room_writes_are_n_less_the_longest_increasing_subsequence(ranks: list[int]) -> None:
    in_place = 1000.0 * (1 + np.array(ranks))
    new = assigned(in_place, 1000, 1_000_000)
    assert written(in_place, new) == 40 - longest_non_decreasing(in_place[::-1])


@given(queues())
def test_a_second_look_writes_nothing(queue: tuple[np.ndarray, int, int]) -> None:
    in_place, spacing, top = queue
    new = assigned(in_place, spacing, top)
    assert assigned(new.astype(float), spacing, top).tolist() == new.tolist()


@given(queues(), st.data())
def test_ended_jobs_cost_no_writes(queue: tuple[np.ndarray, int, int], data: st.DataObject) -> None:
    in_place, spacing, top = queue
    capacity = top // spacing
    site_factors = assigned(in_place[:capacity], spacing, top).astype(float)
    stay = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(site_factors), max_size=len(site_factors))), dtype=bool
    )
    still = np.flatnonzero(stay)
    assert assign(still, site_factors, spacing, top).tolist() == site_factors[still].tolist()


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, np.nan]), st.integers(0, 2), st.integers(0, 99)), max_size=12))
def test_order_is_that_of_sorting_by_rank_submission_and_id(rows: list[tuple[float, int, int]]) -> None:
    score, submitted, job_id = (np.array([row[i] for row in rows], dtype=float) for i in range(3))
    by_key = [row for row in range(len(rows)) if not np.isnan(score[row])]
    by_key.sort(key=lambda row: (-score[row], submitted[row], job_id[row]))
    assert order(score, submitted, job_id.astype(np.int64)).tolist() == by_key

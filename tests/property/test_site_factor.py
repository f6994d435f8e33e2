"""What must hold of SiteFactors for every queue: nobody without directives loses, the order is the decided one."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.snapshot import Jobs
from slurmplug.rules.site_factor import commands, order
from tests.builders import jobs, snapshot

PRIORITIES = st.integers(20, 60) | st.integers(1_000, 100_000)


@st.composite
def queues(draw: st.DrawFn, *, most: int = 12, elements: int = 3) -> tuple[Jobs, np.ndarray]:
    """Pending jobs with some SiteFactors in place, and scores, NaN of those that Slurm alone orders."""
    n = draw(st.integers(1, most))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=n, max_size=n))

    own = np.array(column(PRIORITIES), dtype=float)
    score = np.array(column(st.sampled_from([np.nan, 1.0, 2.0, 3.0, 4.0, 5.0])))
    in_place = np.array(column(st.just(0) | st.integers(-19, 2_000)), dtype=float)
    in_place = np.where(np.isnan(score), 0.0, in_place)
    counts = np.array(column(st.integers(1, elements)))
    return jobs(n, priority=own + in_place, site_factor=in_place, elements=counts), score


def written(queue: Jobs, score: np.ndarray) -> np.ndarray:
    """(n,) the priorities after the writes."""
    after = queue.priority.copy()
    for write in commands(snapshot(queue), score):
        row = write.job.job_id - 1
        after[row] += int(write.fields["SiteFactor"]) - queue.site_factor[row]
    return after


def managed_ahead(queue: Jobs, score: np.ndarray, priority: np.ndarray) -> list[int]:
    """Of each job without a score, how many jobs with one, by elements, Slurm tries before it."""
    rows = range(len(score))
    return [
        sum(
            int(queue.elements[other])
            for other in rows
            if not np.isnan(score[other]) and (-priority[other], other) < (-priority[row], row)
        )
        for row in rows
        if np.isnan(score[row])
    ]


@given(queues())
def test_nobody_without_directives_is_passed_by_more_than_without_slurmplug(queue: tuple[Jobs, np.ndarray]) -> None:
    of_jobs, score = queue
    before, after = (managed_ahead(of_jobs, score, each) for each in (of_jobs.priority, written(of_jobs, score)))
    assert all(now <= then for now, then in zip(after, before, strict=True))


@given(queues(most=16), st.data())
def test_nor_in_any_partition_whatever_the_jobs_wait_for(queue: tuple[Jobs, np.ndarray], data: st.DataObject) -> None:
    """Counted are managed jobs of the same QOS, as others are held back by other limits."""
    of_jobs, score = queue
    n = len(score)

    def column(values: list[Any]) -> np.ndarray:
        return np.array(data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)))

    partition, qos = column(["a", "b", "a,b", "b,a"]), column(["normal", "high"])
    of_jobs = replace(
        of_jobs, partition=partition, qos=qos, reason=column(["Priority", "Priority", "Resources", "Dependency"]),
        nice=column([0, 0, 0, 50, -50]),
    )  # fmt: skip
    after = written(of_jobs, score)
    for name in ("a", "b"):
        for one in ("normal", "high"):
            inside = np.array([name in each for each in partition]) & (np.isnan(score) | (qos == one))
            before, now = (_ahead_of_plain(of_jobs, score, each, inside) for each in (of_jobs.priority, after))
            assert all(passed <= then for passed, then in zip(now, before, strict=True))


def _ahead_of_plain(queue: Jobs, score: np.ndarray, priority: np.ndarray, inside: np.ndarray) -> list[int]:
    """As `managed_ahead`, among the rows that are `inside`."""
    outside = np.where(inside, priority, -np.inf)
    return [
        each
        for each, row in zip(managed_ahead(queue, score, outside), np.flatnonzero(np.isnan(score)), strict=True)
        if inside[row]
    ]


@given(queues(elements=1))
def test_where_priorities_are_apart_every_place_is_kept_and_taken_in_order(queue: tuple[Jobs, np.ndarray]) -> None:
    of_jobs, score = queue
    apart = 1_000.0 * (1 + np.argsort(np.argsort(of_jobs.priority, kind="stable")))
    placed = jobs(len(score), priority=apart, site_factor=of_jobs.site_factor)
    after = written(placed, score)
    assert managed_ahead(placed, score, after) == managed_ahead(placed, score, apart)
    best_first = order(score, placed.submitted, np.arange(len(score)))
    assert np.all(np.diff(after[best_first]) < 0)


def test_a_job_that_finds_no_place_between_two_plain_ones_draws_those_after_it_along() -> None:
    score = np.full(11, np.nan)
    score[[7, 9, 10]] = 1.0
    site_factor = np.where(np.arange(11) == 9, 1.0, 0.0)
    after = written(jobs(11, priority=20.0 + site_factor, site_factor=site_factor), score)
    assert after[7] >= after[9] >= after[10]


@given(queues())
def test_the_order_is_never_against_the_decided_one(queue: tuple[Jobs, np.ndarray]) -> None:
    of_jobs, score = queue
    after = written(of_jobs, score)
    best_first = order(score, of_jobs.submitted, np.arange(len(score)))
    assert np.all(np.diff(after[best_first]) <= 0)


@given(queues())
def test_a_second_look_writes_nothing(queue: tuple[Jobs, np.ndarray]) -> None:
    of_jobs, score = queue
    after = written(of_jobs, score)
    factors = after - (of_jobs.priority - of_jobs.site_factor)
    again = jobs(len(score), priority=after, site_factor=factors, elements=of_jobs.elements)
    assert commands(snapshot(again), score) == []


@given(queues(), st.integers(0, 1_000))
def test_what_grows_alike_for_all_costs_no_writes(queue: tuple[Jobs, np.ndarray], grown: int) -> None:
    of_jobs, score = queue
    after = written(of_jobs, score)
    factors = after - (of_jobs.priority - of_jobs.site_factor)
    later = jobs(len(score), priority=after + grown, site_factor=factors, elements=of_jobs.elements)
    assert commands(snapshot(later), score) == []


@given(queues())
def test_priorities_stay_where_slurm_tells_them_apart(queue: tuple[Jobs, np.ndarray]) -> None:
    assert written(*queue).min() >= 1


def test_while_jobs_start_one_by_one_few_site_factors_are_written() -> None:
    """Of 400 jobs the best starts, and another comes, 400 times: each is written a few times, not at every start."""
    rng = np.random.default_rng(1)
    n, writes = 400, 0
    own, score = rng.permutation(100_000)[:n].astype(float), rng.random(n)
    factors = np.zeros(n)
    for _ in range(n):
        queue = jobs(n, priority=own + factors, site_factor=factors)
        for write in commands(snapshot(queue), score):
            factors[write.job.job_id - 1] = int(write.fields["SiteFactor"])
            writes += 1
        starts = int(np.argmax(own + factors))
        own[starts], score[starts], factors[starts] = rng.integers(100_000), rng.random(), 0.0
    assert writes < 3 * n

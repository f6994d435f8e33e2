"""The forecast of a whole queue: when its jobs start and end, with intervals by the starts that came true."""

from typing import Any

import numpy as np
import pytest

from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.forecasting.starts import queue_forecast as module
from slurmplug.forecasting.starts.live_queue import LiveQueue
from slurmplug.forecasting.starts.queue_forecast import QueueForecast, queue_forecast
from slurmplug.forecasting.starts.start_outcomes import (
    FEWEST,
    NO_OUTCOMES,
    StartOutcomes,
    as_they_came,
    ends_of,
    median_and_interval,
)
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

LATE = StartOutcomes(np.full(FEWEST, 60.0), np.full(FEWEST, 200.0), np.linspace(60.0, 600.0, FEWEST))
"""Jobs that would start after a minute came after one to ten."""


def full(waiting: int, **columns: Any) -> Snapshot:
    """A node with a job that began 40 s ago, and jobs that wait."""
    count = 1 + waiting
    given = {"state": ["running"] + ["pending"] * waiting, "gpus": 4, "time_limit": 200.0, **columns}
    given["started"] = [NOW - 40.0] + [np.nan] * waiting
    given["priority"] = np.arange(count, 0, -1)
    used = np.array([[4.0, 1.0, 0.0]])
    return snapshot(jobs(count, **given), nodes(1, used=used), runs_on=np.array([[0, 0, 4]]))


def made(of: Snapshot, outcomes: StartOutcomes = NO_OUTCOMES, seconds: float = 100.0) -> QueueForecast:
    """Where each job takes so many seconds."""
    left = np.maximum(seconds - np.nan_to_num(of.now - of.jobs.started), 0.0)
    return queue_forecast(of, forecasts(len(of.jobs), total=seconds, remaining=left), outcomes, samples=3)


def test_who_waits_starts_when_those_before_have_ended_and_ends_a_run_time_later() -> None:
    found = made(full(2))
    assert found.at == NOW
    assert [key.job_id for key in found.keys] == [1, 2, 3]
    assert found.waits.tolist() == [False, True, True]
    np.testing.assert_array_equal(found.start[:, 0], [np.nan, NOW + 60.0, NOW + 160.0])
    np.testing.assert_array_equal(found.end[:, 0], [NOW + 60.0, NOW + 160.0, NOW + 260.0])


def test_where_too_few_starts_came_true_no_interval_is_told_of_a_start() -> None:
    found = made(full(1), StartOutcomes(LATE.forecast[1:], LATE.limit[1:], LATE.came[1:]))
    assert found.outcomes == 0
    assert np.isnan(found.start[1, 1:]).all()
    assert np.isnan(found.end[1, 1:]).all()
    np.testing.assert_array_equal(found.end[0], np.full(3, NOW + 60.0), "by its run time alone")


def test_an_interval_is_that_of_an_estimate_with_the_same_outcomes() -> None:
    of = full(1)
    found = made(of, LATE)
    waits = as_they_came(np.array([60.0]), LATE.ratios(60.0, 200.0))
    assert found.outcomes == FEWEST
    np.testing.assert_allclose(found.start[1], NOW + median_and_interval(waits)[0])
    np.testing.assert_allclose(found.end[1], NOW + median_and_interval(ends_of(waits, np.array([[100.0]])))[0])
    assert found.start[1, 1] < found.start[1, 0] < found.start[1, 2]


def test_jobs_that_do_not_wait_for_room_are_left_out() -> None:
    found = made(full(2, reason=["None", "Dependency", "Priority"]))
    assert [key.job_id for key in found.keys] == [1, 3]


def test_a_job_that_never_fits_starts_and_ends_later_than_all() -> None:
    found = made(full(2, gpus=[4, 5, 4]), LATE)
    np.testing.assert_array_equal(found.start[1], [np.inf] * 3)
    np.testing.assert_array_equal(found.end[1], [np.inf] * 3)
    assert np.isfinite(found.start[2]).all()


def test_where_the_run_time_is_not_known_the_end_is_not_either() -> None:
    of = full(1, deadline=NOW + 1e6)
    found = queue_forecast(of, Forecasts.unknown(2), NO_OUTCOMES, samples=4)
    assert np.isfinite(found.start[1, 0])
    assert np.isnan(found.end).all()
    assert np.isnan(found.in_time).all()


@pytest.mark.parametrize(("deadline", "share"), [(NOW + 159.0, 0.0), (NOW + 160.0, 1.0), (np.nan, np.nan)])
def test_a_deadline_is_met_in_a_share_of_what_is_simulated(deadline: float, share: float) -> None:
    found = made(full(1, deadline=[np.nan, deadline]))
    np.testing.assert_array_equal(found.in_time, [np.nan, share])
    np.testing.assert_array_equal(found.deadline, [np.nan, deadline])


def test_of_a_deadline_some_of_the_late_starts_tell() -> None:
    found = made(full(1, deadline=NOW + 400.0), LATE)
    assert 0.4 < found.in_time[1] < 0.6


def test_arrays_and_jobs_that_ran_before_are_told_apart_from_those_that_are_judged() -> None:
    found = made(full(3, elements=[1, 1, 3, 1], restarts=[0, 0, 0, 1]))
    assert found.single.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(found.start[2], [NOW + 160.0, np.nan, np.nan])


def test_of_an_array_the_first_element_is_told() -> None:
    of = full(1, elements=[1, 3])
    seconds = LiveQueue(of, forecasts(2, total=[60.0, 100.0], remaining=60.0), samples=3).run_times()
    np.testing.assert_array_equal(seconds, [[60.0] * 3, [100.0] * 3])


def test_many_jobs_are_told_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    of = full(40, deadline=NOW + 1000.0)
    whole = made(of, LATE)
    monkeypatch.setattr(module, "AT_ONCE", 100)
    parts = made(of, LATE)
    for name in ("start", "end", "in_time"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_without_jobs_nothing_is_told() -> None:
    found = made(snapshot(jobs(0), nodes(1)))
    assert (len(found.keys), found.start.shape) == (0, (0, 3))

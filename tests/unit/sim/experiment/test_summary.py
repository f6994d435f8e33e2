"""The figures of a run, on jobs whose story is short enough to work them out by hand."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slurmplug.sim.engine.job import SimJob, Speed
from slurmplug.sim.experiment.result import FinishedJob, RunResult
from slurmplug.sim.experiment.summary import first_reached, horizon, summary

ONE_A_SECOND = Speed(np.array([1]), np.array([1]), np.array([1.0]))


def job(iterations: int = 10, submit: float = 0.0, **fields: Any) -> SimJob:
    return SimJob("j", submit, 1, iterations, ONE_A_SECOND, **fields)


def learning(values: list[float], **fields: Any) -> SimJob:
    at = np.arange(1.0, len(values) + 1)
    return job(len(values), curve_at=at, accuracies=np.array(values), losses=1 - np.array(values), **fields)


def finished(of: SimJob, *corners: tuple[float, float], state: str = "COMPLETED", **fields: Any) -> FinishedJob:
    """It did so many iterations by so many seconds."""
    times, iterations = np.array(corners, dtype=float).reshape(-1, 2).T
    ended = fields.pop("ended", times[-1] if len(times) else math.nan)
    complete = FinishedJob(
        job=of, submitted=of.submit, started=times[0] if len(times) else math.nan, ended=ended, state=state,
        stopped=False, times=times, iterations=iterations, wait=0.0, gpu_seconds=0.0, bandwidth_bytes=0.0,
        preemptions=0, migrations=0, resizes=0,
    )  # fmt: skip
    return replace(complete, **fields)


def of(*jobs: FinishedJob, decided: list[float] | None = None) -> dict[str, Any]:
    decide = np.array([0.001] if decided is None else decided)
    return summary(RunResult("w", "1x4", "fifo", "direct", False, 7, jobs, decide, 2.5, 60.0))


def test_completion_times_and_makespan_are_counted_from_submission() -> None:
    figures = of(finished(job(submit=100.0), (110, 0), (150, 10)), finished(job(submit=200.0), (200, 0), (350, 10)))
    assert (figures["jct_mean"], figures["jct_p50"], figures["makespan"], figures["jobs"]) == (100.0, 100.0, 250.0, 2)
    assert figures["jct_p99"] == pytest.approx(149.0)


def test_a_job_that_did_not_end_has_no_completion_time() -> None:
    figures = of(finished(job(), (0, 0), (50, 5), ended=math.nan, state="RUNNING"), finished(job(), (0, 0), (10, 10)))
    assert (figures["jct_mean"], figures["jobs"], figures["ended"]) == (10.0, 2, 1)


def test_a_deadline_is_met_by_completing_in_time() -> None:
    figures = of(
        finished(job(deadline=20.0, urgency=9.0), (0, 0), (20, 10)),
        finished(job(deadline=20.0, urgency=10.0), (0, 0), (21, 10)),
        finished(job(deadline=20.0, urgency=1.0), (0, 0), (10, 10), state="TIMEOUT"),
        finished(job(), (0, 0), (99, 10)),
    )
    assert figures["deadline_ratio"] == pytest.approx(1 / 3)
    assert figures["urgent_deadline_ratio"] == 0.5


def test_accuracy_by_deadline_is_the_best_that_was_reported_by_then() -> None:
    curve = [0.2, 0.6, 0.4, 0.9]
    early, late, never = (learning(curve, deadline=at, target=0.5) for at in (15.0, 39.9, 5.0))
    figures = of(*(finished(each, (0, 0), (40, 4)) for each in (early, late, never)))
    # One iteration each ten seconds; after 15 s the second is not reported yet.
    assert figures["accuracy_by_deadline"] == pytest.approx((0.2 + 0.6 + 0.0) / 3)
    assert figures["accuracy_ratio"] == pytest.approx(1 / 3)


def test_a_job_that_never_started_has_an_accuracy_of_nothing() -> None:
    figures = of(finished(learning([0.5, 0.9], deadline=50.0), state="PENDING"))
    assert figures["accuracy_by_deadline"] == 0.0
    assert math.isnan(figures["jct_mean"])


def test_loss_is_integrated_from_arrival_to_a_horizon_that_the_policy_does_not_move() -> None:
    curve = learning([0.0, 0.5, 1.0], submit=10.0)  # losses 1, 0.5, 0: normalised the same
    assert horizon([curve]) == 10 + 2 * 3
    figures = of(finished(curve, (12, 0), (15, 3)))
    # 1 from the arrival at 10 to the second report at 14, a half to 15, then 0.
    assert figures["loss_integral"] == pytest.approx(4.5)
    waiting = of(finished(curve, (100, 0), (103, 3)))
    assert waiting["loss_integral"] == pytest.approx(6.0)


def test_the_time_to_a_loss_counts_from_arrival_to_the_report() -> None:
    curve = learning([0.0, 0.5, 0.92, 1.0], submit=10.0)
    figures = of(finished(curve, (20, 0), (60, 4)))
    assert figures["time_to_90_loss"] == pytest.approx(40.0)
    assert figures["time_to_95_loss"] == pytest.approx(50.0)


def test_work_that_was_lost_and_done_again_counts_once() -> None:
    at, when = first_reached(np.array([0.0, 4, 10, 16.0]), np.array([0.0, 4, 2, 8]))
    assert np.interp([1, 3.9], at, when).tolist() == [1.0, 3.9]
    assert np.interp([5, 8], at, when).tolist() == [13.0, 16.0]
    curve = learning([0.1 * (i + 1) for i in range(8)])
    figures = of(finished(replace(curve, deadline=12.0), (0, 0), (4, 4), (10, 2), (16, 8)))
    assert figures["accuracy_by_deadline"] == pytest.approx(0.4)


def test_a_pause_is_no_progress() -> None:
    curve = learning([0.1, 0.2, 0.3, 0.4], deadline=12.0)
    figures = of(finished(curve, (0, 0), (2, 2), (12, 2), (14, 4)))
    assert figures["accuracy_by_deadline"] == pytest.approx(0.2)


def test_utility_falls_with_the_completion_time() -> None:
    at_target = finished(job(utility=(10.0, 1.0, 20.0)), (0, 0), (20, 10))
    assert of(at_target)["utility"] == pytest.approx(5.0)
    assert of(replace(at_target, state="CANCELLED"))["utility"] == 0.0
    assert of(finished(job(utility=(10.0, 1e9, 20.0)), (0, 0), (1e6, 10)))["utility"] == pytest.approx(0.0, abs=1e-300)
    assert of(finished(job(utility=(10.0, 0.0, 20.0)), (0, 0), (1e6, 10)))["utility"] == pytest.approx(5.0)


def test_what_jobs_cost_is_added_up() -> None:
    one = finished(
        job(), (0, 0), (10, 10), gpu_seconds=7200.0, bandwidth_bytes=5.0, preemptions=2, migrations=1, resizes=3,
        stopped=True, wait=4.0,
    )  # fmt: skip
    figures = of(one, finished(job(), (0, 0), (10, 10)), decided=[0.001, 0.003])
    costs = {
        key: figures[key] for key in ("gpu_hours", "bandwidth_bytes", "preemptions", "migrations", "resizes", "stops")
    }
    assert costs == {
        "gpu_hours": 2.0, "bandwidth_bytes": 5.0, "preemptions": 2, "migrations": 1, "resizes": 3, "stops": 1,
    }  # fmt: skip
    assert figures["wait_mean"] == 2.0
    assert (figures["decide_ms_mean"], figures["wall_s"], figures["seed"]) == (pytest.approx(2.0), 2.5, 7)


def test_figures_are_plain_numbers_that_json_can_hold() -> None:
    counted: dict[str, Any] = {name: np.int64(1) for name in ("preemptions", "migrations", "resizes")}
    figures = of(finished(job(), (0, 0), (10, 10), stopped=np.bool_(True), gpu_seconds=np.float64(1.0), **counted))
    assert json.loads(json.dumps(figures))["stops"] == 1


def test_every_figure_that_was_promised_is_told() -> None:
    assert set(of(finished(job(), (0, 0), (10, 10)))) >= {
        "policy", "seed", "jobs", "jct_mean", "jct_p50", "jct_p99", "makespan", "wait_mean", "deadline_ratio",
        "accuracy_by_deadline", "accuracy_ratio", "bandwidth_bytes", "loss_integral", "time_to_90_loss", "utility",
        "gpu_hours", "preemptions", "stops", "decide_ms_mean", "decide_ms_p99", "wall_s",
    }  # fmt: skip

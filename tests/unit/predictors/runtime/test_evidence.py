"""Short runs of a program say little of a long job: they count by the GPU time that they took."""

from typing import Any

import numpy as np
import pytest

from predictors.runtime import RuntimePredictor
from predictors.runtime.evidence import ENOUGH, KEPT, LEAST_SHARE, LONGEST_LIMIT, Evidence
from predictors.runtime.job_table import JobTable

HOUR = 3600.0


def job(**given: Any) -> dict[str, Any]:
    return {"user": "ada", "name": "train", "gpus": 4, "cpus": 8, "time_limit": 10 * HOUR, "submit": 0.0, **given}


def least(runs: list[tuple[float, dict[str, Any]]], **given: Any) -> float:
    """The hours that a job is taken to run at least after these runs of so many seconds."""
    evidence = Evidence()
    for seconds, each in runs:
        evidence.add(JobTable.of([job(**each)]), np.array([seconds]))
    [found] = evidence.least(JobTable.of([job(**given)])).tolist()
    return float(found) / HOUR


def test_a_job_of_an_unknown_program_is_taken_to_run_a_share_of_its_limit() -> None:
    assert least([]) == pytest.approx(10 * LEAST_SHARE)
    assert least([(5.0, {"user": "bob"}), (5.0, {"name": "other"})]) == pytest.approx(10 * LEAST_SHARE)


def test_thirty_runs_of_five_seconds_change_that_by_little() -> None:
    assert 0.85 * 10 * LEAST_SHARE < least([(5.0, {})] * 30) < 0.9 * 10 * LEAST_SHARE


def test_short_runs_count_by_their_gpu_time() -> None:
    assert least([(360.0, {})] * int(100 * ENOUGH)) == pytest.approx(10 * LEAST_SHARE / np.e, rel=0.2)
    assert least([(360.0, {"gpus": 0})] * 100) == pytest.approx(10 * LEAST_SHARE)
    assert least([(360.0, {"gpus": 1})] * 4) == pytest.approx(least([(360.0, {})]))


def test_of_jobs_without_gpus_the_cpu_time_counts() -> None:
    assert least([(360.0, {"gpus": 0})] * 10, gpus=0) < 0.1 * 10 * LEAST_SHARE


def test_long_runs_are_no_evidence_that_a_job_is_short() -> None:
    assert least([(9 * HOUR, {}), *[(5.0, {})] * 30]) == pytest.approx(least([(5.0, {})] * 30))


def test_runs_that_outlived_their_forecast_take_the_evidence_back() -> None:
    short = [(100.0, {"bound": 200.0})] * 50
    assert least(short) < 0.1 * 10 * LEAST_SHARE
    assert least([(10 * HOUR, {"bound": 200.0}), *short]) == pytest.approx(10 * LEAST_SHARE)
    assert least([(300.0, {"bound": 200.0}), *short]) < 0.1 * 10 * LEAST_SHARE


def test_only_the_latest_runs_count() -> None:
    assert least([(600.0, {})] * 10 + [(1.0, {"gpus": 0})] * KEPT) == pytest.approx(10 * LEAST_SHARE)


@pytest.mark.parametrize("limit", [None, 100 * HOUR])
def test_a_very_long_limit_counts_like_none_as_half_a_day(limit: float | None) -> None:
    assert least([], time_limit=limit) == pytest.approx(LEAST_SHARE * LONGEST_LIMIT / HOUR)


def test_it_is_kept_with_the_predictor() -> None:
    predictor = RuntimePredictor().fit([job(end=5.0 * i) for i in range(5)], [5.0] * 5)
    again = RuntimePredictor.from_state(predictor.state())
    assert again.least([job(), job(name="x")]).tolist() == predictor.least([job(), job(name="x")]).tolist()
    predictor.update(job(end=400.0), 360.0)
    assert predictor.least([job()])[0] < again.least([job()])[0]

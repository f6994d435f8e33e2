"""Forecasts of waiting times use what had happened when a job was submitted, and nothing else; their intervals hold."""

import json
from pathlib import Path

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import Forecast
from slurmplug.forecasting.starts.start_outcomes import METHODS
from slurmplug.forecasting.starts.wait_model import even_parts
from slurmplug.learning.dataset_files import JobLog, read_job_log
from slurmplug.learning.queue_log import QueueLog
from slurmplug.learning.wait_trial import TRAININGS, Jobs, estimates
from tests.ledgers import run

MACHINE = 64


def one_by_one(jobs: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Submit, wait and run (jobs,) where each job has the machine for itself, in order of submission."""
    random = np.random.default_rng(seed)
    submit = np.cumsum(np.round(random.exponential(100.0, jobs)))
    ran = np.array([30.0, 60.0, 90.0, 180.0])[np.arange(jobs) % 4]
    wait, free = np.zeros(jobs), 0.0
    for job in range(jobs):
        wait[job] = max(free - submit[job], 0.0)
        free = submit[job] + wait[job] + ran[job]
    return submit, wait, ran


def swf(folder: Path, jobs: int, *, waits: bool = True) -> Path:
    lines = [
        f"{i} {submit:.0f} {wait if waits else -1:.0f} {ran:.0f} {MACHINE} -1 -1 {MACHINE} 3600 -1 1 {i % 4}"
        " 1 1 1 -1 -1 -1"
        for i, (submit, wait, ran) in enumerate(zip(*one_by_one(jobs), strict=True))
    ]
    path = folder / "log.swf"
    path.write_text("\n".join(["; MaxProcs: 64", *lines, ""]))
    return path


def queue_log(submit: Floats, wait: Floats, ran: Floats) -> QueueLog:
    jobs = [
        {"submit": at, "cpus": MACHINE, "time_limit": 3600.0, "user": f"user{i % 4}"} for i, at in enumerate(submit)
    ]
    forecast = Forecast.lognormal(np.full(len(jobs), 80.0), 0.5, "test")
    return QueueLog(JobLog(jobs, ran, wait), forecast)


def test_a_state_has_who_ran_and_who_waited_when_the_job_was_submitted() -> None:
    queue = queue_log(
        np.array([0.0, 5.0, 10.0, 20.0]), np.array([0.0, 5.0, 50.0, 60.0]), np.array([10.0, 50.0, 20.0, 5.0])
    )
    state = queue.state(3)
    assert state.running.tolist() == [1]
    assert state.waiting.tolist() == [2, 3]
    assert queue.processors(state) == MACHINE


def test_what_happened_after_the_submission_changes_no_forecast() -> None:
    submit, wait, ran = one_by_one(60)
    row = int(wait.argmax())
    now = submit[row]
    later_wait = np.where(submit + wait > now, wait + 10_000.0, wait)
    later_run = np.where(submit + wait + ran > now, ran + 5_000.0, ran)
    queues = [queue_log(submit, wait, ran), queue_log(submit, later_wait, later_run)]
    states = [queue.state(row) for queue in queues]
    assert len(states[0].waiting) > 1, "somebody waits"
    ours, others = (queue.features(state) for queue, state in zip(queues, states, strict=True))
    np.testing.assert_array_equal(ours, others)
    waits = [queue.simulated_waits([state]) for queue, state in zip(queues, states, strict=True)]
    for mine, theirs in zip(*waits, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_on_requested_times_a_job_waits_for_the_limits_of_all_before_it() -> None:
    queue = queue_log(np.array([0.0, 5.0, 10.0]), np.array([0.0, 45.0, 90.0]), np.array([50.0, 50.0, 50.0]))
    forecast, requested = queue.simulated_waits([queue.state(2)])
    assert requested.tolist() == [3590.0 + 3600.0]
    assert 0 < np.median(forecast) < 300


def published(submit: Floats, wait: Floats, learnt: Floats) -> Jobs:
    """Jobs whose simulations all say 50 s."""
    samples = np.tile(np.linspace(40.0, 60.0, 11), (len(submit), 1))
    return Jobs(samples, np.full(len(submit), 50.0), learnt, np.full(len(submit), 60.0), submit, submit + wait)


def test_an_estimate_is_from_waits_that_had_ended_before_the_submission() -> None:
    submit = np.arange(300, dtype=np.float64) * 10.0
    wait = np.random.default_rng(1).uniform(20, 80, 300)
    part = even_parts(300, TRAININGS)[40]
    changed = np.where(submit + wait > submit[part[0]], 1e6, wait)
    found, same = (estimates(published(submit, each, np.full(300, 50.0))) for each in (wait, changed))
    assert (found.waits[: part[-1] + 1] == same.waits[: part[-1] + 1]).all()
    assert (found.waits[part[-1] + 50 :] != same.waits[part[-1] + 50 :]).any()


def test_what_is_published_is_by_the_method_that_was_best_by_then() -> None:
    """The model is right about the first half of the jobs, and the simulation about the second."""
    submit, first = np.arange(1200, dtype=np.float64) * 1000.0, np.arange(1200) < 600
    random = np.random.default_rng(2)
    wait = np.where(first, random.uniform(1, 5000, 1200), 50.0)
    learnt = np.where(first, wait, random.uniform(1, 5000, 1200))
    found = estimates(published(submit, wait, learnt))
    assert set(found.methods[100:600]) == {"learnt"}
    assert np.abs(found.waits[100:600, 0] - wait[100:600]).mean() < 100.0
    assert set(estimates(published(submit, np.full(1200, 50.0), learnt)).methods[100:]) == {"simulated"}


def test_without_outcomes_the_estimate_is_that_of_the_simulations() -> None:
    submit = np.arange(20, dtype=np.float64)
    found = estimates(published(submit, np.full(20, 1000.0), np.full(20, 50.0)))
    np.testing.assert_allclose(found.waits, np.tile([50.0, 42.0, 58.0], (20, 1)))
    assert set(found.methods) == {"simulated"}


def test_json_has_jobs_errors_and_coverage_and_the_forecasts_beat_requested_times(tmp_path: Path) -> None:
    result = run("evaluate", "wait", str(swf(tmp_path, 600)), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert list(found) == ["jobs", "mae", "mae_requested", "coverage80"]
    assert found["jobs"] == 600
    assert 3 * found["mae"] < found["mae_requested"]
    assert found["coverage80"] > 0.75


def test_the_table_has_each_method(tmp_path: Path) -> None:
    output = run("evaluate", "wait", str(swf(tmp_path, 150))).output
    methods = "published", "simulated", "learnt", "average", "requested times", "no wait"
    for method in (*methods, *(f"{method}, by outcomes" for method in METHODS)):
        assert f" {method} " in output


def test_a_log_without_waiting_times_is_refused(tmp_path: Path) -> None:
    result = run("evaluate", "wait", str(swf(tmp_path, 150, waits=False)))
    assert result.exit_code == 1
    assert "waiting times" in result.output


def test_one_log_is_evaluated_at_a_time(tmp_path: Path) -> None:
    path = str(swf(tmp_path, 150))
    assert "name one FILE" in run("evaluate", "wait", path, path).output


def test_waits_that_a_log_does_not_keep_are_unknown(tmp_path: Path) -> None:
    assert np.isnan(read_job_log(swf(tmp_path, 10, waits=False)).waits).all()
    assert np.isfinite(read_job_log(swf(tmp_path, 10)).waits).all()

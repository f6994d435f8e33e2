"""The model of waits learns from jobs that had started, and says what it is told of the queue alone."""

import numpy as np
import pytest

from predictors.arrays import Floats
from slurmplug.forecasting.starts.queue_history import QueueHistory
from slurmplug.forecasting.starts.wait_model import FEWEST, WaitModel, Waits, earlier_forecasts


def waits(jobs: int, seed: int = 0) -> Waits:
    """Jobs that wait for as long as their first feature says; the second is sometimes unknown and means nothing."""
    random = np.random.default_rng(seed)
    features = np.stack([random.uniform(0, 5000, jobs), np.where(random.random(jobs) < 0.3, np.nan, 1.0)], axis=1)
    submit = np.arange(jobs, dtype=np.float64) * 100.0
    return Waits(features, submit, submit + features[:, 0])


def error(model: WaitModel, of: Waits) -> float:
    return float(np.abs(model.waits(of.features) - (of.start - of.submit)).mean())


def test_it_learns_what_waits_go_by() -> None:
    model, others = WaitModel.fit(waits(600)), waits(300, seed=1)
    assert model is not None
    assert error(model, others) < 150.0


def test_of_too_few_waits_none_is_learnt_and_jobs_that_wait_do_not_count() -> None:
    enough = waits(FEWEST)
    assert WaitModel.fit(enough) is not None
    start = enough.start.copy()
    start[0] = np.inf
    assert WaitModel.fit(enough._replace(start=start)) is None


def test_its_state_makes_the_same_and_that_of_another_version_none() -> None:
    model = WaitModel.fit(waits(300))
    assert model is not None
    features = waits(50, seed=2).features
    np.testing.assert_array_equal(WaitModel.from_state(model.state()).waits(features), model.waits(features))
    with pytest.raises(ValueError, match="version"):
        WaitModel.from_state({**model.state(), "version": "waits-0"})


def test_earlier_models_knew_the_jobs_that_had_started_and_no_later_ones() -> None:
    of, rows = waits(900), np.arange(0, 900, 10)
    last = of.submit[rows[60]]
    later = of._replace(start=np.where(of.start > last, of.start + 1e6, of.start))
    found, same = (earlier_forecasts(each, rows, 3) for each in (of, later))
    np.testing.assert_array_equal(found, same)
    assert np.isnan(found[:30]).all()
    assert np.abs(found[30:] - of.features[rows[30:], 0]).mean() < 150.0


def test_a_model_does_not_know_a_job_that_starts_when_it_is_submitted() -> None:
    """Nor others of that second: of the job itself it would know what it forecasts."""
    of = waits(300)
    at_once = of._replace(start=np.where(np.arange(300) == 250, of.submit, of.start))
    assert 250 not in at_once.known(of.submit[250]).submit / 100.0
    assert 250 in at_once.known(of.submit[250] + 1.0).submit / 100.0


def history(start: Floats, end: Floats) -> QueueHistory:
    every = np.ones(len(start))
    return QueueHistory(
        submit=np.arange(len(start), dtype=np.float64), start=start, end=end, units=every, limit=60 * every,
        expected=30 * every, user=np.zeros(len(start), dtype=np.int64),
    )  # fmt: skip


def test_a_job_that_was_cancelled_before_its_start_waited_until_then_and_held_nothing() -> None:
    never = np.inf
    queue = history(np.array([0.0, never, never, never]), np.array([never, 2.5, 9.0, never]))
    state = queue.state(3)
    assert (state.running.tolist(), state.waiting.tolist()) == ([0], [2, 3])
    assert queue.processors(state) == 1.0

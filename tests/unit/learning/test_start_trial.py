"""Starts that came, beside those that were forecast of the queues that the ledger keeps; and what an estimate makes of
them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurmplug.daemon import predictor_training
from slurmplug.forecasting.start_outcomes import FEWEST, STARTS, StartOutcomes, as_they_came
from slurmplug.learning.start_trial import start_outcomes
from slurmplug.ledger import budgets, cycle_queries
from slurmplug.reports import estimate, estimate_lines
from slurmplug.reports.job_request import JobRequest
from tests.ledgers import Site

FULL: dict[str, Any] = {"gpus": 4, "cpus": 4, "time_limit": 3600.0}
REQUEST = JobRequest("ada", "n[1-2]", "gpu", "lab", "normal", "train", gpus=4, cpus=4, time_limit=3600.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def later(site: Site, wait: float) -> int:
    """A job that fits at once, and starts so many seconds after the cycle that first saw it."""
    job = site.cluster.submit(**FULL)
    site.cycle(seconds=budgets.INPUTS_EVERY)
    site.cluster.time += wait
    site.cluster.start(job)
    site.cluster.end(job)
    site.cycle(seconds=1.0)
    return job


def test_starts_that_came_are_beside_those_that_were_forecast(site: Site) -> None:
    for wait in (100.0, 200.0):
        later(site, wait)
    found = start_outcomes(site.ledger)
    np.testing.assert_array_equal(found.forecast, [0.0, 0.0])
    np.testing.assert_array_equal(found.came, [100.0, 200.0])


def test_of_many_cycles_each_job_counts_once(site: Site) -> None:
    for wait in range(30):
        later(site, 100.0 + wait)
    twice = site.cluster.submit(**FULL)
    for _ in range(2):
        site.cycle(seconds=budgets.INPUTS_EVERY)
    site.cluster.start(twice)
    site.cycle(seconds=1.0)
    assert sorted(start_outcomes(site.ledger).came)[-31:-1] == [100.0 + wait for wait in range(30)]
    assert len(start_outcomes(site.ledger).came) == 31


def test_jobs_that_have_not_started_or_are_not_new_say_nothing(site: Site) -> None:
    cancelled = site.cluster.submit(**FULL)
    site.cluster.submit(**FULL, elements=3, array_id=2)
    old = site.cluster.submit(**FULL, submit=site.cluster.time - 10_000.0)
    site.cycle()
    site.cluster.end(cancelled, "CANCELLED")
    site.cluster.start(old)
    site.cycle()
    assert len(start_outcomes(site.ledger).came) == 0


def test_an_estimate_goes_by_the_starts_that_came_of_such_forecasts(site: Site) -> None:
    """Jobs that could have started at once began after one to five minutes."""
    random = np.random.default_rng(0)
    outcomes = StartOutcomes(np.zeros(FEWEST), np.full(FEWEST, np.nan), random.uniform(60.0, 300.0, FEWEST))
    site.cycle()
    before = estimate.estimate(site.ledger, REQUEST, site.cluster.time)
    assert (before["outcomes"], before["start"]["high"]) == (0, site.cluster.time)
    site.ledger.save_model(STARTS, outcomes.version, outcomes.state(), site.cluster.time)
    found = estimate.estimate(site.ledger, REQUEST, site.cluster.time)
    assert found["outcomes"] == FEWEST
    low, median, high = (found["start"][name] - site.cluster.time for name in ("low", "median", "high"))
    assert 60.0 <= low < median < high <= 300.0
    text = "\n".join(estimate_lines.lines(found, REQUEST, site.cluster.time, site.cluster.time))
    assert f"80 % of such forecasts, by {FEWEST} that came true" in text


def test_the_nearest_outcomes_tell_and_too_few_do_not() -> None:
    outcomes = StartOutcomes(np.repeat([0.0, 999.0], 100), np.full(200, 60.0), np.repeat([0.0, 9999.0], 100))
    np.testing.assert_allclose(as_they_came(np.array([99.0]), outcomes.ratios(2000.0, 60.0)), np.full((1, 100), 999.0))
    np.testing.assert_array_equal(as_they_came(np.array([0.0]), outcomes.ratios(0.0, 60.0)), np.zeros((1, 100)))
    assert len(StartOutcomes(*np.zeros((3, FEWEST - 1))).ratios(0.0, 60.0)) == 0


def test_of_equal_forecasts_those_of_jobs_with_about_as_long_a_time_limit_tell() -> None:
    """Backfill starts the short ones first. A job without a limit is like those with long ones."""
    limit = np.repeat([600.0, 86_400.0, np.nan], 100)
    outcomes = StartOutcomes(np.full(300, 99.0), limit, np.repeat([49.0, 999.0, 9999.0], 100))
    for asked, came in ((900.0, 49.0), (90_000.0, 999.0), (np.nan, 9999.0), (4e7, 9999.0)):
        found = as_they_came(np.array([99.0]), outcomes.ratios(99.0, asked))
        np.testing.assert_allclose(found, np.full((1, 100), came))


def test_of_what_came_eight_in_ten_lie_in_the_interval() -> None:
    random = np.random.default_rng(1)
    forecast = random.lognormal(6.0, 1.5, 22_000)
    came = forecast * random.lognormal(0.4, 1.0, len(forecast))
    outcomes, inside = StartOutcomes(forecast[2000:], np.full(20_000, 60.0), came[2000:]), []
    for one, truth in zip(forecast[:2000], came[:2000], strict=True):
        low, high = np.quantile(as_they_came(np.array([one]), outcomes.ratios(one, 60.0))[0], [0.1, 0.9])
        inside.append(low <= truth <= high)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.03)


def test_outcomes_of_another_release_are_not_read(site: Site) -> None:
    site.cycle()
    site.ledger.save_model(STARTS, "starts-0", {"version": "starts-0"}, site.cluster.time)
    assert estimate.estimate(site.ledger, REQUEST, site.cluster.time)["outcomes"] == 0
    with pytest.raises(ValueError, match="version"):
        StartOutcomes.from_state({"version": "starts-0"})


def test_a_training_leaves_them_in_the_ledger(site: Site) -> None:
    from tests.unit.daemon.test_predictor_training import ended

    later(site, 100.0)
    trained = predictor_training.PredictorTraining(site.ledger, site.path)
    from slurmplug.forecasting.seen_speeds import SeenSpeeds

    trained.begin("stack", site.cluster.time, SeenSpeeds())
    assert ended(trained)
    saved = cycle_queries.model(site.ledger, STARTS)
    assert saved is not None
    assert StartOutcomes.from_state(saved[2]).came.tolist() == [100.0]

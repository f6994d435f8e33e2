"""Starts that came, beside those that were forecast of the queues that the ledger keeps; and what an estimate makes of
them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from slurmplug.daemon import predictor_training
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.starts import wait_model
from slurmplug.forecasting.starts.start_outcomes import FEWEST, STARTS, StartOutcomes, as_they_came
from slurmplug.forecasting.starts.wait_model import WAITS
from slurmplug.learning import training
from slurmplug.learning.start_trial import start_outcomes
from slurmplug.ledger import budgets, cycle_queries
from slurmplug.processes.child import Channel
from slurmplug.reports import estimate, estimate_lines, kept_queue
from slurmplug.reports.job_request import JobRequest
from slurmplug.reports.waits_by_ledger import NewJob, WaitsByLedger
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
    assert sorted(found.came.tolist()) == [100.0, 200.0], "cycles are taken at random"


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
    trained.begin("stack", site.cluster.time, SeenSpeeds())
    assert ended(trained)
    saved = cycle_queries.model(site.ledger, STARTS)
    assert saved is not None
    assert StartOutcomes.from_state(saved[2]).came.tolist() == [100.0]


def both(outcomes: int, right: str) -> StartOutcomes:
    """Starts that the simulation or the model forecast, while the other says anything."""
    random = np.random.default_rng(3)
    came, anything = random.uniform(1.0, 1e4, (2, outcomes))
    limit = np.full(outcomes, 3600.0)
    return (
        StartOutcomes(came, limit, came, anything)
        if right == "simulated"
        else StartOutcomes(anything, limit, came, came)
    )


@pytest.mark.parametrize("right", ["simulated", "learnt"])
def test_the_method_that_was_right_forecasts_a_job_and_its_variants(right: str) -> None:
    forecasts = {"simulated": np.array([100.0, 200.0, np.inf]), "learnt": np.array([4000.0, 3000.0, 2000.0])}
    found = both(300, right).corrected(forecasts["simulated"], forecasts["learnt"], 3600.0)
    assert found.method == right
    np.testing.assert_allclose(found.waits[:2], np.tile(forecasts[right][:2, None], (1, 100)), rtol=1e-6)
    assert np.isinf(found.waits[2]).all(), "what can never start is not learnt to"


def test_the_average_is_of_logarithms_and_wins_where_the_errors_are_opposite() -> None:
    random = np.random.default_rng(4)
    came, factor = random.uniform(100.0, 1e4, 300), random.uniform(1.0, 20.0, 300)
    outcomes = StartOutcomes(came * factor, np.full(300, 60.0), came, came / factor)
    found = outcomes.corrected(np.array([9999.0]), np.array([99.0]), 60.0)
    assert found.method == "average"
    assert float(np.median(found.waits)) == pytest.approx(999.0, rel=0.05)


def test_without_a_model_or_outcomes_of_one_the_simulation_is_corrected_by_all() -> None:
    simulated, learnt = np.array([100.0]), np.array([np.nan])
    assert both(300, "learnt").corrected(simulated, learnt, 60.0).method == "simulated"
    all_known = both(300, "learnt")
    assert all_known.learnt is not None
    learnt_of_few = np.where(np.arange(300) < FEWEST - 1, all_known.learnt, np.nan)
    few = StartOutcomes(all_known.forecast, all_known.limit, all_known.came, learnt_of_few)
    found = few.corrected(simulated, np.array([4000.0]), 60.0)
    assert (found.method, found.waits.shape) == ("simulated", (1, 100))
    assert StartOutcomes.from_state(few.state()).corrected(simulated, np.array([4000.0]), 60.0).method == "simulated"


def waiting_site(site: Site, jobs: int) -> None:
    """Jobs, of which bob's start after ten minutes, and ada's at once, though all fit at once."""
    for at in range(jobs):
        user, wait = ("bob", 600.0) if at % 2 else ("ada", 10.0)
        job = site.cluster.submit(user=user, **FULL)
        site.cycle(seconds=budgets.INPUTS_EVERY)
        site.cluster.time += wait
        site.cluster.start(job)
        site.cycle(seconds=1.0)
        site.cluster.end(job)
        site.cycle(seconds=1.0)


def test_a_site_with_enough_starts_gets_the_learnt_estimate_where_it_is_better(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the training leaves. The simulation knows that jobs fit at once; whose they are it does not."""
    monkeypatch.setattr(wait_model, "FEWEST", 20)
    monkeypatch.setattr("os.nice", lambda _: 0)
    waiting_site(site, 110)
    now, sent = site.cluster.time, list[training.State]()
    channel = cast(Channel, SimpleNamespace(send=sent.extend))
    predictor_training.train(channel, site.path, "stack", SeenSpeeds())
    assert {WAITS, STARTS} <= {state.name for state in sent}
    training.save(site.ledger, sent, now)
    outcomes = kept_queue.outcomes(site.ledger)
    assert outcomes.best == "learnt"
    found = {user: estimate.estimate(site.ledger, replace(REQUEST, user=user), now) for user in ("ada", "bob")}
    assert {each["method"] for each in found.values()} == {"learnt"}
    ada, bob = (found[user]["start"]["median"] - now for user in ("ada", "bob"))
    assert ada < 400.0
    assert bob > 800.0
    text = "\n".join(estimate_lines.lines(found["bob"], replace(REQUEST, user="bob"), now, now))
    assert "by waits of jobs in such queues" in text
    worse = StartOutcomes(outcomes.forecast, outcomes.limit, outcomes.forecast, outcomes.learnt)
    site.ledger.save_model(STARTS, worse.version, worse.state(), now)
    by_simulation = estimate.estimate(site.ledger, replace(REQUEST, user="bob"), now)
    assert by_simulation["method"] == "simulated"
    assert by_simulation["start"]["median"] == now
    site.ledger.save_model(WAITS, "waits-0", {"version": "waits-0"}, now)
    site.ledger.save_model(STARTS, outcomes.version, outcomes.state(), now)
    assert estimate.estimate(site.ledger, REQUEST, now)["method"] == "simulated", "a model of another release"


def test_waits_are_learnt_from_single_jobs_of_their_partition(site: Site) -> None:
    for partition in ("gpu", "gpu", "cpu"):
        job = site.cluster.submit(partition=partition, **FULL)
        site.cycle()
        site.cluster.start(job)
        site.cycle()
    again = site.cluster.submit(**FULL)
    site.cluster.start(again)
    site.cycle()
    site.cluster.requeue(again)
    site.cluster.submit(**FULL, elements=3, array_id=99)
    record = site.cycle()
    ledger = WaitsByLedger(site.ledger, record.snapshot)
    keys, waits = ledger.learnt_from()
    assert [key.job_id for key in keys] == [1, 2, 3]
    np.testing.assert_allclose(waits.start - waits.submit, 60.0)
    asked = [NewJob(np.array([4.0, 4.0, 0.0]), 3600.0, 60.0)]
    now = site.cluster.time
    in_gpu, in_cpu = (ledger.features("ada", partition, asked, now)[0] for partition in ("gpu", "cpu"))
    assert in_gpu.shape == in_cpu.shape == waits.features[0].shape
    running = 10  # of the features
    assert (in_gpu[running], in_cpu[running]) == (2.0, 1.0)

"""Forecasts of the queue in the ledger: the last one, and how those came that were made first."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.forecasting.starts.queue_forecast import QueueForecast
from slurmplug.ledger import budgets, database, queue_forecasts
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.schema import MIGRATIONS
from tests.builders import CLUSTER, NOW
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def forecast(
    site: Site, *jobs: int, start: float = 100.0, spread: float = 50.0, waits: bool = True, single: bool = True
) -> None:
    """Keep a forecast that these jobs start so many seconds from now, give or take, and end 100 s later."""
    now, n = site.cluster.time, len(jobs)
    starts = np.tile(now + np.array([start, start - spread, start + spread]), (n, 1))
    made = QueueForecast(
        at=now,
        outcomes=30,
        keys=tuple(JobKey(CLUSTER, job, int(NOW)) for job in jobs),
        waits=np.full(n, waits),
        single=np.full(n, single),
        start=starts,
        end=starts + 100.0,
        deadline=np.full(n, np.nan),
        in_time=np.full(n, np.nan),
    )
    queue_forecasts.keep(site.ledger, made)


def come(site: Site, job: int, wait: float, runs: float = 100.0, state: str = "COMPLETED") -> None:
    """The job starts after so many seconds, and ends after so many more."""
    site.cluster.time += wait
    site.cluster.start(job)
    site.cycle(seconds=0.0)
    site.cluster.time += runs
    site.cluster.end(job, state)
    site.cycle(seconds=0.0)


def starts(site: Site) -> queue_forecasts.Accuracy:
    return queue_forecasts.start_accuracy(site.ledger, 0.0)


def ends(site: Site) -> queue_forecasts.Accuracy:
    return queue_forecasts.end_accuracy(site.ledger, 0.0)


def test_the_last_forecast_is_told_by_job(site: Site) -> None:
    assert queue_forecasts.last(site.ledger) is None
    first, second = site.cluster.submit(), site.cluster.submit()
    site.cycle()
    forecast(site, first, second, 99)
    forecast(site, second, start=200.0, spread=np.inf)
    kept = queue_forecasts.last(site.ledger)
    assert kept is not None
    assert (kept.at, kept.outcomes) == (site.cluster.time, 30)
    assert kept.of(1) is None, "it is not in the last one"
    start, end = site.cluster.time + 200.0, site.cluster.time + 300.0
    assert kept.of(2) == queue_forecasts.Outlook(True, start, None, None, end, None, None, None, None)


def test_jobs_that_are_gone_are_not_told_of(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    come(site, job, 10.0)
    forecast(site, job)
    kept = queue_forecasts.last(site.ledger)
    assert kept is not None
    assert kept.of(1) is None
    assert site.ledger.value("SELECT count(*) FROM foreseen_starts") == 0


def test_the_first_forecast_of_each_job_is_compared_with_what_came(site: Site) -> None:
    jobs = [site.cluster.submit() for _ in range(3)]
    site.cycle()
    assert starts(site) == (0, None, 0, 0)
    forecast(site, *jobs)
    forecast(site, *jobs, start=1e6)
    assert starts(site) == (0, None, 0, 0), "none has started"
    come(site, jobs[0], 120.0)
    assert starts(site) == (1, 20.0, 1, 1)
    assert ends(site) == (1, 20.0, 1, 1)
    come(site, jobs[1], 80.0)  # 300 s after the forecast
    assert starts(site) == (2, 110.0, 2, 1)
    assert ends(site) == (2, 110.0, 2, 1)
    assert queue_forecasts.start_accuracy(site.ledger, site.cluster.time).came == 0, "only the latest"


def test_one_without_an_interval_is_counted_without(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    forecast(site, job, spread=np.nan)
    come(site, job, 130.0)
    assert starts(site) == (1, 30.0, 0, 0)


def test_an_interval_without_an_end_holds(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    forecast(site, job, spread=np.inf)
    come(site, job, 1e6)
    assert starts(site) == (1, 1e6 - 100.0, 1, 1)


@pytest.mark.parametrize("state", ["CANCELLED", "FAILED", "TIMEOUT"])
def test_only_of_jobs_that_completed_the_end_counts(site: Site, state: str) -> None:
    job = site.cluster.submit()
    site.cycle()
    forecast(site, job)
    come(site, job, 100.0, state=state)
    assert (starts(site).came, ends(site).came) == (1, 0)


def test_who_was_cancelled_before_it_started_or_was_requeued_does_not_count(site: Site) -> None:
    cancelled, requeued = site.cluster.submit(), site.cluster.submit()
    site.cycle()
    forecast(site, cancelled, requeued)
    site.cluster.end(cancelled, "CANCELLED")
    site.cluster.start(requeued)
    site.cycle()
    site.cluster.requeue(requeued)
    site.cycle()
    come(site, requeued, 100.0)
    assert (starts(site).came, ends(site).came) == (0, 0)


def test_of_arrays_of_those_that_run_and_of_those_that_never_start_none_is_kept_for_good(site: Site) -> None:
    jobs = [site.cluster.submit() for _ in range(2)]
    site.cycle()
    forecast(site, *jobs, single=False)
    forecast(site, *jobs, start=np.inf, spread=0.0)
    assert site.ledger.value("SELECT count(*) FROM foreseen_starts") == 0


def test_forget_and_the_budget_of_jobs_leave_nothing_of_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, bob, alive = (site.cluster.submit(user=user) for user in ("eve", "bob", "bob"))
    site.cycle()
    forecast(site, eve, bob, alive)
    for job in (eve, bob):
        come(site, job, 100.0)
        site.cluster.purge(job)
    site.cycle()
    site.ledger.forget("eve")
    assert queue_forecasts.last(site.ledger) is None
    assert site.ledger.value("SELECT count(*) FROM foreseen_starts") == 2
    monkeypatch.setattr(budgets, "USER", 0)
    site.ledger.thin(site.cluster.time)
    assert site.ledger.value("SELECT count(*) FROM foreseen_starts") == 1
    assert site.ledger.query("PRAGMA foreign_key_check") == []


def test_what_it_takes_counts_for_the_budget_of_its_user(site: Site) -> None:
    told, other = site.cluster.submit(name="same"), site.cluster.submit(name="same")
    site.cycle()
    forecast(site, told)
    for job in (told, other):
        site.cluster.end(job, "CANCELLED")
        site.cycle()
        site.cluster.purge(job)
    site.cycle()
    site.ledger.thin(site.cluster.time)
    of_told, of_other = (row["weight"] for row in site.ledger.query("SELECT weight FROM jobs ORDER BY id"))
    assert of_told == of_other + 100


def test_a_ledger_of_the_thirteenth_version_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:13])
        with closing(Ledger(tmp_path / "ledger.db")) as ledger:
            assert ledger.value("PRAGMA user_version") == 13
    with Site(tmp_path) as site:
        assert site.ledger.value("PRAGMA user_version") == len(MIGRATIONS)
        job = site.cluster.submit()
        site.cycle()
        forecast(site, job)
        assert queue_forecasts.last(site.ledger) is not None

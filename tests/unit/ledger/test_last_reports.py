"""The last reports that are kept with a job are those that its reports say."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.snapshot import JobKey
from slurmplug.intake.job_record import Point
from slurmplug.ledger import database
from slurmplug.ledger.last_reports import MOST, last_reports
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.schema import MIGRATIONS
from tests.builders import CLUSTER, NOW
from tests.ledgers import Site
from tests.unit.ledger.test_ledger import changes, write_older

FIELDS = ("-j", "1", "-o", "iterations,loss,lossat,accuracy,accuracyat,quantity,value,valueat,diverged")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def kept(site: Site) -> Mapping[str, Any]:
    [row] = site.ledger.query("SELECT id, trial, last_reported FROM jobs")
    found: Mapping[str, Any] = json.loads(row["last_reported"])
    assert found == last_reports(site.ledger, row["id"], row["trial"])
    return found


def test_each_quantity_is_kept_with_the_iteration_at_which_it_was_last_reported(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    site.cluster.start(job)
    site.train(job, dict.fromkeys(range(MOST + 20), 0.5), loss=2.0)
    site.cluster.say(job, iteration=MOST + 20, loss=1.5)
    site.cluster.say(job, iteration=MOST + 21, val_loss=3.0)
    site.cycle()
    assert kept(site) == {
        "iteration": MOST + 21,
        "quantities": {"accuracy": 0.5, "loss": 1.5, "val_loss": 3.0},
        "quantities_at": {"accuracy": MOST + 19, "loss": MOST + 20, "val_loss": MOST + 21},
        "not_finite": {},
    }


def test_what_is_kept_goes_on_with_each_report(site: Site) -> None:
    """It stayed at the first one, as nothing else of the job's row had changed."""
    job = site.cluster.submit()
    site.cycle()
    site.cluster.start(job)
    for iteration in range(1, 5):
        site.cluster.say(job, iteration=iteration, loss=2.0 / iteration)
        site.cycle()
        assert kept(site)["iteration"] == iteration
    site.cluster.say(job, iteration=5, loss=float("nan"))
    site.cycle()
    assert kept(site)["quantities"] == {"loss": "nan"}


def test_a_requeued_job_has_the_values_of_the_run_before_until_it_reports_them_again(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    site.cluster.start(job)
    site.train(job, {1: 0.5, 2: 0.6, 3: 0.7}, loss=1.0)
    site.cycle()
    site.cluster.requeue(job)
    site.cycle()
    site.cluster.start(job)
    site.cycle()
    assert kept(site)["iteration"] == 3
    site.cluster.say(job, iteration=2, loss=0.9)
    site.cycle()
    assert kept(site)["quantities"] == {"loss": 0.9, "accuracy": 0.7}
    assert kept(site)["iteration"] == 2


def test_values_that_are_not_finite_are_counted(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    site.cluster.start(job)
    for iteration, loss in enumerate((1.0, "inf", 2.0, "nan", "-inf", "nan"), start=1):
        site.cluster.say(job, iteration=iteration, loss=loss)
    site.cycle()
    assert (kept(site)["quantities"], kept(site)["not_finite"]) == ({"loss": "nan"}, {"loss": 3})


def test_what_was_reported_in_another_trial_is_not_of_the_present_one(site: Site) -> None:
    job = site.cluster.submit()
    site.cycle()
    site.cluster.start(job)
    for trial in ("fold 1", "fold 2"):
        site.cluster.say(job, trial=trial, iteration=1, loss=1.0)
        site.cluster.time += 1
    site.cluster.say(job, trial="fold 2", iteration=2, accuracy=0.5)
    site.cycle()
    assert kept(site)["quantities"] == {"loss": 1.0, "accuracy": 0.5}


def test_of_jobs_of_the_tenth_version_the_last_values_are_still_read_from_their_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "ledger.db", JobKey(CLUSTER, 1, int(NOW))
    points = [Point(key, 0, 0, at, NOW + at, {"loss": 1 / at}) for at in (1.0, 2.0, 4.0)]
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", MIGRATIONS[:10])
        with closing(Ledger(path)) as ledger, ledger._transaction():
            write_older(ledger, replace(changes(1), points=tuple(points)))
            ledger.db.execute("UPDATE jobs SET first_iteration = 1.0")
    with closing(Ledger(path)) as ledger:
        assert ledger.db.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert ledger.query("SELECT last_reported, array_tasks FROM jobs") == [
            {"last_reported": None, "array_tasks": ""}
        ]
        [row] = ledger.query("SELECT id FROM jobs")
        assert last_reports(ledger, row["id"], 0)["quantities"] == {"loss": 0.25}
    with Site(tmp_path) as site:
        assert site.table(*FIELDS)[0] | {"Iterations": "4", "Loss": "0.25", "LossAt": "4"} == site.table(*FIELDS)[0]

"""A job that trains several models, one after the other, from real cycles: what is shown of it, and what ends it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledgers import Site

MEETS = {i: 0.80 + i / 50 for i in range(1, 7)}
"""The target of the jobs of these tests is 0.9."""
FALLS_SHORT = {i: 0.60 + i / 50 for i in range(1, 4)}
SCRIPT = "#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=6 {}\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        yield site


def folds(site: Site, *, named: bool = False, directive: str = "") -> int:
    """A job in its second fold; the first met the target, in reports that all came before a cycle."""
    job = site.cluster.submit(SCRIPT.format(directive).encode())
    site.cluster.start(job)
    for fold, values in enumerate((MEETS, FALLS_SHORT)):
        trial: dict[str, float] = {"trial": fold} if named else {}
        site.train(job, values, loss=0.5 + fold, quantity="accuracy", **trial)
    site.cycle()
    return job


@pytest.mark.parametrize("named", [True, False])
def test_a_target_that_was_met_in_another_fold_ends_nothing(named: bool, site: Site) -> None:
    folds(site, named=named)
    site.cycle(3)
    assert site.ledger.query("SELECT * FROM operations") == []


def test_a_target_that_is_met_in_a_fold_that_is_not_the_first_ends_nothing(site: Site) -> None:
    job = folds(site)
    site.train(job, dict.fromkeys(range(4, 6), 0.95))
    site.cycle(3)
    assert site.ledger.query("SELECT * FROM operations") == []


def test_the_first_trial_that_meets_the_target_ends_the_job_where_the_script_says_so(site: Site) -> None:
    job = folds(site, directive="--trials=first")
    assert site.ledger.query("SELECT * FROM operations") == []  # the present trial has not met it
    site.train(job, dict.fromkeys(range(4, 6), 0.95))
    site.cycle()
    [operation] = site.ledger.query("SELECT rule, step FROM operations")
    assert operation == {"rule": "target", "step": "ask"}


def test_a_job_that_declares_trials_is_not_stopped_in_its_first_one(site: Site) -> None:
    job = site.cluster.submit(SCRIPT.format("--trials=all").encode())
    site.cluster.start(job)
    site.train(job, dict.fromkeys(range(1, 6), 0.95))
    site.cycle(3)
    assert site.ledger.query("SELECT * FROM operations") == []


def test_why_names_the_trial_and_what_those_before_it_came_to(site: Site) -> None:
    folds(site, named=True)
    told = site.ask("why", "1")
    assert "Iteration 3 of 6 of its 2nd trial ('1'): accuracy 0.66, loss 1.5." in told
    assert "Before, its 1st trial ('0') came to iteration 6: accuracy 0.92, loss 0.5." in told


def test_why_names_a_trial_by_its_place_where_the_job_gives_no_name(site: Site) -> None:
    folds(site)
    assert "Iteration 3 of 6 of its 2nd trial: accuracy 0.66, loss 1.5." in site.ask("why", "1")


def test_queue_and_acct_show_the_present_trial(site: Site) -> None:
    folds(site)
    [job] = site.json("queue")["jobs"]
    assert "2nd: 3/6" in site.ask("queue")
    [row] = site.table("-a", "-S", "2023-11-01", "-o", "jobid,iterations,value,trial,trials")
    assert list(row.values()) == [job["jobid"], "3", "0.66", "2nd", "2"]


def test_a_job_of_one_training_shows_no_trial(site: Site) -> None:
    job = site.cluster.submit(SCRIPT.format("").encode())
    site.cluster.start(job)
    site.train(job, FALLS_SHORT)
    site.cycle()
    [row] = site.table("-a", "-S", "2023-11-01", "-o", "iterations,trial,trials")
    assert list(row.values()) == ["3", "", "1"]
    assert "trial" not in site.ask("why", "1")


def test_the_pace_of_one_fold_says_nothing_of_the_time_left(site: Site) -> None:
    folds(site)
    told = site.ask("why", "1")
    assert "by its own pace" not in told
    assert "by its time limit" in told

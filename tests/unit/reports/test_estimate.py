"""`estimate` from the daemon's ledger: what is expected of a job that was not submitted yet."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.limits import Limits, QosLimits
from slurmplug.errors import UsageError
from slurmplug.ledger import budgets, kept_limits
from slurmplug.ledger.inputs import kept
from slurmplug.reports import estimate, estimate_lines
from slurmplug.reports.job_request import JobRequest
from tests.fake_cluster import node_rows
from tests.ledgers import Site

HOUR = 3_600.0
FULL: dict[str, Any] = {"gpus": 4, "cpus": 4, "time_limit": HOUR}
REQUEST = JobRequest("ada", "n[1-2]", "gpu", "lab", "normal", "train", gpus=4, cpus=4, time_limit=HOUR)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """On each of two nodes a job of an hour has run for a minute."""
    with Site(tmp_path) as one:
        one.cluster.nodes = node_rows(gpus_used={"": 4}, cpus_used=4)
        for node in ("n1", "n2"):
            one.cluster.start(one.cluster.submit(user="eve", **FULL), node)
        one.cycle()
        yield one


def asked(site: Site, request: JobRequest = REQUEST) -> dict[str, Any]:
    return estimate.estimate(site.ledger, request, site.cluster.time)


def history(site: Site, seconds: float, jobs: int = 30) -> None:
    """Runs of ada's that the daemon has learnt from, each of so many seconds, on a node that is gone again."""
    from slurmplug.learning import training

    for _ in range(jobs):
        job = site.cluster.submit(b"#!/bin/sh\ntrain\n", **FULL)
        site.cluster.start(job, "n3")
        site.cycle(seconds=seconds)
        site.cluster.end(job)
        site.cycle(seconds=1.0)
    training.train(site.ledger, "stack", site.cluster.time)


def test_a_job_starts_when_those_that_run_have_ended(site: Site) -> None:
    found = asked(site)
    begin, last = site.cluster.time, site.cluster.time + HOUR
    assert begin <= found["start"]["low"] < found["start"]["median"] < found["start"]["high"] < last
    assert found["end"]["median"] > found["start"]["median"]
    assert found["as_of"] == site.cluster.time
    assert found["run_time"]["high"] <= HOUR
    assert found["changes"] == [], "nothing is known of how long it needs, and how fast it would be"


def test_on_free_nodes_it_starts_now_also_where_the_queue_is_of_some_time_ago(site: Site) -> None:
    for job in (1, 2):
        site.cluster.end(job)
    site.cluster.nodes = node_rows()
    site.cycle(seconds=budgets.INPUTS_EVERY)
    later = site.cluster.time + 100.0
    found = estimate.estimate(site.ledger, REQUEST, later)
    assert [*found["start"].values()] == [later] * 3


def test_a_job_starts_no_sooner_than_it_may_begin(site: Site) -> None:
    begin = site.cluster.time + 5 * HOUR
    found = asked(site, replace(REQUEST, begin=begin, script=("#PLUG --deadline=5h",)))
    assert found["start"] == {"median": begin, "low": begin, "high": begin}
    assert found["end"]["low"] > begin
    assert found["in_time"] == 0.0


def test_a_limit_of_its_user_delays_a_job_beside_free_nodes(site: Site) -> None:
    """The user's only job runs on one of the nodes; of the other all is free."""
    site.cluster.end(2)
    site.cluster.nodes = node_rows(gpus_used=[{"": 4}, {"": 0}], cpus_used=[4, 0])
    site.cycle(seconds=budgets.INPUTS_EVERY)
    of_eve = replace(REQUEST, user="eve", account="", qos="")
    assert asked(site, of_eve)["start"]["median"] == site.cluster.time
    few = Limits(qos={"normal": QosLimits(user={"gres/gpu": 4.0})})
    kept_limits.keep(site.ledger, few, site.cluster.time)
    assert asked(site, of_eve)["start"]["median"] > site.cluster.time
    assert asked(site)["start"]["median"] == site.cluster.time
    assert asked(site, replace(of_eve, qos="other"))["start"]["median"] == site.cluster.time


def test_the_queue_is_kept_every_five_minutes_also_where_nothing_is_commanded(site: Site) -> None:
    assert [cycle.id for cycle in kept(site.ledger)] == [1]
    site.cycle(5)
    assert [cycle.id for cycle in kept(site.ledger)] == [1, 6]


def test_the_queue_is_kept_after_a_minute_where_jobs_came_started_or_ended(site: Site) -> None:
    free = asked(site)["start"]["median"]
    job = site.cluster.submit(user="bob", priority=10.0, **FULL)
    site.cycle(seconds=budgets.INPUTS_OF_CHANGES_EVERY / 2)
    assert len(kept(site.ledger)) == 1
    site.cycle(seconds=budgets.INPUTS_OF_CHANGES_EVERY / 2)
    assert len(kept(site.ledger)) == 2
    assert asked(site)["start"]["median"] > free
    site.cycle(seconds=budgets.INPUTS_OF_CHANGES_EVERY)
    assert len(kept(site.ledger)) == 2, "nothing changed"
    site.cluster.end(1)
    site.cluster.start(job, "n1")
    site.cycle(seconds=budgets.INPUTS_OF_CHANGES_EVERY)
    assert len(kept(site.ledger)) == 3


def test_who_waits_is_ahead_and_a_job_of_the_same_user_is_passed_by_nobody(site: Site) -> None:
    alone = asked(site)["start"]["median"]
    for user in ("bob", "bob", "bob", "bob"):
        site.cluster.submit(user=user, priority=10.0, **FULL)
    site.cycle(seconds=budgets.INPUTS_EVERY)
    behind = asked(site)["start"]["median"]
    assert behind > alone
    site.cluster.submit(priority=20.0, **FULL)
    site.cycle(seconds=budgets.INPUTS_EVERY)
    assert asked(site)["start"]["median"] < behind


def test_a_deadline_is_met_with_a_probability_and_a_target_by_so_many_runs(site: Site) -> None:
    for accuracy in (0.8, 0.95):
        job = site.cluster.submit(**FULL)
        site.cluster.start(job)
        site.train(job, {1: 0.5, 2: accuracy})
        site.cycle()
        site.cluster.end(job)
        site.cycle()
    lines = ("#PLUG --target=accuracy>=0.9 --deadline=1h",)
    found = asked(site, replace(REQUEST, script=lines))
    assert found["deadline"] == site.cluster.time + HOUR
    assert 0.1 < found["in_time"] < 0.9
    assert found["target"] == {"quantity": "accuracy", "relation": ">=", "value": 0.9, "runs": 2, "met": 1}
    other = asked(site, replace(REQUEST, script=lines, user="eve"))
    assert other["target"]["runs"] == 0, "of the user's own runs alone"


def test_a_time_limit_that_the_runs_before_did_not_need_is_shortened_and_starts_no_later(site: Site) -> None:
    history(site, 300.0)
    found = asked(site)
    [change] = [each for each in found["changes"] if each["change"] == "time_limit"]
    assert 300.0 < change["value"] <= 1800.0
    assert change["start"]["median"] <= found["start"]["median"]
    assert found["run_time"]["median"] < 900.0


def test_where_its_speed_is_known_one_gpu_less_takes_longer(site: Site) -> None:
    history(site, 300.0)
    job = site.cluster.submit(b"#!/bin/sh\n#PLUG --max-iterations=50\ntrain\n", name="train", **FULL)
    site.cluster.start(job, "n1")
    site.train(job, dict.fromkeys(range(1, 20), 0.5))
    site.cycle(2, seconds=budgets.INPUTS_EVERY)
    found = asked(site, replace(REQUEST, script=("#PLUG --max-iterations=50 --gpus=1..8",)))
    sizes = {each["value"]: each for each in found["changes"] if each["change"] == "gpus"}
    assert sizes.keys() == {3.0, 5.0}
    fewer, asked_for, more = (each["run_time"]["median"] for each in (sizes[3.0], found, sizes[5.0]))
    assert fewer > asked_for >= more
    not_managed = asked(site, replace(REQUEST, script=("#PLUG --max-iterations=50 --gpus=1..8 --manage=off",)))
    assert not_managed["changes"] == found["changes"]


def test_a_job_that_no_node_can_hold_starts_later_than_all(site: Site) -> None:
    found = asked(site, replace(REQUEST, gpus=9))
    assert [*found["start"].values()] == [None] * 3
    text = "\n".join(estimate_lines.lines(found, REQUEST, site.cluster.time, site.cluster.time))
    assert "later than all that was simulated" in text


def test_what_cannot_be_estimated_is_said(site: Site) -> None:
    with pytest.raises(UsageError, match="none of the nodes"):
        asked(site, replace(REQUEST, nodes="other[1-2]"))
    with pytest.raises(UsageError, match="more than 100000 nodes"):
        asked(site, replace(REQUEST, nodes="n[0-999999999]"))
    with pytest.raises(UsageError, match="give it one with --time"):
        asked(site, replace(REQUEST, time_limit=None))


def test_without_a_cycle_there_is_no_queue(tmp_path: Path) -> None:
    with Site(tmp_path) as one, pytest.raises(UsageError, match="no cycle yet"):
        asked(one)


def test_the_text_has_each_time_the_deadline_and_what_is_not_known(site: Site) -> None:
    request = replace(REQUEST, script=("#PLUG --target=accuracy>=0.9 --deadline=1h",), name="a\x1b[2J")
    now = site.cluster.time
    text = "\n".join(estimate_lines.lines(asked(site, request), request, now + 60.0, now))
    for part in ("4 GPUs", "Start ", "End ", "Run time ", "Deadline ", "no run of that name", "Slurm ", "Not known: "):
        assert part in text
    assert "\x1b" not in text

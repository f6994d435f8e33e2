"""What users are told of their jobs without asking: what, whom, and once."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from slurmplug.config.schema import Config
from slurmplug.ledger import notifications
from slurmplug.ledger.notifications import Delivery, Told
from slurmplug.reports.notifications import IDLE_REPORTS, LOOK_BACK, TRY_AGAIN_AFTER, Notification, due, message
from tests.ledgers import Planned, Site
from tests.moving import MovingSite

TRAINING = b"#!/bin/sh\n#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=50%s\ntrain\n"
TO_ALL: Mapping[str, Any] = {"mail": "all"}


def found(site: Site | MovingSite, **settings: Any) -> list[Notification]:
    config = Config.from_table({"notifications": {**TO_ALL, **settings}})
    return due(site.ledger, config, site.cluster.time)


def told(site: Site | MovingSite, **settings: Any) -> dict[str, str]:
    """The texts by kind."""
    return {each.about.kind: each.text for each in found(site, **settings)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def runs(site: Site, directives: str = "", **given: Any) -> int:
    job = site.cluster.submit(TRAINING % directives.encode(), **given)
    site.cluster.start(job)
    site.cycle()
    return job


def stopped(site: Site, directives: str = "", **given: Any) -> int:
    """A job that has met its target and was stopped for that."""
    job = runs(site, directives, **given)
    site.cluster.time += 9 * 30.0
    for i in range(1, 10):
        site.cluster.time += 9.0
        site.cluster.say(job, iteration=i, accuracy=0.5 + i / 20)
    site.cycle()
    assert site.cluster.asked(job)
    site.cluster.end(job)
    site.cycle(2)
    return job


def test_a_job_that_was_stopped(site: Site) -> None:
    stopped(site, gpus=4, name="bert")
    [one] = found(site)
    assert (one.title, one.user, one.ways) == ("1 (bert): stopped", "ada", frozenset({"mail"}))
    assert one.text.startswith("slurmplug stopped it. Its accuracy of 0.95 meets the target of 0.9 that the job set")
    assert one.text.endswith("after iteration 9 of 50. That saved about 0.4 GPU hours.")
    assert one.gpu_hours == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(
    ("mail", "directive", "gets"),
    [
        ("all", "", True),
        ("all", " --notify=on", True),
        ("all", " --notify=off", False),
        ("asked", "", False),
        ("asked", " --notify=on", True),
        ("off", " --notify=on", False),
    ],
)
def test_mail_goes_to_whom_the_site_and_the_job_say(mail: str, directive: str, gets: bool, site: Site) -> None:
    stopped(site, directive)
    assert [each.ways for each in found(site, mail=mail)] == [{"mail"}] * gets
    [both] = found(site, mail=mail, webhook="http://localhost:1/x")
    assert both.ways == ({"mail", "webhook"} if gets else {"webhook"})


def test_only_of_the_kinds_that_the_site_names(site: Site) -> None:
    stopped(site)
    assert found(site, about=["deadline", "moved"]) == []
    assert len(found(site, about=["stopped"])) == 1


def test_each_kind_is_told_once_for_a_job(site: Site) -> None:
    job = stopped(site)
    about = [each.about for each in found(site)]
    assert notifications.record(site.ledger, about, site.cluster.time) == about == [Told(job, "stopped")]
    assert notifications.record(site.ledger, about, site.cluster.time) == []
    assert found(site) == []


def failed(site: Site, about: Told, *ways: str) -> None:
    """It is tried, and certainly not delivered in these ways."""
    assert notifications.record(site.ledger, [about], site.cluster.time) == [about]
    notifications.record_results(site.ledger, [Delivery(about, "refused", frozenset(ways))])


def test_what_was_certainly_not_sent_is_tried_again_three_times(site: Site) -> None:
    about, last = Told(stopped(site), "stopped"), []
    failed(site, about, "mail")
    for after in TRY_AGAIN_AFTER:
        site.cluster.time += after - 1.0
        assert found(site) == []
        site.cluster.time += 1.0
        last += [each.last for each in found(site)]
        failed(site, about, "mail")
    assert last == [False, False, True]
    assert sum(TRY_AGAIN_AFTER) < LOOK_BACK


def test_only_the_way_that_failed_is_tried_again_and_only_where_it_is_wanted(site: Site) -> None:
    both = {"webhook": "http://localhost:1/x"}
    failed(site, Told(stopped(site), "stopped"), "webhook")
    site.cluster.time += TRY_AGAIN_AFTER[0]
    assert [each.ways for each in found(site, **both)] == [{"webhook"}]
    assert found(site) == []
    assert found(site, about=["deadline"], **both) == []


def test_what_may_have_been_sent_is_not_tried_again(site: Site) -> None:
    about = Told(stopped(site), "stopped")
    failed(site, about)
    site.cluster.time += TRY_AGAIN_AFTER[0]
    assert found(site) == []
    assert notifications.record(site.ledger, [about], site.cluster.time) == []


def test_what_is_not_so_any_more_is_not_told_again(site: Site) -> None:
    job = runs(site, " --deadline=1m", time_limit=600.0)
    site.cycle()
    failed(site, Told(job, "deadline"), "mail")
    site.cluster.end(job)
    site.cycle(seconds=TRY_AGAIN_AFTER[0])
    assert found(site) == []


def test_nobody_is_told_of_what_was_long_ago(site: Site) -> None:
    stopped(site)
    site.cluster.time += LOOK_BACK
    site.cycle()
    assert found(site) == []


def test_nor_of_a_job_that_ended_by_itself_or_is_left_to_slurm(site: Site) -> None:
    job = runs(site)
    site.cluster.end(job)
    site.cycle()
    other = runs(site, " --manage=off --deadline=1m")
    site.cluster.time += 3_600.0
    site.cycle()
    assert site.cluster.jobs[other]["state"] == "RUNNING"
    assert found(site) == []


@pytest.mark.parametrize(
    ("kind", "goal", "told_kind", "text"),
    [
        ("migrate", {"nodes": ("n2",), "gpus": 2}, "moved", "slurmplug had it saved and requeued, to go on elsewhere."),
        ("resize", {"gpus": 4}, "resized", "to go on with 4 GPUs instead of 2."),
    ],
)
def test_a_job_that_was_moved_or_resized(kind: str, goal: dict[str, Any], told_kind: str, text: str) -> None:
    site = MovingSite()
    with closing(site.ledger):
        job = site.training()
        site.cycle(kind=kind, **goal)
        site.saves(job)
        site.cycles_until(lambda: site.step() == "watch")
        site.trains(job, 6)
        site.cycles_until(lambda: site.operations()[-1]["outcome"] is not None)
        [one] = found(site)
        assert one.about.kind == told_kind
        assert text in one.text
        assert one.gpu_hours == pytest.approx(2 * 20.0 / 3_600.0)  # from the checkpoint to the requeue, two cycles
        assert "cost" not in one.text


def test_what_a_preemption_cost_is_told() -> None:
    site = MovingSite()
    with closing(site.ledger):
        job = site.training()
        site.cycle(kind="preempt")
        site.saves(job)
        site.cluster.time += 350.0
        site.cycles_until(lambda: site.operations()[-1]["outcome"] is not None)
        [one] = found(site)
    assert one.about.kind == "preempted"
    assert one.gpu_hours == pytest.approx(2 * 360.0 / 3_600.0)
    assert one.text.endswith(" That cost about 0.2 GPU hours: what it computed after its checkpoint.")


def test_a_job_that_is_requeued_before_its_time_limit_makes_room_for_nobody() -> None:
    site = MovingSite(guardrails={"requeue_before_limit": 1.0})
    with closing(site.ledger):
        job = site.training(time_limit=300.0)
        site.cluster.time += 150.0
        site.cycle()
        site.saves(job)
        site.cycles_until(lambda: site.operations()[-1]["outcome"] is not None)
        [one] = found(site)
    assert one.about.kind == "preempted"
    assert one.text.startswith(
        "slurmplug had it saved and requeued; it goes on when it is its turn. Its time limit of 0.1 h ends this run"
    )


def test_a_job_that_has_diverged(site: Site) -> None:
    job = runs(site, gpus=2)
    site.train(job, dict.fromkeys(range(1, 9), math.nan), quantity="loss")
    site.cycle()
    [one] = [each for each in found(site) if each.about.kind == "diverged"]
    assert "NaN or infinite" in one.text
    assert one.gpu_hours is not None
    site.cluster.time += 3_600.0 - one.gpu_hours / 2 * 3_600.0 - 30.0
    site.cycle(seconds=30.0)
    assert told(site)["diverged"].endswith(" until it ends; it has used about 2.0 GPU hours.")


@pytest.mark.parametrize(("share", "reports", "idle"), [(0.01, IDLE_REPORTS, 1), (0.01, 5, 0), (0.5, IDLE_REPORTS, 0)])
def test_a_job_whose_gpus_are_idle(share: float, reports: int, idle: int, site: Site) -> None:
    job = runs(site, gpus=4)
    for iteration in range(1, reports + 1):
        site.cluster.time += 30.0
        site.cluster.say(job, iteration=iteration, load={"gpu": share})
    site.cycle()
    texts = [each.text for each in found(site)]
    assert len(texts) == idle
    if idle:
        assert texts[0].startswith("Its 4 GPUs were in use 1% of the time, by what it reported: idle for about 2.")


def test_a_job_that_misses_its_deadline(site: Site) -> None:
    runs(site, " --deadline=10m")
    assert found(site) == [], "how long it takes is not known, but that it ends by its time limit"
    site.cluster.time += 700.0
    site.cycle()
    assert told(site)["deadline"].endswith("has passed.")


def test_a_job_that_will_miss_its_deadline(site: Site) -> None:
    job = runs(site, " --deadline=1h")
    for iteration in range(1, 8):
        site.cluster.time += 240.0
        site.cluster.say(job, iteration=iteration, loss=1.0)
        site.cycle()
    assert told(site)["deadline"].startswith("It cannot meet its deadline, ")
    assert "it is expected to end" in told(site)["deadline"]


def test_a_job_that_is_not_admitted(tmp_path: Path) -> None:
    def plan(snapshot: Snapshot) -> Plan:
        why = Reason("rejected", {"needs": "more free GPUs within the horizon"})
        return Plan(np.zeros(len(snapshot.jobs)), notes=dict.fromkeys(snapshot.jobs.keys, why))

    with Site(tmp_path, Planned(plan)) as site:
        site.cluster.submit(b"#!/bin/sh\n#PLUG --utility=50,0.5,12\ntrain\n")
        site.cycle()
        assert told(site) == {"rejected": "It is not admitted for now; it needs more free GPUs within the horizon."}


def test_no_other_job_is_named(tmp_path: Path) -> None:
    def plan(snapshot: Snapshot) -> Plan:
        jobs = snapshot.jobs
        why = Reason("optstop maximum", {"achieved": 0.5, "by": 4711.0})
        stops = [Action("stop", key, why) for key in jobs.keys]
        return Plan(np.full(len(jobs), np.nan), actions=tuple(stops))

    with Site(tmp_path, Planned(plan)) as site:
        job = runs(site)
        site.cycle()
        site.cluster.end(job)
        site.cycle(2)
        assert "4711" not in told(site)["stopped"]


def test_a_mail_about_one_job_and_about_several(site: Site) -> None:
    for name in ("bert", "x\x1b[31m\nSubject: y"):
        stopped(site, name=name)
    both = found(site)
    subject, text = message(both[:1], "c1")
    assert subject == "slurmplug on c1: job 1 (bert): stopped"
    assert text.startswith("Job 1 (bert): stopped\n  slurmplug stopped it.")
    assert "--notify=off" in text
    subject, text = message(both, "c1\n")
    assert subject == "slurmplug on c1\\x0a: 2 messages about 2 jobs"
    assert "\x1b" not in text
    assert "\nSubject" not in text

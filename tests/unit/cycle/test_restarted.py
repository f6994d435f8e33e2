"""What is decided does not depend on whether the daemon was started again: what jobs asked for is kept."""

from typing import Any

import numpy as np
import pytest

from policies.baselines.optimus import Optimus
from policies.plan import NOTHING_REMEMBERED
from slurmplug.cycle.record import CycleRecord
from tests.moving import MakeSite, MovingSite

ELASTIC = b"#!/bin/sh\n#PLUG --gpus=1..8 --checkpoint=file@100 --max-iterations=90 --type=mlp\ntrain\n"
WAITS: dict[str, Any] = {"gpus": 4, "cpus": 8, "time_limit": 36_000.0}


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    made = make_site(guardrails={"size_interval": 0.0, "size_least": 0.0})
    made.policy.needs = Optimus.needs
    return made


def asked(record: CycleRecord) -> list[list[float]]:
    requested: list[list[float]] = record.snapshot.jobs.requested.tolist()
    return requested


def same_decisions(site: MovingSite) -> CycleRecord:
    """Of a cycle by the daemon that runs, and of one after another has begun with the ledger."""
    before = site.cycle(after=0.0)
    site.restart()
    after = site.cycle(after=0.0)
    assert asked(before) == asked(after)
    speeds = [each.forecasts.speed.at([0] * 8, list(range(1, 9))).table for each in (before, after)]
    assert (np.median(speeds[0], axis=1) > 0).all()
    assert speeds[0].tolist() == speeds[1].tolist()
    plans = [Optimus().decide(each.snapshot, each.forecasts, NOTHING_REMEMBERED) for each in (before, after)]
    assert plans[0].actions == plans[1].actions
    assert plans[0].score.tolist() == plans[1].score.tolist()
    return after


def test_a_job_that_runs_on_fewer_gpus_has_the_speeds_that_follow_from_what_it_asked_for(site: MovingSite) -> None:
    job = site.cluster.submit(ELASTIC, **WAITS)
    first = site.cycle()
    site.cycle(kind="resize", gpus=2)
    site.cycle()
    assert (site.result(), site.cluster.jobs[job]["gpus"]) == ("done", 2)
    site.cluster.start(job)
    after = same_decisions(site)
    assert asked(after) == [[4.0, 8.0, 1024.0]]
    four, eight = (record.forecasts.speed.at([0, 0], [4, 8]).median for record in (first, after))
    assert four.tolist() == eight.tolist()


def test_whole_cores_that_a_job_gets_are_nothing_that_it_asked_for(site: MovingSite) -> None:
    job = site.cluster.submit(ELASTIC, **WAITS)
    site.cycle()
    site.cluster.start(job)
    site.cluster.jobs[job]["cpus"] = 32
    assert asked(same_decisions(site)) == [[4.0, 8.0, 1024.0]]


def test_what_its_user_changes_of_a_waiting_job_is_what_it_asks_for(site: MovingSite) -> None:
    job = site.cluster.submit(ELASTIC, **WAITS)
    site.cycle()
    site.cluster.jobs[job] |= {"gpus": 8}
    site.cycle()
    assert asked(same_decisions(site)) == [[8.0, 8.0, 1024.0]]


def test_a_daemon_that_begins_right_after_a_resize_does_not_take_that_for_the_users_change(site: MovingSite) -> None:
    site.cluster.submit(ELASTIC, **WAITS)
    site.cycle()
    site.cycle(kind="resize", gpus=2)
    site.restart()
    assert asked(site.cycle()) == [[4.0, 8.0, 1024.0]]

"""Jobs with idle GPUs are stopped only after their user was told so, and only while they stay idle."""

from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from slurmplug.rules.idle_gpus import HOUR, ToldIdle, with_stops
from tests.builders import NOW, jobs, nodes, snapshot

STARTED, TOLD = NOW - 4 * HOUR, NOW - 2 * HOUR
IDLE = {"state": "running", "started": STARTED, "gpus_used": STARTED + 60.0}


def seen(**given: Any) -> Snapshot:
    return snapshot(jobs(1, **{**IDLE, **given}), nodes(1))


def planned(
    at: Snapshot, *actions: Action, announced: float | None = HOUR, after: float | None = HOUR, acts: bool = True
) -> tuple[Action, ...]:
    plan = Plan(np.zeros(len(at.jobs)), actions=actions)
    return with_stops(plan, at, {at.jobs.keys[0]: ToldIdle(TOLD, announced)}, after, acts=acts).actions


def test_a_job_that_stays_idle_is_stopped_for_that() -> None:
    [stop] = planned(seen())
    assert (stop.kind, stop.reason) == ("stop", Reason("idle GPUs", {"cause": "idle", "hours": 2.0}))


@pytest.mark.parametrize(
    "given",
    [
        {"gpus_used": TOLD + 1.0},
        {"gpus_used": np.nan},
        {"started": TOLD + 1.0, "gpus_used": 0.0},
        {"suspended": HOUR + 1.0},
        {"state": "suspended"},
        {"state": "completing"},
        {"state": "pending", "started": np.nan},
        {"unit_mismatch": "percent"},
    ],
    ids=[
        "picked up", "reports nothing", "another run", "was suspended", "is suspended", "ends", "waits",
        "not to be stopped",
    ],
)  # fmt: skip
def test_any_other_is_not(given: dict[str, Any]) -> None:
    assert planned(seen(**given)) == ()


def test_nobody_is_stopped_who_was_not_told_or_before_the_time_or_where_the_site_does_not_say_so() -> None:
    at = seen()
    assert planned(at, after=None) == ()
    assert planned(at, after=2 * HOUR + 1.0) == ()
    assert with_stops(Plan(np.zeros(1)), at, {}, HOUR, acts=True).actions == ()


def test_nobody_is_stopped_without_having_been_told_that_and_when() -> None:
    at = seen()
    assert planned(at, announced=None) == ()
    assert planned(at, announced=2 * HOUR + 1.0) == ()
    assert len(planned(at, announced=None, acts=False)) == 1


def test_it_is_not_moved_as_well_and_keeps_a_stop_for_another_reason() -> None:
    at = seen()
    key = at.jobs.keys[0]
    stop, moves = Action("stop", key, Reason("target")), Action("migrate", key, Reason("moved"))
    assert planned(at, stop) == (stop,)
    assert [each.kind for each in planned(at, moves)] == ["stop"]

"""A size at which a job would not end in the time that it may have is vetoed, and a run is ended before its limit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.cluster import parse
from slurmplug.cluster.limits import Limits
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules.guardrails import Past, check
from slurmplug.rules.time_limits import BeforeLimit, TimeLimits, with_last_calls
from tests.builders import NOW, jobs, nodes, snapshot

HOUR = 3600.0


def seen(limit: float = HOUR, **given: Any) -> Snapshot:
    columns = {
        "state": "running",
        "gpus": 2,
        "gpus_min": 1,
        "gpus_max": 8,
        "restartable": True,
        "time_limit": limit,
        "attained": 1e9,
        "started": 0.0,
        "grace": np.nan,
        **given,
    }
    return snapshot(jobs(1, **columns), nodes(1))


def forecasts(remaining: float = 0.8 * HOUR, source: str = "progress") -> Forecasts:
    """So many seconds on two GPUs; the speed is proportional to the GPUs."""
    speeds = [Forecast.certain(float(gpus), "measured speed") for gpus in (1, 2, 4, 8)]
    fan = Fan.of(1, [0], np.array([[1.0, 2.0, 4.0, 8.0]]), speeds)
    return replace(Forecasts.unknown(1), remaining=Forecast.certain(remaining, source), speed=fan)


def vetoes(gpus: int, known: Forecasts | None, limit: float = HOUR, **given: Any) -> list[Reason]:
    at = seen(limit, **given)
    action = Action("resize", at.jobs.keys[0], Reason("share"), gpus=gpus)
    limits = Guardrails(first_seen=0, minimum_run=0, requeue_cooldown=0, requeue_cost=0)
    times = None if known is None else TimeLimits(at, known, limits)
    verdict = check(at, Plan(np.zeros(1), actions=(action,)), Past(at.now), Modes(default="act"), limits, times=times)
    return [reason for _, reason in verdict.vetoes]


def test_a_smaller_size_that_takes_longer_than_the_limit_is_vetoed_with_its_figures() -> None:
    [reason] = vetoes(1, forecasts())
    assert (reason.rule, reason.facts["gpus"], reason.facts["limit"]) == ("time limit", 1.0, 1.0)
    assert reason.facts["needs"] == pytest.approx(1.6)


def test_sizes_at_which_it_ends_in_time_are_allowed() -> None:
    assert vetoes(4, forecasts()) == []
    assert vetoes(1, forecasts(0.4 * HOUR)) == []


def test_the_quantile_counts_that_nine_of_ten_jobs_stay_below() -> None:
    spread = replace(forecasts(), remaining=Forecast.lognormal(0.4 * HOUR, 0.5, "progress"))
    assert [reason.rule for reason in vetoes(1, spread)] == ["time limit"]


def test_a_job_that_has_just_begun_is_not_held_to_a_forecast_that_its_own_pace_is_below() -> None:
    own = {"iteration": 5.0, "iteration_time": 1.0, "max_iterations": 105.0}
    assert vetoes(1, forecasts(0.9 * HOUR), **own) == []
    assert [reason.rule for reason in vetoes(1, forecasts(0.9 * HOUR), **{**own, "max_iterations": 5005.0})] == [
        "time limit"
    ]


def test_what_is_not_known_vetoes_nothing() -> None:
    assert vetoes(1, None) == []
    assert vetoes(1, Forecasts.unknown(1)) == []
    assert vetoes(1, forecasts(), limit=np.nan) == []
    assert vetoes(1, forecasts(source="time limit")) == []
    assert vetoes(1, replace(forecasts(), speed=Fan.unknown(1))) == []


def fitted(at: Snapshot, walls: Limits | None, raised: float = 3.0, **given: Any) -> Action | Reason:
    """What becomes of a resize from two GPUs, on which 48 minutes are left, to one, on which it takes 96."""
    action = Action("resize", at.jobs.keys[0], Reason("share"), gpus=1)
    site = Guardrails(**{"raise_time_limit": raised, "requeue_cooldown": 0, "minimum_run": 0, **given.pop("site", {})})
    return TimeLimits(at, forecasts(), site, walls, **given).fitted(action, 0)


def test_a_limit_is_raised_as_far_as_the_limits_of_the_cluster_go() -> None:
    at = seen(partition="train,other", qos="normal", account="vision", user="ada")
    for most, expected in (("UNLIMITED", 5760.0), ("01:36:00", 5760.0), ("01:35:00", None)):
        walls = parse.limits("normal|||||||||\n", "", f"PartitionName=other MaxTime={most}\n")
        found = fitted(at, walls)
        assert (found.time_limit if isinstance(found, Action) else None) == (expected and pytest.approx(expected))
    assert isinstance(found, Reason)
    assert found.facts["raised"] == pytest.approx(95 / 60)


def test_no_limit_is_raised_while_those_of_the_cluster_are_not_known() -> None:
    assert isinstance(fitted(seen(), None), Reason)
    assert isinstance(fitted(seen(), Limits()), Action)


def test_a_job_whose_own_limit_is_beyond_those_of_the_cluster_keeps_it() -> None:
    walls = parse.limits("", "", "PartitionName=train MaxTime=30:00\n")
    [reason] = [fitted(seen(partition="train"), walls)]
    assert isinstance(reason, Reason)
    assert "raised" not in reason.facts


BEFORE = BeforeLimit(ahead=60.0, grace=300.0)


def test_a_job_that_is_requeued_before_its_limit_may_need_more_than_one_run() -> None:
    at = seen()
    assert isinstance(fitted(at, None, before=BEFORE), Action)
    assert fitted(at, None, before=BEFORE, site={"requeue_cost": 1000}) == fitted(at, None)
    for refused in (
        {"before": replace(BEFORE, acts=False)},
        {"before": BEFORE, "requeued": {at.jobs.keys[0]: 11}},
        {"before": BEFORE, "site": {"requeue_cooldown": HOUR}},
    ):
        assert isinstance(fitted(at, None, **refused), Reason), refused
    assert isinstance(fitted(seen(restartable=False), None, before=BEFORE), Reason)


def calls(known: Forecasts, left: float = 300.0, **given: Any) -> list[Action]:
    """The last calls of a job whose limit ends its run in so many seconds, beside a resize that its policy wants."""
    at = seen(started=NOW - HOUR + left, **given)
    resize = Action("resize", at.jobs.keys[0], Reason("share"), gpus=1)
    times = TimeLimits(at, known, Guardrails(), before=BEFORE, ending=BEFORE.rows(at))
    planned = with_last_calls(Plan(np.zeros(1), actions=(resize,)), times).actions
    return [] if planned == (resize,) else list(planned)


def test_the_time_for_which_a_job_was_suspended_does_not_count_against_its_limit() -> None:
    assert calls(forecasts(), suspended=0.0)
    assert calls(forecasts(), left=0.0, suspended=300.0) == calls(forecasts(), left=300.0)
    assert not calls(forecasts(), suspended=HOUR / 2)


def test_a_run_that_would_not_end_in_time_is_ended_before_its_limit_in_place_of_what_its_policy_wanted() -> None:
    [call] = calls(forecasts())
    assert (call.kind, call.reason.rule) == ("preempt", "time limit ahead")
    assert call.reason.facts == {"limit": 1.0, "left": 300.0, "needs": pytest.approx(0.8)}
    assert [each.kind for each in calls(Forecasts.unknown(1))] == ["preempt"]


def test_a_run_that_ends_in_time_or_has_time_left_is_left_alone() -> None:
    assert calls(forecasts(200.0)) == []
    assert calls(forecasts(), left=361.0) == []
    assert calls(forecasts(), left=361.0, grace=302.0) != []
    assert calls(forecasts(), restartable=False) == []
    assert calls(forecasts(), state="pending") == []
    assert calls(forecasts(), managed=False) == []


def test_what_a_run_still_needs_is_told_by_its_own_pace_and_by_no_forecast_from_its_limit() -> None:
    pace = {"iteration": 95.0, "iteration_time": 30.0, "max_iterations": 100.0}
    assert calls(forecasts(), **pace) == []
    assert calls(forecasts(200.0), **{**pace, "iteration": 90.0}) != []
    assert calls(forecasts(), **{**pace, "iteration": 100.0}) == []
    for source in ("time limit", "outlived"):
        assert [each.reason.facts.get("needs") for each in calls(forecasts(200.0, source))] == [None]

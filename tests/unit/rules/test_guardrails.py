"""What may be: each rule, its reason, and that nothing gets by it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules.guardrails import (
    KINDS,
    PROTECTIONS,
    Past,
    Requeue,
    Verdict,
    check,
)
from slurmplug.rules.valid_plan import validate_plan
from tests.builders import CLUSTER, NOW, jobs, nodes, servers, snapshot

ACT = Modes(default="act")
NUMPYS_NUMBER: Any = np.int64(3)


def running(n: int = 1, **columns: Any) -> Snapshot:
    return snapshot(jobs(n, **{"state": "running", **columns}), nodes(1))


def stops(seen: Snapshot, *rows: int) -> tuple[Action, ...]:
    return tuple(Action("stop", seen.jobs.keys[row], Reason("target")) for row in rows or range(len(seen.jobs)))


def checked(seen: Snapshot, *rows: int, modes: Modes = ACT, past: Past | None = None, **limits: Any) -> Verdict:
    """The verdict over a stop of these rows, or of all, and a rank for every job."""
    plan = Plan(np.arange(len(seen.jobs), dtype=float), actions=stops(seen, *rows))
    return check(seen, plan, past or Past(seen.now), modes, Guardrails(**limits))


def vetoes(verdict: Verdict) -> list[str]:
    return [reason.rule for _, reason in verdict.vetoes]


def test_in_act_mode_a_plan_passes_as_it_is() -> None:
    verdict = checked(running(2))
    assert (len(verdict.actions), vetoes(verdict), verdict.frozen) == (2, [], None)
    assert verdict.score.tolist() == [0.0, 1.0]
    assert verdict.acting == KINDS - {"hold", "release"}


def test_when_the_clock_went_back_nothing_is_commanded() -> None:
    seen = running()
    assert checked(seen, past=Past(seen.now, latest=seen.now - 60)).frozen is None
    verdict = checked(seen, past=Past(seen.now, latest=seen.now + 7200))
    assert verdict.frozen == Reason("clock jump", {"back": 7200.0})


def test_a_snapshot_that_lacks_most_jobs_is_not_believed() -> None:
    seen = replace(running(9), missing=11)
    assert checked(seen, past=Past(seen.now, alive=22)).frozen is None
    assert checked(replace(seen, missing=0), past=Past(seen.now, alive=20)).frozen is None
    assert checked(replace(seen, missing=19), past=Past(seen.now, alive=19)).frozen is None
    lacking = Reason("partial snapshot", {"missing": 11, "alive": 20})
    assert checked(seen, past=Past(seen.now, alive=20)).frozen == lacking


@pytest.mark.parametrize(("attained", "before", "passes"), [(590, 0, False), (600, 0, True), (600, 1, False)])
def test_requeues_cost_a_job_a_share_of_its_gpu_time_at_most(attained: float, before: int, passes: bool) -> None:
    seen = running(gpus=1, restartable=True, attained=attained, started=NOW - 5000)
    past = Past(seen.now, requeues=(Requeue(seen.jobs.keys[0], "ada", NOW - 4000),) * before)
    plan = Plan(np.zeros(1), actions=(Action("preempt", seen.jobs.keys[0], Reason("makes room")),))
    verdict = check(seen, plan, past, ACT, Guardrails())
    assert vetoes(verdict) == ([] if passes else ["waste"])


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_a_mode_that_does_not_act_lets_nothing_through_and_says_which_it_is(mode: Any) -> None:
    verdict = checked(running(2), modes=Modes(default=mode))
    assert (verdict.actions, verdict.acting) == ((), frozenset())
    assert [(reason.rule, reason.facts["mode"]) for _, reason in verdict.vetoes] == [("mode", mode)] * 2
    assert np.isnan(verdict.score).all()


def test_each_kind_of_action_has_its_own_mode() -> None:
    verdict = checked(running(1), modes=Modes(default="observe", stop="act"))
    assert len(verdict.actions) == 1
    assert verdict.acting == {"stop"}
    assert np.isnan(verdict.score).all()
    verdict = checked(running(1), modes=Modes(default="act", stop="observe"))
    assert (vetoes(verdict), verdict.score.tolist()) == (["mode"], [0.0])


def test_kinds_that_no_line_names_go_by_the_default() -> None:
    seen = running(1)
    plan = Plan(np.zeros(1), actions=(Action("preempt", seen.jobs.keys[0], Reason("x")),))
    assert vetoes(check(seen, plan, Past(NOW), Modes(stop="act", rank="act"), Guardrails())) == ["mode"]


def test_a_pause_observes_whatever_the_mode() -> None:
    verdict = checked(running(1), past=Past(NOW, paused=True))
    assert (vetoes(verdict), verdict.acting) == (["paused"], frozenset())
    assert np.isnan(verdict.score).all()


@pytest.mark.parametrize(
    ("rule", "columns", "limits"),
    [
        ("held", {"held": True}, {}),
        ("interactive", {"interactive": True}, {}),
        ("unmanaged", {"managed": False}, {}),
        ("excluded", {"user": "root"}, {"exclude_users": {"root"}}),
        ("excluded", {"account": "ops"}, {"exclude_accounts": {"ops"}}),
        ("excluded", {"qos": "urgent"}, {"exclude_qos": {"urgent"}}),
        ("excluded", {"partition": "debug"}, {"exclude_partitions": {"debug"}}),
        ("excluded", {"partition": "gpu,debug,cpu"}, {"exclude_partitions": {"debug"}}),
        ("excluded", {"name": "benchmark-7"}, {"exclude_names": {"bench*"}}),
    ],
)
def test_a_protected_job_is_neither_stopped_nor_ranked(rule: str, columns: Any, limits: Any) -> None:
    one = {
        name: [value, {"held": False, "interactive": False, "managed": True}.get(name, "other")]
        for name, value in columns.items()
    }
    verdict = checked(running(2, **one), **limits)
    assert vetoes(verdict) == [rule]
    assert [action.job.job_id for action in verdict.actions] == [2]
    assert np.isnan(verdict.score).tolist() == [True, False]
    assert verdict.protected_by[rule].tolist() == [True, False]


def test_what_an_operator_took_back_is_left_alone() -> None:
    verdict = checked(running(2), past=Past(NOW, given_back=frozenset({1})))
    assert vetoes(verdict) == ["given back"]
    assert np.isnan(verdict.score).tolist() == [True, False]


def test_a_pattern_does_not_match_what_only_begins_alike_or_in_other_letters() -> None:
    seen = running(3, name=["bench", "benchmark", "BENCH"])
    assert [action.job.job_id for action in checked(seen, exclude_names={"bench"}).actions] == [2, 3]


def test_every_protection_has_a_rule_of_its_own_and_answers_for_no_jobs() -> None:
    assert len({protection.rule for protection in PROTECTIONS}) == len(PROTECTIONS)
    assert checked(running(0)).score.tolist() == []


def test_a_job_that_does_not_run_is_not_stopped() -> None:
    seen = running(4, state=["pending", "completing", "suspended", "running"])
    verdict = checked(seen)
    assert vetoes(verdict) == ["not running"] * 2
    assert [action.job.job_id for action in verdict.actions] == [3, 4]


def test_a_stop_that_was_given_up_is_left_alone_for_a_while() -> None:
    seen = running(2)
    assert vetoes(checked(seen, past=Past(NOW, gave_up=frozenset(seen.jobs.keys[:1])))) == ["gave up"]


def test_a_job_that_ran_on_after_a_request_to_stop_is_not_asked_again() -> None:
    seen = running(2)
    assert vetoes(checked(seen, past=Past(NOW, ignored=frozenset(seen.jobs.keys[:1])))) == ["ignored"]


def test_no_more_stops_than_a_cycle_may_have() -> None:
    verdict = checked(running(5), stops_per_cycle=2)
    assert [action.job.job_id for action in verdict.actions] == [1, 2]
    assert vetoes(verdict) == ["stops per cycle"] * 3
    assert vetoes(checked(running(1), stops_per_cycle=0)) == ["stops per cycle"]


def test_no_more_stops_than_an_hour_may_have() -> None:
    past = Past(NOW, stops_last_hour={"ada": 5, "eve": 3})
    verdict = checked(running(5), past=past, stops_per_hour=10, stops_per_user=10)
    assert (len(verdict.actions), vetoes(verdict)) == (2, ["stops per hour"] * 3)
    more = replace(past, stops_last_hour={"eve": 99})
    assert vetoes(checked(running(1), past=more, stops_per_hour=10, stops_per_user=10)) == ["stops per hour"]


def test_stops_under_way_that_are_said_again_take_nothing_from_the_new_ones() -> None:
    seen = running(4)
    past = Past(NOW, stops_last_hour={"ada": 2}, stopping=frozenset(seen.jobs.keys[:2]))
    verdict = checked(seen, past=past, stops_per_cycle=1, stops_per_hour=3, stops_per_user=3)
    assert [action.job.job_id for action in verdict.actions] == [1, 2, 3]


def test_vetoed_stops_take_nothing_from_the_budget() -> None:
    seen = running(3, managed=[False, False, True])
    assert [action.job.job_id for action in checked(seen, stops_per_cycle=1).actions] == [3]


@pytest.mark.parametrize(("age", "frozen"), [(0.0, False), (120.0, False), (120.1, True), (-0.1, True), (np.nan, True)])
def test_a_stale_snapshot_freezes_everything(age: float, frozen: bool) -> None:
    verdict = checked(running(1), past=Past(NOW + age), snapshot_age=120.0)
    assert (verdict.frozen is not None) == frozen
    assert verdict.frozen is None or verdict.frozen.rule == "stale snapshot"


def test_the_breaker_opens_rests_and_lets_one_cycle_try() -> None:
    def frozen(failures: int, seconds_ago: float) -> str:
        past = Past(NOW, failures_in_a_row=failures, last_failure=NOW - seconds_ago)
        reason = checked(running(1), past=past, breaker_failures=3, breaker_rest=600.0).frozen
        return reason.rule if reason else ""

    assert [frozen(2, 1.0), frozen(3, 1.0), frozen(3, 599.0), frozen(3, 600.0), frozen(4, 1.0)] == [
        "", "breaker", "breaker", "", "breaker",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(np.zeros(3)), r"score is one number per job, not float64 \(3,\)"),
        (Plan(np.zeros((2, 1))), "score"),
        (Plan(np.array(["a", "b"])), "score"),
        (Plan(np.zeros(2), {"P": np.zeros(1)}), "P is one number per job"),
        (Plan(np.zeros(2), actions=(Action("stop", JobKey(CLUSTER, 9, 0), Reason("x")),)), "not in the snapshot"),
        (Plan(np.zeros(2), notes={JobKey(CLUSTER, 9, 0): Reason("x")}), "not in the snapshot"),
        (Plan(np.zeros(2), notes={JobKey(CLUSTER, 1, int(NOW)): Reason("x", {"n": NUMPYS_NUMBER})}), "facts of x"),
        (Plan(np.zeros(2), memory={"x": [1, 2]}), "memory"),  # type: ignore[dict-item]
        (Plan(np.zeros(2), memory={"x": np.array([None])}), "memory"),
    ],
)  # fmt: skip
def test_a_plan_that_is_none_for_this_snapshot_is_refused(plan: Plan, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        validate_plan(running(2), plan)


def test_a_sound_plan_is_handed_on() -> None:
    seen = running(2)
    plan = Plan(
        np.array([1, np.nan]),
        {"P": np.ones(2)},
        stops(seen),
        {"x": np.array(["a"])},
        {seen.jobs.keys[1]: Reason("y", {"z": 1.0})},
    )
    assert validate_plan(seen, plan) is plan


def test_a_plan_that_gives_parameter_servers_to_a_job_without_any_is_not_valid() -> None:
    seen = snapshot(jobs(1), nodes(1))

    def plan(*counts: int) -> Plan:
        action = Action("place", seen.jobs.keys[0], Reason("its turn"), 1, ("n1",), (1,), servers=counts)
        return Plan(np.zeros(1), actions=(action,))

    assert validate_plan(seen, plan()) == plan()
    for unlike in (seen, replace(seen, servers=servers(1, most=0))):
        with pytest.raises(ValueError, match="only simulated jobs can be given any"):
            validate_plan(unlike, plan(2))
    simulated = replace(seen, servers=servers(1))
    assert validate_plan(simulated, plan(2)).actions[0].servers == (2,)
    with pytest.raises(ValueError, match="on 2 of 1 nodes"):
        validate_plan(simulated, plan(2, 1))


# --- resizing, moving, preempting, admitting


MOVER = JobKey(CLUSTER, 1, int(NOW))


def moved(
    kind: Any = "preempt",
    *,
    past: Past | None = None,
    modes: Modes = ACT,
    placement: Any = "pin",
    places: bool = False,
    **given: Any,
) -> str:
    """The rule by which this action on a job that runs is vetoed; empty where it may be done."""
    limits = given.pop("limits", {})
    action: dict[str, Any] = {"gpus": 4} if kind == "resize" else {}
    columns: dict[str, Any] = {
        "state": "running",
        "gpus": 2,
        "gpus_max": 8,
        "gpus_min": 1,
        "restartable": True,
        "started": NOW - 1e4,
        "attained": 1e6,
    }
    seen = snapshot(jobs(1, **{**columns, **given}), nodes(1))
    plan = Plan(np.zeros(1), actions=(Action(kind, seen.jobs.keys[0], Reason("share"), **action),))
    verdict = check(seen, plan, past or Past(NOW), modes, Guardrails(**limits), placement=placement, places=places)
    return vetoes(verdict)[0] if verdict.vetoes else ""


@pytest.mark.parametrize("kind", ["resize", "migrate", "preempt"])
def test_a_job_that_declared_a_checkpoint_may_be_moved(kind: Any) -> None:
    assert moved(kind) == ""
    assert moved(kind, restartable=False) == "not restartable"
    assert moved(kind, part_of_gpu=True) == "part of a GPU"
    assert moved(kind, past=Past(NOW, lost_progress=frozenset({MOVER}))) == "checkpoint not kept"
    assert moved(kind, past=Past(NOW, move_gave_up=frozenset({MOVER}))) == "gave up moving"
    assert moved(kind, past=Past(NOW, fresh=frozenset({MOVER}))) == "first seen"
    assert moved(kind, modes=Modes.from_table({"default": "act", kind: "observe"})) == "mode"


def test_a_resize_keeps_to_the_range_that_was_asked_for() -> None:
    assert moved("resize", gpus_max=3) == "range"
    assert moved("resize", gpus=4) == "range"
    assert moved("resize", state="pending", restartable=False) == ""
    assert moved("migrate", state="pending") == "not running to move"


def test_a_job_is_requeued_seldom_and_not_for_ever() -> None:
    once = Past(NOW, requeues=(Requeue(MOVER, "ada", NOW - 100.0),))
    assert moved(past=once, limits={"requeue_cooldown": 101}) == "cooldown"
    assert moved(past=once, limits={"requeue_cooldown": 99}) == ""
    assert moved(past=once, limits={"requeue_cooldown": 0, "requeues_per_job": 1}) == "requeues per job"


def test_a_job_that_found_no_room_is_asked_to_save_again_after_the_cooldown() -> None:
    past = Past(NOW, found_no_room={MOVER: NOW - 100.0})
    assert moved(past=past, limits={"requeue_cooldown": 101}) == "no room lately"
    assert moved(past=past, limits={"requeue_cooldown": 99}) == ""


def test_a_job_runs_for_some_time_before_it_is_preempted_but_not_before_it_is_moved() -> None:
    assert moved(limits={"minimum_run": 10_001}) == "minimum run"
    assert moved("migrate", limits={"minimum_run": 10_001}) == ""


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"requeues_per_cycle": 2}, 2),
        ({"requeues_per_hour": 4, "requeues_per_user": 4}, 1),  # two were, and one is being requeued
        ({"requeues_per_user": 3}, 1),  # ada had one in the last hour, and has one under way
        ({}, 3),
    ],
)
def test_requeues_have_budgets_by_cycle_hour_and_user(limits: dict[str, Any], allowed: int) -> None:
    seen = snapshot(jobs(3, state="running", restartable=True, started=NOW - 1e4, attained=1e6), nodes(1))
    other = [JobKey(CLUSTER, number, int(NOW)) for number in (11, 12, 13, 14)]
    past = Past(
        NOW,
        requeues=(
            Requeue(other[0], "ada", NOW - 60),
            Requeue(other[1], "eve", NOW - 60),
            Requeue(other[2], "ada", NOW - 1e4),
        ),
        moving={other[3]: "ada"},
    )
    plan = Plan(np.zeros(3), actions=tuple(Action("preempt", key, Reason("share")) for key in seen.jobs.keys))
    assert len(check(seen, plan, past, ACT, Guardrails(**limits)).actions) == allowed


def test_a_move_under_way_is_not_counted_again() -> None:
    past = Past(NOW, moving={MOVER: "ada"}, requeues=(Requeue(MOVER, "ada", NOW - 1),))
    assert moved(past=past, limits={"requeues_per_cycle": 0}) == ""


@pytest.mark.parametrize(
    ("placement", "kind", "rule"),
    [
        ("off", "place", "placement"), ("pin", "place", "placement"), ("pin", "migrate", ""),
        ("off", "migrate", "placement"), ("exclude", "migrate", ""), ("off", "resize", ""),
    ],
)  # fmt: skip
def test_where_jobs_run_is_slurms_to_say_unless_the_site_says_otherwise(placement: str, kind: Any, rule: str) -> None:
    assert moved(kind, placement=placement) == rule
    if rule:
        assert moved(kind, placement=placement, modes=Modes(default="observe")) == rule


def test_where_the_policy_places_every_job_it_is_not_bounded() -> None:
    assert moved("place", places=True) == ""
    assert moved(places=True, restartable=False, limits={"requeues_per_cycle": 0}) == ""


def test_admission_needs_its_own_mode_and_a_job_that_waits_for_it() -> None:
    waits: dict[str, Any] = {"state": "pending", "held": True, "awaits": True}
    assert moved("release", **waits) == "mode"
    assert moved("release", **waits, modes=Modes(admit="act")) == ""
    assert moved("release", state="pending", held=True, modes=Modes(admit="act")) == "held"
    assert moved("release", state="pending", modes=Modes(admit="act")) == "not waiting for admission"

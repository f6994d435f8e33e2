"""A placement where Slurm starts the jobs: which become a change of a waiting job's size, and when it is given back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.cluster.limits import Limits
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules import sizes
from slurmplug.rules.guardrails import GivenSize, Past, check
from slurmplug.rules.time_limits import TimeLimits
from tests.builders import NOW, jobs, nodes, snapshot

LIMITS = Guardrails(size_least=0.0)


def waiting(n: int = 1, free: int = 4, there: int = 1, **columns: Any) -> Snapshot:
    """Elastic jobs that wait with four GPUs each; so many of each node's four are free."""
    given = {"gpus": 4, "gpus_min": 1, "gpus_max": 8, "reason": "Resources", "restartable": True, **columns}
    used = [4.0 - free, 0.0, 0.0]
    return snapshot(jobs(n, **given), nodes(there, used=[used] * there))


def key(seen: Snapshot, row: int = 0) -> JobKey:
    return seen.jobs.keys[row]


def place(seen: Snapshot, gpus: int, row: int = 0, there: tuple[str, ...] = ("n1",)) -> Action:
    return Action("place", key(seen, row), Reason("its turn"), gpus, there, (gpus // len(there),) * len(there))


def resized(
    seen: Snapshot, *actions: Action, limits: Guardrails = LIMITS, forecasts: Forecasts | None = None, **past: Any
) -> list[tuple[int, int | None, int]]:
    """The row, the GPUs and the number of nodes of each resize."""
    plan = Plan(np.zeros(len(seen.jobs)), actions=actions)
    known = forecasts or Forecasts.unknown(len(seen.jobs))
    after = sizes.with_resizes(seen, plan, Past(seen.now, **past), limits, TimeLimits(seen, known, limits, Limits()))
    assert {action.kind for action in after.actions} <= {"resize"}
    return [(seen.jobs.keys.index(each.job), each.gpus, len(each.nodes)) for each in after.actions]


def given(asked: int, now: int) -> GivenSize:
    return GivenSize(asked, now, {"Gres": f"gpu:{asked}"}, {"Gres": f"gpu:{now}"})


def test_the_size_that_is_requested_needs_nothing_and_another_one_is_a_resize() -> None:
    seen = waiting()
    assert resized(seen, place(seen, 4)) == []
    assert resized(seen, place(seen, 2)) == [(0, 2, 1)]


@pytest.mark.parametrize(
    "columns", [{"managed": False}, {"reason": "Dependency"}, {"elements": 3}, {"gpus_min": 4, "gpus_max": 4}]
)
def test_jobs_that_slurm_would_not_start_or_that_are_not_elastic_keep_their_size(columns: Any) -> None:
    seen = waiting(**columns)
    assert resized(seen, place(seen, 2)) == []


def test_there_has_to_be_room_now_beside_the_jobs_that_are_placed_before() -> None:
    seen = waiting(3)
    wanted = [place(seen, 2, row) for row in range(3)]
    assert resized(seen, *wanted) == [(0, 2, 1), (1, 2, 1)]
    whole = waiting(2)
    assert resized(whole, place(whole, 4, 0), place(whole, 2, 1)) == []


def test_who_can_be_restarted_starts_on_what_is_there_and_anybody_else_waits_for_the_size_of_the_policy() -> None:
    seen = waiting(free=2)
    assert resized(seen, place(seen, 3)) == [(0, 2, 1)]
    assert resized(seen, place(seen, 6)) == []
    least = waiting(free=2, gpus_min=3)
    assert resized(least, place(least, 3)) == []
    moldable = waiting(free=2, restartable=False)
    assert resized(moldable, place(moldable, 3)) == []
    assert resized(moldable, place(moldable, 2)) == [(0, 2, 1)]


def test_a_size_is_in_equal_numbers_on_each_node() -> None:
    seen = waiting(gpus=8, free=3, there=2)
    assert resized(seen, place(seen, 6, there=("n1", "n2"))) == [(0, 6, 2)]
    assert resized(seen, place(seen, 5, there=("n1", "n2"))) == [(0, 4, 2)]


def test_a_small_change_is_not_written_where_the_job_can_start_as_it_is() -> None:
    seen = waiting(gpus=8, gpus_max=8, there=2)
    assert resized(seen, place(seen, 7)) == []
    assert resized(seen, place(seen, 6)) == [(0, 6, 2)]
    full = waiting(gpus=8, gpus_max=8, free=4, there=1)
    assert resized(full, place(full, 4)) == [(0, 4, 1)]


def test_a_size_is_changed_once_in_an_interval() -> None:
    seen = waiting()
    lately: dict[str, Any] = {"size_changed": {key(seen): NOW - 299}, "sizes": {key(seen): given(2, 4)}}
    assert resized(seen, place(seen, 1), **lately) == []
    assert resized(seen, place(seen, 1), **lately, limits=Guardrails(size_interval=60, size_least=0.0)) == [(0, 1, 1)]


def test_who_did_not_start_gets_back_what_it_asked_for_once_the_policy_wants_another_size_or_none() -> None:
    seen = waiting(gpus=2, free=0)
    past: dict[str, Any] = {"size_changed": {key(seen): NOW - 400}, "sizes": {key(seen): given(4, 2)}}
    assert resized(seen, **past) == [(0, 4, 0)]
    assert resized(seen, place(seen, 3), **past) == [(0, 4, 0)]
    assert resized(seen, place(seen, 2), **past) == []
    assert resized(seen, size_changed={key(seen): NOW - 200}, sizes=past["sizes"]) == []
    starts = waiting(gpus=2, free=2)
    assert resized(starts, place(starts, 2), **past) == []
    assert resized(waiting(gpus=2, free=0, held=True), **past) == []
    assert resized(waiting(gpus=2, state="running"), **past) == []


def test_who_is_being_moved_is_left_alone() -> None:
    seen = waiting()
    moving: dict[str, Any] = {"moving": {key(seen): "ada"}, "sizes": {key(seen): given(2, 4)}}
    assert resized(seen, place(seen, 2), **moving) == []
    assert resized(seen, **moving) == []


def run_time(seconds: float) -> Forecasts:
    """So many seconds on four GPUs; the speed is proportional to the GPUs."""
    speeds = [Forecast.certain(float(gpus), "measured speed") for gpus in (1, 2, 4, 8)]
    fan = Fan.of(1, [0], np.array([[1.0, 2.0, 4.0, 8.0]]), speeds)
    return replace(Forecasts.unknown(1), remaining=Forecast.certain(seconds, "history"), speed=fan)


def test_a_job_gets_at_least_the_gpus_with_which_it_ends_within_its_time_limit() -> None:
    seen = waiting(time_limit=3600.0)
    assert resized(seen, place(seen, 1), forecasts=run_time(800.0)) == [(0, 1, 1)]
    assert resized(seen, place(seen, 1), forecasts=run_time(1700.0)) == [(0, 2, 1)]
    assert resized(seen, place(seen, 1), forecasts=run_time(3500.0)) == []
    raised = Guardrails(raise_time_limit=2.0, size_least=0.0)
    assert resized(seen, place(seen, 1), forecasts=run_time(1700.0), limits=raised) == [(0, 1, 1)]


def test_where_the_site_allows_it_a_resize_says_which_time_limit_it_requires() -> None:
    seen = waiting(time_limit=3600.0)
    resize = Action("resize", key(seen), Reason("starts"), 1)
    plan, act = Plan(np.zeros(1), actions=(resize,)), Modes(default="act")
    for factor, expected in ((1.0, []), (1.5, []), (2.0, [6800.0])):
        limits = Guardrails(raise_time_limit=factor)
        times = TimeLimits(seen, run_time(1700.0), limits, Limits())
        verdict = check(seen, plan, Past(seen.now), act, limits, times=times)
        assert [action.time_limit for action in verdict.actions] == expected
        assert [reason.rule for _, reason in verdict.vetoes] == ["time limit"] * (1 - len(expected))


def test_what_was_asked_for_may_be_given_back_whatever_the_range_and_the_time_limit() -> None:
    seen = waiting(gpus=2, gpus_min=2, time_limit=3600.0)
    back = Action("resize", key(seen), Reason("size given back"), 1)
    past = Past(seen.now, sizes={key(seen): given(1, 2)})
    times = TimeLimits(seen, run_time(3500.0), LIMITS)
    verdict = check(seen, Plan(np.zeros(1), actions=(back,)), past, Modes(default="act"), LIMITS, times=times)
    assert verdict.actions == (back,)


def test_sizes_are_writes_of_which_there_are_so_many_in_a_cycle() -> None:
    seen = waiting(3, there=3)
    plan = Plan(np.zeros(3), actions=tuple(Action("resize", each, Reason("starts"), 2) for each in seen.jobs.keys))
    verdict = check(seen, plan, Past(seen.now), Modes(default="act"), Guardrails(writes_per_cycle=2))
    assert (len(verdict.actions), [reason.rule for _, reason in verdict.vetoes]) == (2, ["writes per cycle"])


def test_a_policy_that_resizes_a_waiting_job_itself_is_held_to_the_interval_too() -> None:
    seen = waiting()
    past = Past(seen.now, size_changed={key(seen): NOW - 1})
    plan = Plan(np.zeros(1), actions=(Action("resize", key(seen), Reason("share"), 2),))
    verdict = check(seen, plan, past, Modes(default="act"), LIMITS)
    assert [reason.rule for _, reason in verdict.vetoes] == ["size changed lately"]


def test_no_job_starts_on_less_than_the_sites_part_of_what_it_asked_for() -> None:
    seen, half = waiting(), Guardrails(size_least=0.5)
    assert resized(seen, place(seen, 1), limits=half) == [(0, 2, 1)]
    assert resized(seen, place(seen, 3), limits=half) == [(0, 3, 1)]
    tight = waiting(free=1)
    assert resized(tight, place(tight, 1), limits=half) == []
    shrunk: dict[str, Any] = {"sizes": {key(seen): given(8, 4)}}
    seen = waiting(requested=[8.0, 1.0, 0.0])
    assert resized(seen, place(seen, 2), limits=half, **shrunk) == []

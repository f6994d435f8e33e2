"""Who is ranked first whatever the policy says: who waited too long, and who was passed too often."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.plan import NOTHING_REMEMBERED, Memory, OtherJob, Plan, Reason
from policies.snapshot import Snapshot
from predictors.forecast import Forecast, Forecasts
from slurmplug.config.schema import Guardrails
from slurmplug.rules.precedence import Waits, put_first, remembered, waits
from tests.builders import NOW, jobs, nodes, snapshot

HOUR = 3600.0


def forecasts(seen: Snapshot, *seconds: float) -> Forecasts:
    known = Forecast.certain(np.array(seconds), "test")
    return replace(Forecasts.unknown(len(seen.jobs)), remaining=known)


def queue(now: float, *, other_came: float, **columns: Any) -> Snapshot:
    """A job of four GPUs that came at NOW and needs 100 s, and one that runs on all GPUs since then."""
    waited = now - NOW
    started = max(NOW, other_came)
    both = jobs(
        2, state=["pending", "running"], waited=[waited, started - other_came], started=[np.nan, started],
        **{"gpus": 4, **columns},
    )  # fmt: skip
    return snapshot(both, nodes(1), now=now, runs_on=np.array([[1, 0, 4]]))


def followed(other_came: float, seconds: float = 300.0, **columns: Any) -> tuple[Snapshot, Forecasts, Waits]:
    """After so many seconds of cycles, one each 10 s. The other job needs no more."""
    memory: Memory = NOTHING_REMEMBERED
    for now in np.arange(NOW, NOW + seconds + 1, 10.0):
        seen = queue(now, other_came=other_came, **columns)
        told = forecasts(seen, 100.0, 0.0)
        found = waits(seen, told, memory)
        memory = remembered(seen, found)
    return seen, told, found


def ranked(seen: Snapshot, told: Forecasts, found: Waits | None, **limits: Any) -> Plan:
    return put_first(seen, Plan(np.array([1.0, 2.0])), Guardrails(**limits), told, found)


def test_who_waited_too_long_goes_first_and_is_told_so() -> None:
    seen = snapshot(jobs(5, waited=[10, 900, 800, 900, 700], managed=[True, True, True, False, True]))
    plan = Plan(np.array([9.0, 1.0, 2.0, np.nan, np.nan]))
    plan = put_first(seen, plan, Guardrails(max_wait=600), Forecasts.unknown(5), None)
    assert plan.score[[1, 2]].tolist() == [11.0, 10.0]
    assert plan.score[0] == 9.0
    assert np.isnan(plan.score[[3, 4]]).all()
    assert {key.job_id: reason.rule for key, reason in plan.notes.items()} == {2: "starvation", 3: "starvation"}


def test_who_takes_too_long_because_later_jobs_were_put_before_it_goes_first() -> None:
    """Without the other it would have begun at once and taken 100 s; so far it takes 400."""
    seen, told, found = followed(other_came=NOW + 1)
    assert (found.had[0], found.without[0]) == (0.0, 0.0)
    plan = ranked(seen, told, found)
    assert plan.score.tolist() == [3.0, 2.0]
    by = OtherJob(seen.jobs.keys[1], 2.0)
    assert plan.notes == {seen.jobs.keys[0]: Reason("passed too often", {"times": 4.0, "limit": 2.0, "by": by})}
    assert ranked(seen, told, found, max_bypass=4.0).score.tolist() == [1.0, 2.0]
    assert ranked(seen, told, found, max_bypass=3.9).score.tolist() == [3.0, 2.0]


def test_of_the_later_jobs_the_one_with_most_gpus_is_named() -> None:
    came = NOW - np.array([400.0, 500.0, 300.0, 200.0, 100.0])
    seen = snapshot(
        jobs(
            5,
            gpus=[4, 1, 1, 2, 1],
            state=["pending", *["running"] * 4],
            waited=[400, 0, 0, 0, 0],
            started=[np.nan, *came[1:]],
        ),
        nodes(2),
        runs_on=np.array([[1, 0, 1], [2, 0, 1], [3, 1, 2], [4, 1, 1]]),
    )
    found = waits(seen, forecasts(seen, 100.0, 0.0, 0.0, 0.0, 0.0), NOTHING_REMEMBERED)
    assert found.passed_by.tolist() == [3, -1, -1, -1, -1]


def test_who_waits_for_those_that_came_before_is_not_put_before_them() -> None:
    seen, told, found = followed(other_came=NOW - 1)
    assert (found.had[0], found.without[0]) == (300.0, 300.0)
    assert ranked(seen, told, found, max_bypass=1.0).score.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "columns", [{"qos": ["normal", "high"]}, {"managed": [True, False]}, {"partition": ["a", "b"]}]
)
def test_what_slurmplug_does_not_order_passes_nobody(columns: dict[str, Any]) -> None:
    seen, told, found = followed(other_came=NOW + 1, **columns)
    assert found.without[0] == 300.0
    assert ranked(seen, told, found).notes == {}


def test_work_that_waits_ahead_counts_as_a_wait_without_later_jobs_too() -> None:
    seen = snapshot(jobs(3, gpus=[2, 1, 4], waited=[300, 200, 100]), nodes(1))
    found = waits(seen, forecasts(seen, 1000.0, 400.0, 100.0), NOTHING_REMEMBERED)
    assert found.without.tolist() == [300.0, 200 + 2 * 1000 / 4, 100 + (2 * 1000 + 400) / 4]


def test_a_part_of_the_work_ahead_counts_that_may_run_on_other_nodes() -> None:
    """The first job fits on both nodes, the second on one of them."""
    fits = np.array([[True, True], [True, False]])
    seen = snapshot(jobs(2, gpus=4, waited=[300, 200], placement=[0, 1]), nodes(2), fits=fits)
    found = waits(seen, forecasts(seen, 1000.0, 100.0), NOTHING_REMEMBERED)
    assert found.without.tolist() == [300.0, 200 + 4 * 500 / 4]


def test_time_that_was_not_seen_was_not_passed() -> None:
    """A first cycle finds a job that has waited for hours behind one that came later."""
    seen = snapshot(
        jobs(2, gpus=4, state=["pending", "running"], waited=[5 * HOUR, 0], started=[np.nan, NOW - 100]),
        nodes(1),
        runs_on=np.array([[1, 0, 4]]),
    )
    told = forecasts(seen, 100.0, 0.0)
    found = waits(seen, told, NOTHING_REMEMBERED)
    assert found.without[0] == 5 * HOUR
    assert ranked(seen, told, found).notes == {}


def test_the_reason_why_a_job_is_first_is_told_even_where_the_policy_says_something() -> None:
    seen, told, found = followed(other_came=NOW + 1)
    noted = Plan(np.array([1.0, 2.0]), notes={key: Reason("parent-missing") for key in seen.jobs.keys})
    plan = put_first(seen, noted, Guardrails(), told, found)
    assert [plan.notes[key].rule for key in seen.jobs.keys] == ["passed too often", "parent-missing"]


def test_what_a_cycle_counted_gives_the_same_answer_again_at_that_moment() -> None:
    """As for a model in shadow, which is asked after the cycle."""
    seen, told, found = followed(other_came=NOW + 1)
    again = waits(seen, told, remembered(seen, found))
    assert again.had.tolist() == found.had.tolist()
    assert again.without[0] == found.without[0]


def test_the_bound_can_be_off_and_max_wait_holds_without_it() -> None:
    seen, told, found = followed(other_came=NOW + 1)
    assert ranked(seen, told, found, max_bypass=float("inf")).notes == {}
    assert ranked(seen, told, None, max_wait=200.0).notes[seen.jobs.keys[0]].rule == "starvation"


def test_of_a_job_without_a_known_run_time_or_gpus_nothing_is_said() -> None:
    seen, _, found = followed(other_came=NOW + 1)
    assert ranked(seen, Forecasts.unknown(2), found).notes == {}
    seen, told, found = followed(other_came=NOW + 1, gpus=[0, 4])
    assert np.isnan(found.without[0])
    assert ranked(seen, told, found).notes == {}

"""ElasticFlow: minimum satisfactory shares, admission and marginal returns, on jobs that are planned by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.baselines.elasticflow import ElasticFlow, ElasticFlowSettings
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

LINEAR = (1.0, 2.0, 4.0)
"""work a second on 1, 2 and 4 GPUs"""
TEN = ElasticFlowSettings(slot=10.0, margin=0.0)


def queue(work: Sequence[float], due: Sequence[float], **columns: Any) -> Snapshot:
    """Waiting elastic jobs for 4 GPUs: iterations left, and seconds to the deadline."""
    n = len(work)
    given = {
        "gpus": 1,
        "gpus_min": 1,
        "gpus_max": 4,
        "submitted": NOW - n + np.arange(n),
        "max_iterations": work,
        "deadline": NOW + np.array(due),
    } | columns
    return snapshot(jobs(n, **given), nodes(1))


def decide(given: Snapshot, speeds: Mapping[int, Sequence[float]] = {}, memory: Memory = NOTHING_REMEMBERED) -> Plan:
    n = len(given.jobs)
    at = np.tile([1.0, 2.0, 4.0], (n, 1))
    values = np.array([speeds.get(row, LINEAR) for row in range(n)])
    each = [Forecast.certain(column, "test") for column in values.T]
    known = forecasts(n, remaining=given.jobs.max_iterations)
    return ElasticFlow(TEN).decide(given, replace(known, speed=Fan.of(n, np.arange(n), at, each)), memory)


def admitted(plan: Plan) -> list[int]:
    return list(plan.memory["job_id"][plan.memory["admitted"]].tolist())


def gpus(plan: Plan) -> dict[int, int | None]:
    return {action.job.job_id: action.gpus for action in plan.actions if action.kind == "place"}


def test_a_share_is_the_fewest_gpus_that_end_a_job_in_time() -> None:
    # 60 iterations in 30 s take two GPUs, as do 80 in 40 s; nothing is left over.
    assert gpus(decide(queue([60, 80], [30, 40]))) == {1: 2, 2: 2}


def test_a_job_takes_its_share_of_what_earlier_deadlines_leave_in_each_slot() -> None:
    # The first has three GPUs for 20 s. The second has one until then, so it ends in time only on all four after.
    plan = decide(queue([60, 60], [20, 30]))
    assert admitted(plan) == [1, 2]
    assert gpus(plan) == {1: 3, 2: 1}
    assert admitted(decide(queue([60, 61], [20, 30]))) == [1]


def test_the_last_slot_ends_at_the_deadline() -> None:
    assert admitted(decide(queue([100], [25.0]))) == [1]
    assert admitted(decide(queue([100], [24.9]))) == []


def test_a_job_is_refused_that_would_make_an_admitted_one_late() -> None:
    # Alone the second would end in time, but the first is admitted, and all of it is needed.
    plan = decide(queue([80, 40], [20, 15]))
    assert admitted(plan) == [1]
    assert gpus(plan) == {1: 4}


def test_a_refused_job_runs_on_what_is_left_and_is_not_offered_again() -> None:
    first = decide(queue([400, 20], [20, 40]))
    assert admitted(first) == [2]
    assert gpus(first) == {1: 3, 2: 1}
    assert admitted(decide(queue([40, 20], [20, 40]), memory=first.memory)) == [2]


def test_an_admitted_job_that_falls_behind_keeps_its_turn_and_bars_no_other() -> None:
    before = decide(queue([60], [20]))
    late = decide(queue([90, 10], [20, 90]), memory=before.memory)
    assert admitted(late) == [1, 2]
    assert gpus(late) == {1: 4}
    past = decide(queue([90, 10], [-5, 90]), memory=before.memory)
    assert set(gpus(past)) == {1, 2}


def test_gpus_left_over_go_where_they_save_most_gpu_time() -> None:
    # Both need one GPU. One more makes the first half as fast again, the second twice as fast.
    plan = decide(queue([10, 10], [100, 100]), {0: (1.0, 1.5, 1.6), 1: (1.0, 2.0, 2.1)})
    assert gpus(plan) == {1: 2, 2: 2}
    plan = decide(queue([10, 10], [100, 100]), {0: (1.0, 1.01, 1.02), 1: (1.0, 2.0, 4.0)})
    assert gpus(plan) == {1: 1, 2: 3}


def test_jobs_without_a_deadline_have_their_minimum_after_the_admitted_ones_the_shortest_first() -> None:
    plan = decide(queue([60, 500, 50, 70], [20, np.nan, np.nan, np.nan], gpus_max=[4, 1, 1, 1]))
    assert gpus(plan) == {1: 3, 3: 1}


def test_a_rigid_job_has_its_own_size_or_none() -> None:
    rigid = queue([10, 25], [10, 20], gpus=3, gpus_min=3, gpus_max=3)
    plan = decide(rigid)  # it takes 25 s, and could begin only after 10
    assert admitted(plan) == [1]
    assert gpus(plan) == {1: 3}


def test_jobs_that_are_not_managed_keep_their_gpus() -> None:
    given = queue([60, 60], [20, 20], managed=[False, True], gpus=[2, 1], gpus_min=[2, 1], gpus_max=[2, 4])
    assert admitted(decide(given)) == []
    assert gpus(decide(given)) == {1: 2, 2: 2}


def test_a_margin_leaves_room_for_forecasts_that_err() -> None:
    rigid = snapshot(jobs(1, gpus=4, deadline=NOW + 120), nodes(1))
    for margin, kept in ((0.0, [1]), (0.2, [1]), (0.21, [])):
        policy = ElasticFlow(ElasticFlowSettings(slot=10.0, margin=margin))
        plan = policy.decide(rigid, forecasts(1, remaining=100.0), NOTHING_REMEMBERED)
        assert admitted(plan) == kept


def test_time_changes_its_decision_with_the_next_slot() -> None:
    assert ElasticFlow(TEN).until(replace(queue([1], [9]), now=1007.0)) == 1010.0


@pytest.mark.parametrize("wrong", [{"slot": 0.5}, {"slot": np.nan}, {"slots": 0}, {"margin": -0.1}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is "):
        ElasticFlowSettings(**wrong)  # type: ignore[arg-type]


def test_it_learns_nothing_from_an_empty_queue() -> None:
    empty = snapshot(jobs(0), nodes(1))
    assert ElasticFlow().decide(empty, Forecasts.unknown(0), NOTHING_REMEMBERED).actions == ()

"""From the GPUs that each job ought to have to actions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.placement.allocation import (
    allocate,
    elastic,
    gang_gpus,
    grow_elastic,
    held_gpus,
    leftover_gpus,
    movable,
    queue_order,
    score_from_order,
    startable,
)
from policies.placement.space import Placement, Space
from policies.plan import Action
from policies.snapshot import Snapshot
from tests.builders import NOW, jobs, nodes, snapshot


def placements(actions: tuple[Action, ...]) -> list[tuple[str, int, dict[str, int]]]:
    return [(action.kind, action.job.job_id, dict(zip(action.nodes, action.shares, strict=True))) for action in actions]


def running_and_waiting(**columns: Any) -> Snapshot:
    """Three nodes of four GPUs: job 1 has the first, job 2 half of the second, the others wait, as many as told."""
    n = len(columns["gpus"])
    given = {
        "state": ["running", "running", *["pending"] * (n - 2)],
        "restartable": True,
        "started": NOW - 100,
    } | columns
    held = columns["gpus"][:2]
    on_nodes = nodes(3, used=[[held[0], 1, 0], [held[1], 1, 0], [0, 0, 0]])
    return snapshot(jobs(n, **given), on_nodes, runs_on=np.array([[0, 0, held[0]], [1, 1, held[1]]]))


def test_a_job_may_start_if_it_waits_for_nothing_but_room() -> None:
    told_reasons = ["None", "Priority", "Resources", "Dependency", "BeginTime", "JobHeldUser", "Priority", "Priority"]
    of_jobs = jobs(8, reason=told_reasons, held=[False] * 6 + [True, False], awaits=[False] * 7 + [True])
    assert startable(of_jobs).tolist() == [True] * 3 + [False] * 5


def test_only_a_managed_running_job_with_a_checkpoint_can_be_moved() -> None:
    of_jobs = jobs(
        5,
        state=["running", "pending", "running", "running", "suspended"],
        managed=[True, True, False, True, True],
        restartable=[True, True, True, False, True],
    )
    assert movable(of_jobs).tolist() == [True, False, False, False, False]


def test_jobs_that_are_not_managed_come_first_by_submission() -> None:
    of_jobs = jobs(4, managed=[True, False, True, False], submitted=[NOW, NOW, NOW - 5, NOW - 1])
    assert queue_order(of_jobs, np.array([1.0, 9.0, 2.0, 9.0])).tolist() == [3, 1, 0, 2]


def test_what_is_unknown_comes_last_and_ties_go_by_submission() -> None:
    of_jobs = jobs(4, submitted=[NOW, NOW - 1, NOW - 2, NOW - 3])
    assert queue_order(of_jobs, np.array([5.0, 5.0, np.nan, 7.0])).tolist() == [1, 0, 3, 2]


def test_the_first_in_order_has_the_highest_rank_and_jobs_that_are_not_managed_none() -> None:
    of_jobs = jobs(3, managed=[True, False, True])
    score = score_from_order(of_jobs, np.array([2, 1, 0]))
    assert score[2] > score[0]
    assert np.isnan(score[1])


def test_the_one_node_with_the_fewest_free_gpus_that_suffices_is_chosen() -> None:
    space = Space(snapshot(jobs(1, gpus=2), nodes(3, used=[[0, 0, 0], [2, 0, 0], [3, 0, 0]])))
    assert space.fit(0, 2) == Placement((1,), (2,))
    assert space.fit(0, 2, "wide") == Placement((0,), (2,))


def test_a_job_that_fits_no_node_is_spread_over_the_fewest() -> None:
    space = Space(snapshot(jobs(1, gpus=7), nodes(4, used=[[2, 0, 0], [0, 0, 0], [1, 0, 0], [3, 0, 0]])))
    assert space.fit(0, 7) == Placement((1, 2), (4, 3))
    assert space.fit(0, 5) == Placement((1, 3), (4, 1))
    assert space.fit(0, 5, "wide") == Placement((1, 2), (4, 1))
    assert space.fit(0, 11) is None


def test_what_a_job_keeps_on_a_node_that_is_down_is_not_missing_elsewhere() -> None:
    of_jobs = jobs(1, gpus=8, state="running")
    look = snapshot(of_jobs, nodes(3, used=[[4, 0, 0], [4, 0, 0], [0, 0, 0]], up=[True, False, True]),
                    runs_on=np.array([[0, 0, 4], [0, 1, 4]]))  # fmt: skip
    space = Space(look)
    space.give(0, space.place(0))
    space.take(0, space.place(0))
    assert space.free[:, 0].tolist() == [0, 0, 4]
    assert space.gpus == 4


def test_a_node_that_holds_more_than_it_has_takes_nothing_from_the_free_gpus() -> None:
    space = Space(snapshot(jobs(1, gpus=2), nodes(2)))
    space.take(0, Placement((0,), (2,)))
    space.take(0, Placement((0,), (4,)))
    assert space.gpus == 4


def test_cpus_and_memory_come_in_proportion_to_the_gpus() -> None:
    of_jobs = jobs(1, gpus=4, demand=[[4, 32, 0]])
    space = Space(snapshot(of_jobs, nodes(2, used=[[0, 16, 0], [0, 0, 0]])))
    found = space.fit(0, 4)
    assert found is not None
    space.take(0, found)
    assert found == Placement((1,), (4,))
    assert space.fit(0, 2) == Placement((0,), (2,))
    assert space.fit(0, 3) is None


def test_a_job_goes_only_where_its_placement_class_may_run_and_nodes_are_up() -> None:
    fits = np.array([[False, True, True]])
    space = Space(snapshot(jobs(1), nodes(3, up=[True, False, True]), fits=fits))
    assert space.fit(0, 1) == Placement((2,), (1,))
    assert space.fit(0, 5) is None


def test_a_job_without_gpus_finds_a_node_with_its_cpus_free() -> None:
    of_jobs = jobs(1, gpus=0, demand=[[0, 20, 0]])
    given = snapshot(of_jobs, nodes(2, used=[[4, 16, 0], [4, 8, 0]]))
    assert placements(allocate(given, queue_order(of_jobs), np.array([0])).actions) == [("place", 1, {"n2": 0})]


def test_gangs_go_in_order_and_what_does_not_fit_is_skipped() -> None:
    given = running_and_waiting(gpus=[4, 2, 7, 3, 2])
    assert gang_gpus(given, queue_order(given.jobs), preempt=False).tolist() == [4, 2, 0, 3, 2]


def test_what_runs_gives_way_to_what_comes_before_it_only_with_preemption() -> None:
    given = running_and_waiting(gpus=[4, 2, 8])
    order = np.array([2, 0, 1])
    assert gang_gpus(given, order, preempt=False).tolist() == [4, 2, 0]
    assert gang_gpus(given, order, preempt=True).tolist() == [4, 0, 8]


def test_a_job_without_a_checkpoint_never_gives_way() -> None:
    given = running_and_waiting(gpus=[4, 2, 8], restartable=False)
    assert gang_gpus(given, np.array([2, 0, 1]), preempt=True).tolist() == [4, 2, 0]


def test_gpus_that_a_placement_class_cannot_use_do_not_count_for_it() -> None:
    fits = np.array([[True, False, False], [True, True, True]])
    given = snapshot(jobs(3, gpus=[6, 9, 4], placement=[0, 1, 0]), nodes(3), fits=fits)
    assert gang_gpus(given, np.array([0, 1, 2]), preempt=False).tolist() == [0, 9, 0]
    assert gang_gpus(given, np.array([2, 1, 0]), preempt=False).tolist() == [0, 0, 4]


def test_a_job_that_no_node_suits_takes_nobodys_place() -> None:
    given = snapshot(jobs(2, gpus=[6, 4], placement=[1, 0]), nodes(2), fits=np.array([[True, True], [False, False]]))
    assert gang_gpus(given, np.array([0, 1]), preempt=False).tolist() == [0, 4]


def test_a_job_is_counted_on_the_nodes_that_fewer_others_can_use() -> None:
    fits = np.array([[True, False, False], [True, True, True]])
    given = snapshot(jobs(2, gpus=[6, 4], placement=[1, 0]), nodes(3), fits=fits)
    assert gang_gpus(given, np.array([0, 1]), preempt=False).tolist() == [6, 4]


def test_a_pending_job_is_placed_and_one_that_keeps_its_gpus_is_not_touched() -> None:
    given = running_and_waiting(gpus=[4, 2, 2])
    actions = allocate(given, queue_order(given.jobs), np.array([4, 2, 2])).actions
    assert placements(actions) == [("place", 3, {"n2": 2})]


def test_a_job_that_is_to_have_nothing_is_preempted_for_those_who_take_its_place() -> None:
    given = running_and_waiting(gpus=[4, 2, 8])
    actions = allocate(given, np.array([2, 0, 1]), np.array([0, 2, 8])).actions
    assert placements(actions) == [("preempt", 1, {}), ("place", 3, {"n1": 4, "n3": 4})]


def test_a_job_whose_place_nobody_takes_goes_on_unless_it_must_not() -> None:
    given = running_and_waiting(gpus=[4, 2, 2])
    assert placements(allocate(given, queue_order(given.jobs), np.array([0, 2, 2])).actions) == [
        ("place", 3, {"n2": 2})
    ]
    actions = allocate(given, queue_order(given.jobs), np.array([0, 2, 0]), spare=False).actions
    assert placements(actions) == [("preempt", 1, {})]


def test_an_elastic_job_is_resized_running_and_placed_at_what_it_ought_to_have() -> None:
    given = running_and_waiting(gpus=[4, 2, 4], gpus_min=[4, 1, 1], gpus_max=[4, 8, 8])
    actions = allocate(given, queue_order(given.jobs), np.array([4, 4, 2])).actions
    assert placements(actions) == [("resize", 2, {"n2": 4}), ("place", 3, {"n3": 2})]


def test_an_elastic_job_for_which_there_is_less_room_gets_what_there_is() -> None:
    given = running_and_waiting(gpus=[4, 2, 4], gpus_min=[4, 2, 1], gpus_max=[4, 2, 8])
    assert placements(allocate(given, queue_order(given.jobs), np.array([4, 2, 8])).actions) == [
        ("place", 3, {"n3": 4, "n2": 2})
    ]


def test_strictly_in_order_nothing_starts_behind_a_job_without_room() -> None:
    given = running_and_waiting(gpus=[4, 2, 8, 1])
    wanted = np.array([4, 2, 8, 1])
    assert placements(allocate(given, queue_order(given.jobs), wanted, strict=True).actions) == []
    assert placements(allocate(given, queue_order(given.jobs), wanted).actions) == [("place", 4, {"n2": 1})]


def test_a_job_that_waits_for_another_is_not_placed() -> None:
    given = running_and_waiting(gpus=[4, 2, 1, 1], reason=["None", "None", "Dependency", "Priority"])
    actions = allocate(given, queue_order(given.jobs), given.jobs.gpus).actions
    assert placements(actions) == [("place", 4, {"n2": 1})]


def test_an_array_starts_one_element_a_cycle() -> None:
    given = snapshot(jobs(1, elements=5))
    assert placements(allocate(given, queue_order(given.jobs), np.array([1])).actions) == [("place", 1, {"n1": 1})]


def test_the_parts_of_an_ml_job_start_together_or_not_at_all() -> None:
    given = snapshot(jobs(4, gpus=[3, 2, 3, 2], ml_job=[0, 1, 0, 1]), nodes(1, capacity=[5, 32, 0]))
    order = queue_order(given.jobs)
    wanted = gang_gpus(given, order, preempt=False)
    assert wanted.tolist() == [0, 2, 0, 2]
    assert placements(allocate(given, order, wanted).actions) == [("place", 2, {"n1": 2}), ("place", 4, {"n1": 2})]


def test_a_part_that_finds_no_node_leaves_the_whole_ml_job_waiting() -> None:
    of_jobs = jobs(3, gpus=[2, 2, 2], ml_job=[0, 0, 2], demand=[[2, 2, 0], [2, 64, 0], [2, 2, 0]])
    given = snapshot(of_jobs, nodes(1, capacity=[6, 8, 0]))
    assert placements(allocate(given, queue_order(of_jobs), of_jobs.gpus).actions) == [("place", 3, {"n1": 2})]


def test_the_parts_of_an_ml_job_give_way_together() -> None:
    given = running_and_waiting(gpus=[4, 2, 9], ml_job=[0, 0, 2])
    actions = allocate(given, np.array([2, 0, 1]), gang_gpus(given, np.array([2, 0, 1]), preempt=True)).actions
    assert [kind for kind, *_ in placements(actions)] == ["preempt", "preempt", "place"]


def test_gpus_left_over_go_where_one_more_gains_most() -> None:
    given = running_and_waiting(gpus=[4, 2, 4, 4], gpus_min=[4, 1, 1, 1], gpus_max=[4, 8, 8, 2])
    assert elastic(given.jobs).tolist() == [False, True, True, True]
    wanted = np.array([4, 1, 1, 1])
    assert leftover_gpus(given, wanted) == 5
    assert grow_elastic(given, wanted, lambda row, gpus: 1.0 / gpus).tolist() == [4, 3, 3, 2]
    assert grow_elastic(given, wanted, lambda row, gpus: float(row == 3)).tolist() == [4, 1, 1, 2]


def test_gpus_that_jobs_of_others_hold_are_not_handed_out() -> None:
    given = running_and_waiting(gpus=[4, 2, 1])
    crowded = replace(given, nodes=replace(given.nodes, used=np.array([[4.0, 0, 0], [4, 0, 0], [0, 0, 0]])))
    assert leftover_gpus(crowded, held_gpus(crowded)) == 4
    assert Space(crowded).gpus == 4


@pytest.mark.parametrize("given", [snapshot(jobs(0), nodes(0)), snapshot(jobs(2), nodes(0)), snapshot(jobs(0))])
def test_without_jobs_or_nodes_nothing_is_done(given: Snapshot) -> None:
    order = queue_order(given.jobs)
    assert allocate(given, order, gang_gpus(given, order, preempt=True)).actions == ()


def test_a_range_without_a_checkpoint_counts_until_the_job_starts() -> None:
    columns = {"gpus": 2, "gpus_min": 1, "gpus_max": 8}
    seen = jobs(4, state=["pending", "running"] * 2, restartable=[False, False, True, True], **columns)
    assert elastic(seen).tolist() == [True, False, True, True]
    assert movable(seen).tolist() == [False, False, False, True]

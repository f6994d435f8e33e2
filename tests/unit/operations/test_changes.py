"""What others changed of a shape is found by field, and only what is still slurmplug's is taken back."""

from dataclasses import replace
from typing import Any

import pytest

from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations.changes import changed, changed_since_run, still_in_place
from tests.unit.operations.test_resize_pending import REQUEST

GOAL = {"Gres": "gpu:4", "NumNodes": "2-2", "NumTasks": "2", "NumCPUs": "16", "MinMemoryNode": "1600"}
UNDO = {"Gres": "gpu:2", "NumNodes": "1-1", "NumTasks": "1", "NumCPUs": "4", "MinMemoryNode": "800"}
SET = replace(REQUEST, gres="gres/gpu:4", nodes=2, tasks=2, cpus=16, min_memory=1600.0, gpus=8, memory=3200.0)
"""The request as Slurm shows it once the goal is in place."""


def names(now: ResourceRequest, *, in_place: bool = True) -> tuple[str, ...]:
    return changed(REQUEST, now, GOAL, in_place=in_place)


def test_nothing_changed_is_nothing() -> None:
    assert changed(REQUEST, REQUEST) == ()
    assert names(SET) == ()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"gres": "gres:gpu:1"}, "Gres"),
        ({"gres": "gres:gpu:a100:2"}, "Gres"),
        ({"gres": "gres:gpu:2,gres:shard:1"}, "Gres"),
        ({"gres_per_job": "gres:gpu:4"}, "TresPerJob"),
        ({"gres_per_socket": "gres:gpu:4"}, "TresPerSocket"),
        ({"gres_per_task": "gres:gpu:4"}, "TresPerTask"),
        ({"nodes": 3}, "NumNodes"),
        ({"tasks": 3}, "NumTasks"),
        ({"tasks_per_node": 3}, "NtasksPerNode"),
        ({"cpus_per_task": 3}, "CPUsPerTask"),
        ({"min_cpus_per_node": 3}, "MinCPUsNode"),
        ({"cpus": 3}, "NumCPUs"),
        ({"min_memory": 3.0}, "MinMemoryNode"),
        ({"required_nodes": "n1"}, "ReqNodeList"),
        ({"excluded_nodes": "n[1-2]"}, "ExcNodeList"),
        ({"time_limit": 60.0}, "TimeLimit"),
    ],
)
def test_each_part_of_a_shape_is_compared(given: Any, field: str) -> None:
    assert changed(REQUEST, replace(REQUEST, **given)) == (field,)
    assert field in names(replace(SET, **given))


def test_an_update_that_may_be_done_in_part_leaves_each_field_as_it_was_or_as_it_is_to_be() -> None:
    assert names(REQUEST, in_place=False) == ()
    assert names(replace(SET, nodes=1), in_place=False) == ()
    assert names(replace(SET, nodes=3), in_place=False) == ("NumNodes",)


def test_an_update_that_was_done_is_there() -> None:
    assert names(replace(SET, nodes=1)) == ("NumNodes",)


def test_the_same_nodes_and_gpus_in_another_form_are_no_change() -> None:
    before = replace(REQUEST, excluded_nodes="n1,n2", gres="gres:gpu:2")
    assert changed(before, replace(REQUEST, excluded_nodes="n[1-2]", gres="gres/gpu:2")) == ()


def test_a_run_that_ended_may_leave_fewer_cpus_and_not_more() -> None:
    assert changed_since_run(REQUEST, replace(REQUEST, cpus=2)) == ()
    assert changed_since_run(REQUEST, replace(REQUEST, cpus=8)) == ("NumCPUs",)
    assert changed_since_run(REQUEST, replace(REQUEST, nodes=2)) == ("NumNodes",)


def test_nodes_and_tasks_that_slurm_chose_are_fewer_once_the_run_has_ended() -> None:
    spread = replace(REQUEST, gres="", gres_per_job="gres:gpu:8", nodes=2, tasks=2)
    assert changed_since_run(spread, replace(spread, nodes=1, tasks=1)) == ()
    assert changed_since_run(spread, replace(spread, nodes=3, tasks=3)) == ("NumNodes", "NumTasks")
    assert changed_since_run(spread, replace(spread, gres_per_job="gres:gpu:4")) == ("TresPerJob",)


def test_memory_per_gpu_is_slurms() -> None:
    per_gpu = replace(REQUEST, memory_requested=False)
    assert changed_since_run(replace(per_gpu, min_memory=0.0), replace(per_gpu, min_memory=100.0)) == ()


def test_cpus_that_follow_the_gpus_are_slurms() -> None:
    seen = replace(REQUEST, cpus_follow_gpus=True)
    assert changed(seen, replace(seen, gres="gres:gpu:4", cpus=8), {"Gres": "gpu:4"}, in_place=True) == ()


def test_what_others_changed_is_not_taken_back() -> None:
    assert still_in_place(GOAL, UNDO, SET) == UNDO
    left = still_in_place(GOAL, {**UNDO, "StartTime": "now"}, replace(SET, nodes=1, cpus=8))
    assert left == {"Gres": "gpu:2", "NumTasks": "1", "MinMemoryNode": "800", "StartTime": "now"}

"""The update that changes a job's number of GPUs, by the option by which it requested them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.cluster import tres
from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import ActionImpossible, Shape
from tests.unit.operations.test_resize_pending import REQUEST

TWO_TASKS = {"tasks": 4, "tasks_per_node": 2, "cpus_per_task": 2}


def request(**given: Any) -> ResourceRequest:
    return ResourceRequest(**{**vars(REQUEST), **given})


@pytest.mark.parametrize(
    ("job", "shape", "new"),
    [
        (
            request(),
            Shape(1, 4),
            {"Gres": "gpu:4", "CPUsPerTask": "8", "NumCPUs": "8", "MinCPUsNode": "8", "MinMemoryNode": "1600"},
        ),
        (request(), Shape(2, 2), {"Gres": "gpu:2", "NumNodes": "2-2", "NumTasks": "2", "NumCPUs": "8"}),
        (
            request(tasks=2, cpus_per_task=2, min_cpus_per_node=2),  # one task for each GPU
            Shape(1, 4),
            {"Gres": "gpu:4", "NumTasks": "4", "NumCPUs": "8", "MinCPUsNode": "4", "MinMemoryNode": "1600"},
        ),
        (
            request(nodes=2, max_nodes=2, gpus=4, cpus=8, memory=1600.0, gres="gres/gpu:a100:2", **TWO_TASKS),
            Shape(1, 2),
            {"Gres": "gpu:a100:2", "NumNodes": "1-1", "NumTasks": "2", "NumCPUs": "4"},
        ),
        (request(cpus_follow_gpus=True, memory_requested=False), Shape(1, 1), {"Gres": "gpu:1"}),
    ],
)  # fmt: skip
def test_the_rest_goes_with_the_gpus_as_it_was_asked_for(
    job: ResourceRequest, shape: Shape, new: dict[str, str]
) -> None:
    goal, undo = update_fields(job, shape)
    assert goal == new
    assert undo.keys() == goal.keys()


def test_the_same_shape_needs_no_update() -> None:
    assert update_fields(REQUEST, Shape(1, 2)) == ({}, {})


@pytest.mark.parametrize(
    ("job", "shape"),
    [
        (request(gres_per_socket="gres:gpu:2"), Shape(1, 4)),
        (request(gres=""), Shape(1, 4)),
        (request(gres="gres:gpu:2,gres:shard:1"), Shape(1, 4)),
        (request(gpus=3), Shape(1, 4)),
        (request(tasks=2, tasks_per_node=2), Shape(1, 4)),
        (request(nodes=2, gpus=4, tasks=3), Shape(1, 4)),
    ],
)
def test_what_slurm_cannot_change_is_refused(job: ResourceRequest, shape: Shape) -> None:
    with pytest.raises(ActionImpossible, match="shape"):
        update_fields(job, shape)


PER_JOB: dict[str, Any] = {"gres": "", "gres_per_job": "gres:gpu:2", "max_nodes": 0}
PER_TASK: dict[str, Any] = {
    "gres": "", "gres_per_task": "gres:gpu:1", "tasks": 2, "cpus_per_task": 2, "min_cpus_per_node": 2, "max_nodes": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("job", "shape", "new", "old"),
    [
        (
            request(**PER_JOB, memory_per_cpu=True),
            Shape(1, 4),
            {"TresPerJob": "gres:gpu:4", "MinCPUsNode": "8", "CPUsPerTask": "8", "NumCPUs": "8"},
            {"TresPerJob": "gres:gpu:2", "MinCPUsNode": "4", "CPUsPerTask": "4", "NumCPUs": "4"},
        ),
        (  # any number of nodes: Slurm chooses them
            request(**PER_JOB, cpus_follow_gpus=True, memory_requested=False),
            Shape(2, 4),
            {"TresPerJob": "gres:gpu:8", "NumTasks": "2"},
            {"TresPerJob": "gres:gpu:2", "NumTasks": "1"},
        ),
        (
            request(
                **{**PER_JOB, "gres_per_job": "gres/gpu:a100:4", "max_nodes": 2},
                nodes=2, gpus=4, tasks=2, cpus_follow_gpus=True, memory_requested=False,
            ),
            Shape(1, 1),
            {"TresPerJob": "gres/gpu:a100:1", "NumNodes": "1-1", "NumTasks": "1"},
            {"TresPerJob": "gres/gpu:a100:4", "NumNodes": "2-2", "NumTasks": "2"},
        ),
        (  # one to four nodes: Slurm lowers the most to the GPUs, so it is restored
            request(
                **{**PER_JOB, "gres_per_job": "gres:gpu", "max_nodes": 4}, gpus=1, cpus_follow_gpus=True, memory=0.0
            ),
            Shape(1, 2),
            {"TresPerJob": "gres:gpu:2", "NumNodes": "1-2"},
            {"TresPerJob": "gres:gpu", "NumNodes": "1-4"},
        ),
        (
            request(**PER_TASK, memory_per_cpu=True),
            Shape(1, 4),
            {"TresPerJob": "", "TresPerTask": "gres:gpu:1", "NumTasks": "4", "NumCPUs": "8"},
            {"TresPerJob": "", "TresPerTask": "gres:gpu:1", "NumTasks": "2", "NumCPUs": "4"},
        ),
        (
            request(
                **{**PER_TASK, "tasks": 1, "gres_per_task": "cpu=4,gres/gpu:v100=2", "cpus_per_task": 4},
                memory_per_cpu=True,
            ),
            Shape(1, 1),
            {
                "TresPerJob": "", "TresPerTask": "cpu=2,gres/gpu:v100=1", "NumTasks": "1", "MinCPUsNode": "1",
                "CPUsPerTask": "2", "NumCPUs": "2",
            },
            {
                "TresPerJob": "", "TresPerTask": "cpu=4,gres/gpu:v100=2", "NumTasks": "1", "MinCPUsNode": "2",
                "CPUsPerTask": "4", "NumCPUs": "4",
            },
        ),
        (
            request(
                **{**PER_TASK, "gres_per_task": "gres:gpu:2", "max_nodes": 2}, nodes=2, gpus=4, tasks_per_node=1,
                memory_per_cpu=True,
            ),
            Shape(2, 4),
            {
                "TresPerJob": "", "TresPerTask": "gres:gpu:4", "NumTasks": "2", "MinCPUsNode": "4", "CPUsPerTask": "4",
                "NumCPUs": "8",
            },
            {
                "TresPerJob": "", "TresPerTask": "gres:gpu:2", "NumTasks": "2", "MinCPUsNode": "2", "CPUsPerTask": "2",
                "NumCPUs": "4",
            },
        ),
    ],
)  # fmt: skip
def test_gpus_per_job_and_per_task_are_changed_and_restored_in_their_own_form(
    job: ResourceRequest, shape: Shape, new: dict[str, str], old: dict[str, str]
) -> None:
    assert update_fields(job, shape) == (new, old)


def test_memory_of_a_job_that_requested_it_per_cpu_follows_its_cpus() -> None:
    goal, undo = update_fields(request(memory_per_cpu=True), Shape(1, 4))
    assert ("MinMemoryNode" in goal, "MinMemoryNode" in undo) == (False, False)


def test_cpus_per_gpu_are_said_in_all() -> None:
    goal, undo = update_fields(request(cpus_follow_gpus=True, cpus_per_gpu=2, cpus=1), Shape(1, 4))
    assert (goal["NumCPUs"], undo["NumCPUs"], "CPUsPerTask" in goal) == ("8", "1", False)


def test_gpus_per_node_are_requested_on_exactly_so_many_nodes() -> None:
    """`NumNodes=2` would leave it to Slurm to take more, with GPUs on each."""
    goal, undo = update_fields(request(max_nodes=0, cpus_follow_gpus=True), Shape(2, 2))
    assert (goal["NumNodes"], undo["NumNodes"]) == ("2-2", "1-1")


def test_gpus_per_node_on_a_range_of_nodes_are_changed_on_exactly_as_many_as_decided() -> None:
    """Slurm starts a job of `--nodes=1-2` on two nodes where it can, with twice the GPUs that were decided."""
    for shape in (Shape(1, 4), Shape(1, 1)):
        goal, undo = update_fields(request(max_nodes=2), shape)
        assert (goal["NumNodes"], undo["NumNodes"]) == ("1-1", "1-2")


def test_a_node_has_the_cpus_of_one_task_at_least() -> None:
    """With fewer, Slurm 22.05 starts the job on two nodes with one GPU in all."""
    goal, _ = update_fields(request(tasks=2, cpus=8, cpus_per_task=4, min_cpus_per_node=4), Shape(2, 1))
    assert "MinCPUsNode" not in goal


def test_a_job_on_whole_nodes_gets_more_or_fewer_of_them_and_nothing_else() -> None:
    """It has all GPUs of a node, whatever it requests."""
    goal, _ = update_fields(request(whole_nodes=True), Shape(2, 2))
    assert (goal["Gres"], goal["NumNodes"]) == ("gpu:2", "2-2")


@pytest.mark.parametrize(
    ("job", "form"),
    [
        (request(whole_nodes=True), "whole nodes (--exclusive), which have as many GPUs as they have"),
        (request(tasks=8, cpus=1, cpus_per_task=1), "fewer CPUs than tasks (--overcommit)"),
        (request(gres="", gres_per_socket="gres:gpu:2"), "GPUs per socket (--gpus-per-socket)"),
        (request(gres="", gres_per_job="gres:gpu:2", tasks=4, tasks_per_gpu=2), "tasks per GPU (--ntasks-per-gpu)"),
        (request(gres="", tasks=4, tasks_per_gpu=2), "tasks per GPU (--ntasks-per-gpu)"),
        (request(gres="gres:gpu:1", gres_per_job="gres:gpu:2", nodes=2), "GPUs by several options"),
        (request(gres="", gres_per_job="gres:gpu:2", gres_per_task="gres:gpu:1"), "GPUs by several options"),
        (request(**{**PER_JOB, "max_nodes": 1}), "GPUs in all (--gpus) on one node"),
        (request(**{**PER_TASK, "max_nodes": 1}), "GPUs per task (--gpus-per-task) on one node"),
        (request(**{**PER_TASK, "gres_per_task": "gres:gpu:3"}, gpus=6), "tasks that cannot be divided evenly among"),
        (request(gres="gres:gpu:a100:1,gres:gpu:v100:1"), "no GPUs, several types of them, or other gres beside them"),
    ],
)
def test_a_refusal_names_the_form(job: ResourceRequest, form: str) -> None:
    with pytest.raises(ActionImpossible) as refused:
        update_fields(job, Shape(2, 4))
    assert str(refused.value.reason.facts["asked"]).startswith(form)


kinds = st.sampled_from(["", "a100:", "h100_80gb:"])
counts = st.integers(0, 9)


@st.composite
def requests(draw: st.DrawFn) -> ResourceRequest:
    """What squeue may print, consistent or not."""
    prefix = draw(st.sampled_from(["gres:gpu:", "gres/gpu:"])) + draw(kinds)
    texts = {
        name: draw(st.sampled_from(["", "", f"{prefix}{draw(counts)}", "gres:shard:2"]))
        for name in ("gres", "gres_per_job", "gres_per_socket", "gres_per_task")
    }
    nodes, tasks = draw(st.integers(1, 4)), draw(counts)
    each = [
        nodes * sum(tres.gpus(texts["gres"]).values()),
        sum(tres.gpus(texts["gres_per_job"]).values()),
        max(1, tasks) * sum(tres.gpus(texts["gres_per_task"]).values()),
    ]
    if draw(st.booleans()):
        texts["gres_per_task"] = ",".join(filter(None, ("cpu=2", texts["gres_per_task"])))
    return request(
        **texts, nodes=nodes, gpus=draw(st.sampled_from([*each, *each, 3])), tasks=tasks,
        tasks_per_node=draw(st.integers(0, 2)), cpus_per_task=draw(counts), min_cpus_per_node=draw(counts),
        cpus=draw(st.integers(1, 64)), memory=float(draw(st.integers(0, 9_000))), max_nodes=draw(st.integers(0, 6)),
        memory_requested=draw(st.booleans()), memory_per_cpu=draw(st.booleans()), cpus_follow_gpus=draw(st.booleans()),
        tasks_per_gpu=draw(st.sampled_from([0, 0, 0, 2])),
    )  # fmt: skip


@given(requests(), st.builds(Shape, st.integers(1, 6), st.integers(1, 8)))
def test_every_update_has_the_gpus_beside_the_nodes_and_is_taken_back_field_by_field(
    job: ResourceRequest, shape: Shape
) -> None:
    """So that Slurm refuses the whole of it once the job has started, and never shrinks it."""
    try:
        goal, undo = update_fields(job, shape)
    except ActionImpossible:
        return
    assert goal.keys() == undo.keys()
    if not goal:
        assert shape.nodes * shape.gpus_per_node == job.gpus
        return
    [field] = goal.keys() & {"Gres", "TresPerJob", "TresPerTask"} - ({"TresPerJob"} if "TresPerTask" in goal else set())
    text = {"Gres": job.gres, "TresPerJob": job.gres_per_job, "TresPerTask": job.gres_per_task}[field]
    assert tres.gpus(undo[field]) == tres.gpus(text)
    times = {"Gres": shape.nodes, "TresPerJob": 1, "TresPerTask": int(goal.get("NumTasks", 1))}[field]
    [(kind, count)] = tres.gpus(goal[field]).items()
    assert (kind, count * times) == (next(iter(tres.gpus(text))), shape.nodes * shape.gpus_per_node)
    assert "TresPerTask" not in goal or goal["TresPerJob"] == undo["TresPerJob"] == ""

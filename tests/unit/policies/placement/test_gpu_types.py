"""Jobs that request a type of GPU, on nodes that have it, and on nodes that have others beside it."""

from typing import Any

import numpy as np
import pytest

from policies.placement.allocation import allocate, gang_gpus, movable
from policies.placement.gpu_space import GPUSpace
from policies.placement.gpu_types import gpu_capacity
from policies.placement.space import Placement, Space
from policies.snapshot import Snapshot
from tests.builders import jobs, nodes, snapshot

ANY, A100, V100 = 0, 1, 2
"""placement classes: of jobs that request any GPU, and of those that request one type"""
FITS = np.array([[True] * 3, [True, False, False], [True, True, False]])


def cluster(*, runs_on: Any = None, used: Any = 0.0, of_type_used: Any = 0.0, **columns: Any) -> Snapshot:
    """A node with two a100 and two v100, one with four v100, and one with four GPUs of no type."""
    on_nodes = nodes(
        3, used=used, gpu_types=("a100", "v100"), of_type=[[2, 2], [0, 4], [0, 0]], of_type_used=of_type_used
    )
    of_jobs = jobs(len(columns["placement"]), **{"demand": [[g, 0, 0] for g in columns["gpus"]], **columns})
    return snapshot(of_jobs, on_nodes, fits=FITS, runs_on=runs_on, type_of_class=np.array([-1, 0, 1]))


def test_a_node_has_for_a_job_only_the_gpus_of_the_type_that_it_requests() -> None:
    state = cluster(placement=[ANY, A100, V100], gpus=[1, 1, 1])
    assert [gpu_capacity(state, each).tolist() for each in (ANY, A100, V100)] == [[4, 4, 4], [2, 0, 0], [2, 4, 0]]
    assert [Space(state).room(row).tolist() for row in range(3)] == [[4, 4, 4], [2, 0, 0], [2, 4, 0]]


def test_a_job_is_placed_on_gpus_of_its_type_alone() -> None:
    state = cluster(placement=[A100, A100, V100], gpus=[2, 3, 6])
    space = Space(state)
    assert space.fit(0, 2) == Placement((0,), (2,))
    assert space.fit(1, 3) is None
    assert space.fit(2, 6) == Placement((1, 0), (4, 2))
    assert space.room_in_all(1) == 2


def test_what_one_job_takes_of_a_type_no_other_gets() -> None:
    state = cluster(placement=[A100, A100, ANY], gpus=[1, 2, 4])
    space = Space(state)
    space.take(0, Placement((0,), (1,)))
    assert space.fit(1, 2) is None
    assert space.fit(1, 1) == Placement((0,), (1,))
    space.take(2, Placement((0,), (3,)))
    assert space.room(1).tolist() == [0, 0, 0]
    space.give(2, Placement((0,), (3,)))
    space.give(0, Placement((0,), (1,)))
    assert space.room(1).tolist() == [2, 0, 0]


def test_the_types_that_slurm_shows_in_use_are_not_free() -> None:
    busy = cluster(
        placement=[A100, A100, V100],
        gpus=[2, 1, 3],
        state=["running", "pending", "pending"],
        used=[[3, 0, 0], [0, 0, 0], [0, 0, 0]],
        of_type_used=[[2, 1], [0, 0], [0, 0]],
        runs_on=np.array([[0, 0, 2]]),
    )
    assert Space(busy).room(1).tolist() == [0, 0, 0]
    assert Space(busy).room(2).tolist() == [1, 4, 0]


def test_counting_gpus_alone_is_not_taken_for_enough() -> None:
    everywhere = cluster(placement=[ANY, V100], gpus=[1, 1])
    assert GPUSpace.of(everywhere, Space(everywhere), np.array([0])) is None
    of_jobs = jobs(1, gpus=[1], demand=[[1, 0, 0]])
    plain = snapshot(of_jobs, nodes(2, gpu_types=("v100",), of_type=4.0), type_of_class=np.array([0]))
    assert GPUSpace.of(plain, Space(plain), np.array([0])) is not None  # all GPUs are of the type that it requests


@pytest.mark.parametrize(
    ("placement", "gpus", "wanted"),
    [
        ([A100, A100, ANY], [2, 1, 1], [2, 0, 1]),
        ([V100, V100, A100], [4, 3, 2], [4, 0, 2]),
        ([ANY, V100, A100], [4, 6, 2], [4, 6, 2]),
        ([V100, A100, ANY], [6, 2, 5], [6, 2, 0]),
    ],
)
def test_gangs_are_counted_by_the_gpus_of_their_type(placement: list[int], gpus: list[int], wanted: list[int]) -> None:
    state = cluster(placement=placement, gpus=gpus)
    assert gang_gpus(state, np.arange(3), preempt=False).tolist() == wanted


def test_a_gang_that_may_be_preempted_gives_gpus_of_its_type() -> None:
    state = cluster(
        placement=[A100, A100],
        gpus=[2, 2],
        state=["running", "pending"],
        restartable=True,
        used=[[2, 0, 0], [0, 0, 0], [0, 0, 0]],
        of_type_used=[[2, 0], [0, 0], [0, 0]],
        runs_on=np.array([[0, 0, 2]]),
    )
    assert gang_gpus(state, np.array([1, 0]), preempt=True).tolist() == [0, 2]
    [preempted, placed] = allocate(state, np.array([1, 0]), np.array([0, 2])).actions
    assert (preempted.kind, placed.kind, placed.nodes) == ("preempt", "place", ("n1",))


def test_jobs_on_parts_of_gpus_are_never_moved() -> None:
    of_jobs = jobs(2, state="running", restartable=True, part_of_gpu=[False, True], gpus=[1, 0])
    assert movable(of_jobs).tolist() == [True, False]

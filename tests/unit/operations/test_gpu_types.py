"""The shapes of jobs that request a type of GPU, on nodes with several."""

import numpy as np
import pytest

from slurmplug.operations.shape import ActionImpossible, Shape, feasible_shape, find_place
from slurmplug.operations.values import Observation
from tests.builders import NOW, jobs, nodes, snapshot

ANY, A100 = 0, 1


def observation(placement: int, state: str = "pending") -> Observation:
    """Two nodes with two a100 and two v100 each; a job on one GPU of the first, or none yet."""
    on_nodes = nodes(2, gpu_types=("a100", "v100"), of_type=[[2, 2], [2, 2]])
    of_jobs = jobs(1, placement=placement, state=state, started=NOW - 100.0, demand=[[1, 0, 0]])
    on = np.array([[0, 0, 1]]) if state == "running" else None
    return Observation(
        snapshot(of_jobs, on_nodes, fits=np.ones((2, 2), dtype=bool), runs_on=on, type_of_class=np.array([-1, 0]))
    )


def test_a_waiting_job_is_given_a_shape_that_nodes_have_gpus_of_its_type_for() -> None:
    assert feasible_shape(observation(ANY), 0, 4, 1) == Shape(1, 4)
    assert feasible_shape(observation(A100), 0, 4, 1) == Shape(2, 2)
    with pytest.raises(ActionImpossible, match="no nodes"):
        feasible_shape(observation(A100), 0, 6, 1)


def test_a_running_job_finds_room_on_gpus_of_its_type() -> None:
    assert find_place(observation(ANY, "running"), 0, 4).nodes == ("n1",)
    place = find_place(observation(A100, "running"), 0, 4)
    assert (place.shape, place.nodes) == (Shape(2, 2), ("n1", "n2"))

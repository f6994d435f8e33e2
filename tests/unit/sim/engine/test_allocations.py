"""What rows hold on the simulated nodes, and whether another size fits there."""

import numpy as np
import pytest

from slurmplug.sim.engine.allocations import Allocations
from slurmplug.sim.engine.contention import SharedNodes
from slurmplug.sim.engine.job import SimJob, Speed
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.workload_table import workload_table


@pytest.fixture
def nodes() -> SharedNodes:
    """Two nodes of four GPUs."""
    return SharedNodes(SimNodes(("n0", "n1"), (4, 4), (40, 40), (1000.0, 1000.0), (100.0, 100.0)), 0.9)


@pytest.fixture
def allocations(nodes: SharedNodes) -> Allocations:
    """Of two jobs of one to four GPUs, with a third of ten CPUs for each GPU."""
    speed = Speed(np.array([1]), np.array([1]), np.array([1.0]))
    jobs = [
        SimJob(name, 0.0, gpus=3, iterations=1, speed=speed, gpus_min=1, gpus_max=4, cpus=10, memory=0.1)
        for name in ("a", "b")
    ]
    return Allocations(workload_table(jobs, all_managed=True), nodes)


def test_a_row_may_take_a_size_that_fits_only_in_place_of_what_it_holds(allocations: Allocations) -> None:
    allocations.allocate(0, ((0, 3),), ())
    assert allocations.problem(0, ((0, 4),), ()) == ""
    assert allocations.problem(1, ((0, 4),), ()) == "not enough GPUs free on n0"
    assert allocations.problem(1, ((0, 1),), ()) == ""


def test_to_ask_whether_a_size_fits_changes_nothing(allocations: Allocations, nodes: SharedNodes) -> None:
    allocations.allocate(0, ((0, 3),), ())
    allocations.allocate(1, ((1, 1),), ())
    used = nodes.used.copy()
    assert allocations.problem(0, ((1, 4),), ()) == "not enough GPUs free on n1"
    assert (nodes.used == used).all()
    assert allocations.holds == {0: ((0, 3),), 1: ((1, 1),)}


def test_what_is_freed_can_be_given_again(allocations: Allocations) -> None:
    allocations.allocate(0, ((0, 1), (1, 3)), ())
    assert allocations.problem(1, ((1, 2),), ()) == "not enough GPUs free on n1"
    assert allocations.free(0) == [0, 1]
    assert allocations.problem(1, ((1, 2),), ()) == ""
    assert not allocations.holds

"""The reservations that Slurm's own backfill makes for each waiting job."""

from typing import Any

import numpy as np
import pytest

from slurmplug.sim.slurm.backfill import Backfill, Reservation
from slurmplug.sim.slurm.backfill_limits import BackfillLimits
from slurmplug.sim.slurm.launcher import jobs_to_start
from slurmplug.sim.slurm.node_space import NodeSpace
from slurmplug.sim.slurm.partitions import one_for_all
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass
from slurmplug.sim.slurm.settings import LauncherSettings, Reservations
from tests.unit.sim.slurm.test_launcher import HOUR, held, queue, room

EXACT = Reservations(resolution=1.0, window_linear=1.0)


def in_order(pending: Pending) -> np.ndarray:
    return np.arange(len(pending), 0, -1)


def started(
    pending: Pending, nodes: NodeResources, holding: HeldResources, made: Reservations | None = EXACT, **others: Any
) -> list[int]:
    settings = LauncherSettings(reservations=made, **others)
    found = jobs_to_start(pending, holding, nodes, in_order(pending), now=0.0, settings=settings)
    return [start.row for start in found]


def planned(
    pending: Pending, nodes: NodeResources, holding: HeldResources, made: Reservations = EXACT
) -> dict[int, tuple[float, list[int]]]:
    """When and where each job is to start by backfill, by row."""
    m = len(nodes.free)
    one = SchedulingPass(
        pending, holding, nodes, np.arange(m), one_for_all(len(pending), m), now=0.0, settings=LauncherSettings()
    )
    rows = list(range(len(pending)))
    return {
        each.row: (each.time if isinstance(each, Reservation) else 0.0, [int(node) for node in each.nodes])
        for each in Backfill(one, made).plan(rows)
    }


def test_each_waiting_job_has_a_reservation_in_order_of_priority() -> None:
    pending, holding = queue([4, 4, 4], time_limit=[HOUR, HOUR, HOUR]), held((0, 4, HOUR), (1, 4, 1.5 * HOUR))
    made = planned(pending, room([0, 0]), holding)
    assert made == {0: (HOUR, [0]), 1: (1.5 * HOUR, [1]), 2: (2 * HOUR, [0])}


def test_a_job_that_delays_the_second_who_waits_does_not_start_and_would_under_easy() -> None:
    pending = queue([4, 4, 2], time_limit=[HOUR, HOUR, 2 * HOUR])
    holding = held((0, 4, HOUR), (1, 2, 1.5 * HOUR))
    assert started(pending, room([0, 2]), holding) == []
    assert started(pending, room([0, 2]), holding, made=None) == [2]
    short = queue([4, 4, 2], time_limit=[HOUR, HOUR, HOUR])
    assert started(short, room([0, 2]), holding) == [2]


def test_a_reservation_has_the_whole_node() -> None:
    pending = queue([3, 1], time_limit=[HOUR, 9 * HOUR])
    assert started(pending, room([2]), held((0, 2, HOUR))) == []
    assert started(pending, room([2]), held((0, 2, HOUR)), made=None) == [1]


def test_a_reservation_begins_and_ends_with_the_resolution() -> None:
    pending = queue([4, 1], time_limit=[HOUR, 590.0])
    holding = held((0, 3, 650.0))
    assert started(pending, room([1]), holding) == [1]
    assert started(pending, room([1]), holding, Reservations(resolution=60.0)) == [1]
    assert started(pending, room([1]), holding, Reservations(resolution=600.0)) == [1]
    longer = queue([4, 1], time_limit=[HOUR, 610.0])
    assert started(longer, room([1]), holding, Reservations(resolution=60.0)) == []
    assert started(longer, room([1]), holding) == [1]


def test_a_job_that_starts_behind_the_window_has_no_reservation() -> None:
    pending, holding = queue([4, 2], time_limit=[HOUR, 30 * HOUR]), held((0, 2, 25 * HOUR))
    assert started(pending, room([2]), holding) == [1]
    assert started(pending, room([2]), holding, Reservations(window=48 * HOUR)) == []


def test_so_many_jobs_of_a_partition_have_a_reservation() -> None:
    pending, holding = queue([4, 4, 2], time_limit=[HOUR, HOUR, 2 * HOUR]), held((0, 4, HOUR), (1, 2, 1.5 * HOUR))
    assert started(pending, room([0, 2]), holding, Reservations(of_partition=1)) == [2]
    assert started(pending, room([0, 2]), holding, Reservations(of_partition=2)) == []


def test_backfill_tries_no_more_jobs_than_it_may_in_a_table_of_as_many_slots() -> None:
    pending, holding = queue([4, 3, 1], time_limit=[HOUR, 60.0, 60.0]), held((0, 2, HOUR))
    assert started(pending, room([2]), holding, bf_max_job_test=3) == []
    assert started(pending, room([2]), holding, bf_max_job_test=4) == [2]


def test_a_job_counts_as_tried_though_it_gets_no_reservation() -> None:
    pending, holding = queue([4, 4, 1, 1], time_limit=[HOUR, HOUR, 60.0, 60.0]), held((0, 2, HOUR))
    made = Reservations(of_partition=1)
    assert started(pending, room([2]), holding, made, bf_max_job_test=3) == [2]
    assert started(pending, room([2]), holding, made, bf_max_job_test=4) == [2, 3]


def test_jobs_that_end_within_a_window_end_together_for_a_job_behind_them() -> None:
    """The first could have node 0 at 70 s; what ends until 120 s is taken to end together, and of neighbours with room
    the one with the fewest free CPUs is taken."""
    pending = queue([2], time_limit=[HOUR])
    holding = held((0, 4, 70.0), (1, 2, 110.0))
    nodes = room([0, 0])
    nodes.free[1, 1:] = 0.0
    assert planned(pending, nodes, holding) == {0: (70.0, [0])}
    holding = held((0, 4, 70.0), (2, 2, 110.0))
    nodes = room([0, 0, 0])
    assert planned(pending, nodes, holding, Reservations(resolution=1.0)) == {0: (110.0, [2])}


def test_a_job_larger_than_the_cluster_has_no_reservation() -> None:
    assert planned(queue([4, 99]), room([0]), held((0, 4, HOUR))) == {0: (HOUR, [0])}


@pytest.mark.parametrize("made", [EXACT, None])
def test_a_job_that_spreads_is_not_held_up_by_a_smaller_one_that_needs_one_node(made: Reservations | None) -> None:
    """Three GPUs are free on no node of two, eight are on four of them."""
    pending, holding = queue([3, 8], time_limit=[HOUR, 600.0]), held(*((node, 2, HOUR) for node in range(4)))
    assert started(pending, room([2, 2, 2, 2]), holding, made) == [1]


@pytest.mark.parametrize("seed", range(30))
def test_what_starts_is_what_the_whole_plan_starts(seed: int) -> None:
    """Reservations that are left out, as nothing behind them could start, change nothing."""
    rng = np.random.default_rng(seed)
    n, m = 25, 5
    nodes = rng.integers(0, 3, n)
    gpus = rng.integers(1, 5, n) * np.maximum(nodes, 1)
    pending = queue(gpus.tolist(), nodes=nodes, time_limit=rng.integers(1, 40, n) * 600.0)
    used = rng.integers(1, 5, m)
    holding = held(*((node, int(used[node]), float(rng.integers(1, 50) * 300)) for node in range(m)))
    free = room((4 - used).tolist())
    made = planned(pending, free, holding, Reservations())
    settings = LauncherSettings(reservations=Reservations())
    one = SchedulingPass(pending, holding, free, np.arange(m), one_for_all(n, m), now=0.0, settings=settings)
    begun = {start.row: list(start.nodes) for start in Backfill(one, Reservations()).run(list(range(n)))}
    assert begun == {row: where for row, (time, where) in made.items() if time == 0.0}


def test_free_nodes_are_those_without_a_reservation_in_all_of_a_time() -> None:
    space, inside = NodeSpace(3, 0.0, 1000.0, 10.0), 0b011
    space.reserve(0b001, 100.0, 200.0)
    space.reserve(0b010, 150.0, 300.0)
    assert space.free(inside, 0.0, 90.0)[0] == 0b011
    assert space.free(inside, 0.0, 100.0)[0] == 0b010
    assert space.free(inside, 0.0, 160.0) == (0, 200.0)
    assert space.free(inside, 200.0, 250.0)[0] == 0b001
    assert [space.free_until(time) for time in (90.0, 100.0, 160.0)] == [0b111, 0b110, 0b100]
    assert space.overlaps(0b001, 190.0, 250.0)
    assert not space.overlaps(0b001, 200.0, 250.0)
    assert space.slot(114.0, 60.0) == (110.0, 180.0)


@pytest.mark.parametrize("seed", range(30))
def test_a_job_is_planned_where_it_would_start(seed: int) -> None:
    """All that runs ends at once: a reservation then has the nodes that the job gets when it is alone."""
    rng = np.random.default_rng(seed)
    m, gpus = 7, [1, 2, 4, 6, 9, 4]
    pending = queue(gpus, nodes=[0, 0, 0, 0, 0, 2], time_limit=[HOUR] * len(gpus))
    ends, stays = rng.integers(0, 3, m), rng.integers(0, 2, m)
    free = room((4 - ends - stays - 1).tolist())
    holding = held(*((node, int(ends[node]) + 1, 60.0) for node in range(m)))
    later = room((4 - stays).tolist())
    for row in range(len(gpus)):
        one = SchedulingPass(
            pending, holding, free, np.arange(m), one_for_all(len(gpus), m), now=0.0, settings=LauncherSettings()
        )
        made = [each for each in Backfill(one, EXACT).plan([row]) if isinstance(each, Reservation)]
        placed = one.placement.place(row, later.free)
        assert all(placed and each.nodes.tolist() == placed[0].tolist() for each in made)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"of_user": 2}, [1, 4, 5]),
        ({"of_partition": 2}, [1, 3, 5]),
        ({"of_user_in_partition": 1}, [3, 4, 5]),
        ({"of_association": 1, "of_user": 1}, [3, 4, 5]),
        ({"starts": 2}, [1, 2]),
        ({"of_user": 2, "starts": 1}, [1]),
    ],
)
def test_backfill_tries_so_many_jobs_of_each_and_starts_so_many(limits: dict[str, int], expected: list[int]) -> None:
    """The first waits for all of the node, and counts as tried; all others could start beside it."""
    pending = queue(
        [6, 1, 1, 1, 1, 1],
        time_limit=[HOUR] + [60.0] * 5,
        user=["a", "a", "a", "a", "b", "b"],
        account=["x", "x", "x", "y", "x", "y"],
        partition=["p", "p", "p", "q", "p", "q"],
    )
    for made in (EXACT, None):
        found = started(pending, room([5], gpus=6), held((0, 1, HOUR)), made, bf_limits=BackfillLimits(**limits))
        assert found == expected


def test_jobs_that_are_not_tried_count_among_all_that_are() -> None:
    pending, limits = queue([6, 1, 1, 1], time_limit=[HOUR] + [60.0] * 3, user=["a", "a", "a", "b"]), BackfillLimits(1)
    for most, expected in ((3, []), (4, [3])):
        nodes, holding = room([5], gpus=6), held((0, 1, HOUR))
        assert started(pending, nodes, holding, bf_limits=limits, bf_max_job_test=most) == expected

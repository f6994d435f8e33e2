"""Parameter servers hold CPUs of nodes: where they find room, and how many workers and servers each job is given."""

from typing import Any

import numpy as np

from policies.placement.allocation import allocate
from policies.placement.servers import Budget, Step, shared_out
from policies.placement.space import Placement, Space
from policies.snapshot import Snapshot
from tests.builders import NOW, jobs, nodes, servers, snapshot


def queue(n: int, **columns: Any) -> Snapshot:
    """Jobs of up to four workers of one CPU and four servers of two, on two nodes of four GPUs and 16 CPUs."""
    gpus = 2
    given = {"gpus": gpus, "gpus_min": 1, "gpus_max": 4, "demand": [[gpus, gpus * 3.0, 0.0]]} | columns.pop("jobs", {})
    of_nodes = nodes(2, capacity=[4.0, 16.0, 1000.0], **columns.pop("nodes", {}))
    return snapshot(
        jobs(n, submitted=NOW - n + np.arange(n), **given), of_nodes, runs_on=columns.pop("runs_on", None),
        servers=servers(n, **columns),
    )  # fmt: skip


def test_servers_go_where_most_cpus_are_free_and_take_no_gpu() -> None:
    space = Space(queue(1))
    place = space.fit_with_servers(0, 4, 3)
    assert place == Placement((0, 1), (4, 0), (1, 2))
    space.take(0, place)
    assert space.free[:, :2].tolist() == [[0.0, 10.0], [4.0, 12.0]]
    space.give(0, place)
    assert space.free[:, :2].tolist() == [[4.0, 16.0], [4.0, 16.0]]


def test_as_many_servers_as_cpus_are_left_for_and_none_without_any() -> None:
    used = [[0, 13, 0], [4, 15, 0]]
    assert Space(queue(1, nodes={"used": used})).fit_with_servers(0, 1, 4) == Placement((0,), (1,))
    assert Space(queue(1, nodes={"used": [[0, 15, 0], [4, 16, 0]]})).fit_with_servers(0, 1, 1) is None


def test_where_fewer_gpus_are_free_there_are_fewer_servers_in_proportion() -> None:
    place = Space(queue(1, nodes={"used": [[2, 0, 0], [4, 0, 0]]})).fit_with_servers(0, 4, 4)
    assert place is not None
    assert (sum(place.shares), sum(place.servers or place.shares)) == (2, 2)


def test_what_a_running_job_holds_is_counted_with_its_servers() -> None:
    look = queue(
        1, jobs={"state": "running", "restartable": True}, runs_on=np.array([[0, 0, 2], [0, 1, 0]]), on=[1, 3],
        nodes={"used": [[2, 4, 0], [0, 6, 0]]},
    )  # fmt: skip
    space = Space(look)
    assert space.place(0) == Placement((0, 1), (2, 0), (1, 3))
    assert space.free[:, 1].tolist() == [12.0, 10.0]
    space.give_all(np.array([0]))
    assert space.free[:, :2].tolist() == [[4.0, 16.0], [4.0, 16.0]]


def test_a_job_whose_servers_alone_change_is_placed_anew_and_one_with_as_many_stays() -> None:
    look = queue(
        1, jobs={"state": "running", "restartable": True}, runs_on=np.array([[0, 0, 2]]), on=[2],
        nodes={"used": [[2, 6, 0], [0, 0, 0]]},
    )  # fmt: skip
    assert allocate(look, [0], np.array([2]), servers=np.array([2])).actions == ()
    (action,) = allocate(look, [0], np.array([2]), servers=np.array([4])).actions
    assert (action.gpus, sum(action.servers), len(action.servers)) == (2, 4, len(action.nodes))


def test_the_budget_is_what_is_free_and_what_is_given_back() -> None:
    look = queue(
        2, jobs={"state": ["running", "pending"], "restartable": True}, runs_on=np.array([[0, 0, 2]]), on=[3],
        nodes={"used": [[2, 8, 0], [0, 0, 0]]},
    )  # fmt: skip
    assert look.servers is not None
    kept = Budget(look, look.servers, np.array([False, False]))
    back = Budget(look, look.servers, np.array([True, False]))
    assert (kept.gpus, kept.cpus, back.gpus, back.cpus) == (6, 24, 8, 32)
    assert back.fits(1, 4, 14)
    assert not back.fits(1, 4, 15)
    assert not back.fits(1, 9, 1)
    back.take(1, 2, 3)
    assert (back.gpus, back.cpus) == (6, 24)


def test_first_each_has_its_least_and_then_the_greatest_worth_that_fits() -> None:
    look = queue(2, nodes={"up": [True, False]})  # 16 CPUs
    assert look.servers is not None
    ones = np.ones(2, dtype=np.int64)

    def steps(row: int, workers: int, count: int) -> list[Step]:
        return [Step(0.9 / workers, 1, 0), Step((4.0 if row else 2.0) / count, 0, 1)]

    wanted, counts = shared_out(
        look, look.servers, np.array([0, 1]), least=ones, least_servers=ones, preempt=True, steps=steps
    )
    # Each with its worth: a server of job 2 (4), of both (2), of job 2 (4 / 3), and of job 1 (1), which leaves no CPU.
    assert (wanted.tolist(), counts.tolist()) == ([1, 1], [3, 4])


def test_a_step_that_does_not_fit_gives_way_to_a_smaller_one() -> None:
    look = queue(1, nodes={"up": [True, False]}, cpus=2.0, most=16)
    assert look.servers is not None
    one = np.ones(1, dtype=np.int64)
    wanted, counts = shared_out(
        look, look.servers, np.array([0]), least=one, least_servers=one, preempt=True,
        steps=lambda _, workers, count: [Step(2.0, 0, 4), Step(1.0, 1, 0)],
    )  # fmt: skip
    assert (wanted.tolist(), counts.tolist()) == ([4], [5])

"""The simulator's Slurm: whom it starts, where, and whom it makes wait."""

from typing import Any

import numpy as np
import pytest

from slurmplug.sim.slurm.launcher import jobs_to_start, priorities
from slurmplug.sim.slurm.multifactor import DAY, Usage, Weights, priority
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending, Start
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.earliest_start import earliest_start

HOUR = 3600.0


def queue(gpus: list[int], **columns: Any) -> Pending:
    n = len(gpus)

    def column(name: str, default: Any) -> Any:
        values = np.asarray(columns.pop(name, default))
        return values if values.ndim else np.full(n, values)

    made = Pending(
        gpus=np.array(gpus),
        nodes=column("nodes", 0),
        demand=np.asarray(columns.pop("demand", [[1.0, 2.0, 1000.0] if each else [0.0, 4.0, 1000.0] for each in gpus])),
        time_limit=column("time_limit", HOUR),
        eligible=column("eligible", 0.0),
        begin=column("begin", 0.0),
        qos=column("qos", "normal"),
        partition=column("partition", "gpu"),
        reservation=column("reservation", ""),
        nice=column("nice", 0.0),
        site_factor=column("site_factor", 0.0),
        user=column("user", "user"),
        account=column("account", "account"),
    )
    assert not columns
    return made


def room(free: list[int], gpus: int = 4, reservation: Any = "", up: Any = True) -> NodeResources:
    used = np.array([gpus - each for each in free], dtype=float)
    total = np.tile([gpus, 8.0 * gpus, 32_000.0 * gpus], (len(free), 1))
    names = np.full(len(free), reservation) if isinstance(reservation, str) else np.array(reservation)
    return NodeResources(total - used[:, None] * [1.0, 2.0, 1000.0], total, names, np.broadcast_to(up, len(free)))


def held(*entries: tuple[int, int, float]) -> HeldResources:
    """Jobs that hold so many GPUs of a node until then."""
    node, gpus, until = (np.array(values) for values in zip(*entries, strict=True)) if entries else (np.zeros(0),) * 3
    return HeldResources(node.astype(int), gpus[:, None] * np.array([1.0, 2.0, 1000.0]), until.astype(float))


def starts(
    pending: Pending,
    nodes: NodeResources,
    holding: HeldResources | None = None,
    *,
    now: float = 0.0,
    fairshare: np.ndarray | None = None,
    **others: Any,
) -> tuple[Start, ...]:
    """What starts, where nobody has used anything or by these factors."""
    factors = np.ones(len(pending)) if fairshare is None else fairshare
    settings = others.get("settings") or LauncherSettings()
    ranked = priorities(pending, nodes, factors, now, settings)
    return jobs_to_start(pending, holding or held(), nodes, ranked, now=now, **others)


def started(pending: Pending, nodes: NodeResources, holding: HeldResources | None = None, **others: Any) -> list[int]:
    return [start.row for start in starts(pending, nodes, holding, **others)]


def test_jobs_of_the_same_priority_start_as_they_were_submitted() -> None:
    assert started(queue([2, 2, 2]), room([4])) == [0, 1]


def test_a_site_factor_puts_a_job_before_others_and_nice_puts_it_behind() -> None:
    assert started(queue([4, 4], site_factor=[0.0, 500.0]), room([4])) == [1]
    assert started(queue([4, 4], nice=[500.0, 0.0]), room([4])) == [1]


def test_who_used_much_waits_behind_who_used_little() -> None:
    factors = Usage(0.0, np.array([1e6, 1.0])).fairshare(np.array([0, 1]))
    assert started(queue([4, 4]), room([4]), fairshare=factors) == [1]


def test_a_job_that_waited_longer_comes_first() -> None:
    assert started(queue([4, 4], eligible=[5 * DAY, 0.0]), room([4]), now=7 * DAY) == [1]


def test_a_job_takes_the_first_of_those_neighbours_with_room_that_have_the_fewest_free_cpus() -> None:
    for free, node in (([4, 2, 3], 0), ([4, 0, 2], 2), ([4, 0, 2, 3], 0), ([1, 2, 1, 2, 2], 1)):
        made = starts(queue([2]), room(free))
        assert made == (Start(0, (node,), (2,)),)


def test_a_job_that_a_node_can_hold_waits_for_one() -> None:
    assert started(queue([4]), room([3, 3])) == []
    assert started(queue([5]), room([3, 3])) == [0]


def test_a_gang_that_no_node_holds_takes_as_few_nodes_as_can_be() -> None:
    made = starts(queue([7]), room([2, 4, 1, 4]))
    assert made == (Start(0, (1, 3), (4, 3)),)


def test_a_job_that_requests_several_nodes_gets_as_much_of_each() -> None:
    assert starts(queue([6], nodes=[3]), room([4, 1, 2, 3])) == (Start(0, (0, 2, 3), (2, 2, 2)),)
    assert starts(queue([5], nodes=[2]), room([4, 2, 3])) == (Start(0, (0, 2), (2, 3)),)
    assert started(queue([6], nodes=[3]), room([4, 1, 1, 4])) == []
    of_cpus = queue([0, 0], nodes=[2, 2], demand=[[0.0, 20.0, 0.0], [0.0, 14.0, 0.0]])
    assert starts(of_cpus, room([4, 4])) == (Start(0, (0, 1), (0, 0)),)
    assert starts(of_cpus, room([4, 4, 4, 4])) == (Start(0, (0, 1), (0, 0)), Start(1, (2, 3), (0, 0)))


def test_a_job_on_several_nodes_is_promised_them() -> None:
    pending = queue([4, 1, 1], nodes=[2, 0, 0], time_limit=[HOUR, 9 * HOUR, 0.5 * HOUR])
    assert started(pending, room([2, 1, 1]), held((1, 3, HOUR), (2, 3, 9 * HOUR))) == [1, 2]
    assert started(pending, room([2, 1]), held((1, 3, HOUR))) == [1, 2]
    assert started(queue([4, 1], nodes=[2, 0], time_limit=[HOUR, 9 * HOUR]), room([2, 0]), held((1, 2, HOUR))) == []
    pending = queue([8, 1, 1], nodes=[2, 0, 0], time_limit=[HOUR, 9 * HOUR, 0.5 * HOUR])
    assert started(pending, room([2, 1]), held((0, 2, HOUR), (1, 3, HOUR))) == [2]


def test_cpus_and_memory_are_resources_too() -> None:
    pending = queue([2, 0], demand=[[1.0, 20.0, 0.0], [0.0, 30.0, 0.0]])
    assert started(pending, room([4, 4])) == [0]  # one GPU a node, for a node has 32 CPUs
    assert started(queue([0], demand=[[0.0, 40.0, 0.0]]), room([4, 4])) == []  # no node has 40


def test_a_later_job_starts_now_if_it_ends_before_the_first_can_start() -> None:
    pending = queue([4, 2], time_limit=[HOUR, HOUR])
    assert started(pending, room([2]), held((0, 2, HOUR))) == [1]


def test_a_later_job_waits_if_it_would_delay_the_first() -> None:
    pending = queue([4, 2], time_limit=[HOUR, HOUR + 1])
    assert started(pending, room([2]), held((0, 2, HOUR))) == []


def test_a_long_job_starts_in_what_is_spare_beside_the_first() -> None:
    pending = queue([4, 2, 2], time_limit=[HOUR, 9 * HOUR, 9 * HOUR])
    made = starts(pending, room([0, 2]), held((0, 4, HOUR), (1, 2, 5 * HOUR)))
    assert made == (Start(1, (1,), (2,)),)


def test_without_backfill_nobody_passes_the_first() -> None:
    pending = queue([4, 1], time_limit=[HOUR, 60.0])
    assert started(pending, room([2]), held((0, 2, HOUR)), settings=LauncherSettings(backfill=False)) == []


def test_backfill_looks_no_further_than_it_may() -> None:
    pending = queue([4, 3, 1], time_limit=[HOUR, 60.0, 60.0])
    holding = held((0, 2, HOUR))
    assert started(pending, room([2]), holding, settings=LauncherSettings(bf_max_job_test=1)) == []
    assert started(pending, room([2]), holding, settings=LauncherSettings(bf_max_job_test=2)) == [2]


def test_a_job_larger_than_the_cluster_holds_nobody_up() -> None:
    assert started(queue([64, 2]), room([4])) == [1]


def test_a_job_does_not_start_before_its_begin_time() -> None:
    assert started(queue([1, 1], begin=[100.0, 0.0]), room([4])) == [1]
    assert started(queue([1, 1], begin=[100.0, 0.0]), room([4]), now=100.0) == [0, 1]


def test_reserved_nodes_are_for_the_jobs_of_the_reservation_alone() -> None:
    nodes = room([4, 4], reservation=["", "mine"])
    made = starts(queue([4, 2, 2], reservation=["mine", "", "mine"]), nodes)
    assert {start.row: start.nodes for start in made} == {0: (1,), 1: (0,)}


def test_a_job_that_waits_in_a_reservation_holds_up_nobody_outside() -> None:
    nodes = room([4, 0], reservation=["", "mine"])
    pending = queue([4, 4], reservation=["mine", ""])
    assert started(pending, nodes, held((1, 4, HOUR))) == [1]


def test_a_node_that_is_down_takes_nothing() -> None:
    assert started(queue([1]), room([4], up=False)) == []


def test_a_job_without_a_time_limit_is_taken_to_need_the_default() -> None:
    pending = queue([4, 1], time_limit=[HOUR, np.nan])
    holding = held((0, 2, HOUR))
    assert started(pending, room([2]), holding) == []
    assert started(pending, room([2]), holding, settings=LauncherSettings(default_limit=60.0)) == [1]


def test_a_job_past_its_time_limit_may_end_at_any_moment() -> None:
    assert earliest_start(queue([4]), 0, held((0, 4, 50.0)), room([0]), 100.0) == 100.0
    assert earliest_start(queue([64]), 0, held((0, 4, 50.0)), room([0]), 100.0) == np.inf


def test_usage_halves_every_half_life_and_grows_by_what_is_held() -> None:
    usage = Usage(0.0, np.array([80.0])).after(DAY, np.zeros(1), DAY)
    assert usage.used[0] == pytest.approx(40.0)
    held_by = np.array([0.0, 2.0])
    slow = Usage().after(100.0, held_by, 1e9)
    assert slow.used == pytest.approx([0.0, 200.0], rel=1e-3)
    in_steps = Usage().after(40.0, held_by, 50.0).after(100.0, held_by, 50.0)
    assert in_steps.used == pytest.approx(Usage().after(100.0, held_by, 50.0).used)


def test_a_share_is_that_of_all_users_that_have_used_anything_or_wait() -> None:
    usage = Usage(0.0, np.array([30.0, 10.0, 0.0, 0.0]))
    assert usage.fairshare(np.array([0, 1, 3])) == pytest.approx([2**-2.25, 2**-0.75, 1.0])


def test_the_factors_of_the_priority_are_those_of_the_manual() -> None:
    weights = Weights(qos=100.0, qos_priority={"high": 20.0, "low": 5.0}, partition_priority={"gpu": 1.0})
    made = priority(
        weights,
        waited=np.array([7 * DAY, 100 * DAY, 0.0]),
        fairshare=np.array([1.0, 0.5, 0.0]),
        size=np.array([0.25, 0.0, 0.0]),
        qos=np.array(["high", "low", "none"]),
        partition=np.array(["gpu", "gpu", "cpu"]),
        nice=np.array([0.0, 0.0, 50.0]),
        site_factor=np.array([0.0, 7.0, 0.0]),
    )
    assert made.tolist() == [500 + 10_000 + 250 + 100 + 1_000, 1_000 + 5_000 + 25 + 1_000 + 7, 1]

"""Partitions of the simulator's Slurm: on which nodes jobs run, whose jobs come first, and who waits for whom."""

from typing import Any

import numpy as np

from policies.snapshot import Snapshot
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.slurm.launcher import jobs_to_start, priorities
from slurmplug.sim.slurm.partitions import JobPartitions, Partition, job_partitions, strays
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending, Start
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.earliest_start import earliest_start
from tests.sim_jobs import ScriptedPolicy, job, run, speed
from tests.unit.sim.slurm.test_launcher import HOUR, held, queue, room

LEFT, RIGHT, LAST = Partition(frozenset({0, 1})), Partition(frozenset({1, 2})), Partition(frozenset({2}))
PARTITIONS = {"left": LEFT, "right": RIGHT, "last": LAST, "urgent": Partition(frozenset({0, 1}), tier=10)}


def of(pending: Pending, nodes: NodeResources) -> JobPartitions:
    return job_partitions(
        PARTITIONS, pending.partition,
        gpus=pending.gpus, nodes=pending.nodes, demand=pending.demand, total=nodes.total,
    )  # fmt: skip


def starts(pending: Pending, nodes: NodeResources, holding: HeldResources | None = None, **others: Any) -> list[Start]:
    settings = others.get("settings") or LauncherSettings()
    ranked = priorities(pending, nodes, np.ones(len(pending)), 0.0, settings)
    found = jobs_to_start(
        pending, holding or held(), nodes, ranked, now=0.0, settings=settings, partitions=of(pending, nodes)
    )
    return list(found)


def started(*given: Any, **others: Any) -> list[int]:
    return [start.row for start in starts(*given, **others)]


def test_a_job_runs_on_nodes_of_its_partition() -> None:
    made = starts(queue([2, 2, 2], partition=["right", "last", "right"]), room([4, 4, 4]))
    assert made == [Start(0, (1,), (2,)), Start(1, (2,), (2,)), Start(2, (1,), (2,))]
    assert starts(queue([6], partition=["right"]), room([4, 4, 4])) == [Start(0, (1, 2), (4, 2))]


def test_a_partition_without_room_holds_up_nobody_elsewhere() -> None:
    pending = queue([4, 4], partition=["left", "last"])
    holding = held((0, 4, HOUR), (1, 4, HOUR))
    assert started(pending, room([0, 0, 4]), holding) == [1]
    assert started(pending, room([0, 0, 4]), holding, settings=LauncherSettings(backfill=False)) == [1]


def test_on_the_nodes_of_a_partition_that_waits_nobody_starts_but_by_backfill() -> None:
    long, short = 9 * HOUR, 0.5 * HOUR
    nodes, holding = room([0, 4, 0]), held((0, 4, HOUR), (2, 4, 9 * HOUR))
    of_others = {"partition": ["left", "right"]}
    no_backfill = LauncherSettings(backfill=False)
    assert started(queue([8, 2], time_limit=[HOUR, short], **of_others), nodes, holding, settings=no_backfill) == []
    assert started(queue([8, 2], time_limit=[HOUR, short], **of_others), nodes, holding) == [1]
    assert started(queue([8, 2], time_limit=[HOUR, long], **of_others), nodes, holding) == []
    assert started(queue([6, 2], time_limit=[HOUR, long], **of_others), nodes, holding) == [1]


def test_each_partition_has_a_promise_which_others_do_not_delay() -> None:
    nodes, holding = room([0, 2, 2]), held((0, 4, HOUR), (1, 2, HOUR), (2, 2, 2 * HOUR))
    three = {"partition": ["left", "last", "right"]}
    assert started(queue([8, 4, 2], time_limit=[HOUR, HOUR, 1.5 * HOUR], **three), nodes, holding) == [2]
    assert starts(queue([8, 4, 2], time_limit=[HOUR, HOUR, 1.5 * HOUR], **three), nodes, holding)[0].nodes == (2,)
    assert started(queue([8, 4, 2], time_limit=[HOUR, HOUR, 3 * HOUR], **three), nodes, holding) == []


def test_the_promise_of_a_partition_stands_behind_those_of_partitions_before_it() -> None:
    """Both want all of node 1: a job of an hour and a half would delay the first, one of half an hour delays nobody."""
    nodes, holding = room([0, 2, 0]), held((0, 4, HOUR), (1, 2, HOUR), (2, 4, 9 * HOUR))
    pending = queue([8, 4, 2], time_limit=[HOUR, HOUR, 1.5 * HOUR], partition=["left", "right", "right"])
    assert started(pending, nodes, holding) == []
    pending = queue([8, 4, 2], time_limit=[HOUR, HOUR, 0.5 * HOUR], partition=["left", "right", "right"])
    assert started(pending, nodes, holding) == [2]


def test_jobs_of_a_higher_tier_come_first_whatever_their_priority() -> None:
    pending = queue([4, 4, 4], partition=["left", "left", "urgent"], site_factor=[500.0, 900.0, 0.0])
    assert started(pending, room([4, 4, 0])) == [2, 1]


def test_backfill_tries_so_many_jobs_of_all_partitions_behind_those_with_a_promise() -> None:
    pending = queue([8, 4, 3, 3, 1], time_limit=[HOUR] * 5, partition=["left", "last", "left", "last", "left"])
    nodes, holding = room([0, 2, 0]), held((0, 4, HOUR), (1, 2, HOUR), (2, 4, HOUR))
    assert started(pending, nodes, holding, settings=LauncherSettings(bf_max_job_test=2)) == []
    assert started(pending, nodes, holding, settings=LauncherSettings(bf_max_job_test=3)) == [4]


def test_a_job_is_promised_room_on_nodes_of_its_partition() -> None:
    pending, holding = queue([4], partition=["last"]), held((0, 4, HOUR), (2, 4, 3 * HOUR))
    nodes = room([0, 4, 0])
    assert earliest_start(pending, 0, holding, nodes, 0.0, partitions=of(pending, nodes)) == 3 * HOUR


def test_a_job_that_its_partition_could_never_hold_and_one_of_an_unknown_partition_run_on_any_node() -> None:
    pending = queue([8, 2, 0], partition=["last", "gone", "last"])
    found = of(pending, room([4, 4, 4]))
    assert found.strays.tolist() == [True, True, False]
    assert found.nodes[found.where].sum(axis=1).tolist() == [3, 3, 1]
    jobs = [job(gpus=8, partition="last"), job(gpus=2, partition="gone"), job(gpus=2, partition="last")]
    assert strays(jobs, parse("3x4"), PARTITIONS) == {"gone": 1, "last": 1}
    typed = [job(gpus=2, partition="last", gpu_type="fast")]
    assert strays(typed, parse("2x4:fast+1x4:slow"), PARTITIONS) == {"last": 1}
    assert strays(typed, parse("2x4:slow+1x4:fast"), PARTITIONS) == {}
    assert strays(jobs, parse("3x4"), {}) == {}
    assert strays([job(gpus=1, nodes=2, partition="last")], parse("3x4"), PARTITIONS) == {}, (
        "as the simulation gives it"
    )


def finished(*jobs: Any, policy: Any = None) -> tuple[FinishedJob, ...]:
    settings = LauncherSettings(pace=0.1, partitions=PARTITIONS)
    given = {"launcher": "slurm", "cluster": "3x4", "slurm": settings}
    return run(*jobs, policy=policy or ScriptedPolicy(lambda _: ()), **given).finished


def test_the_simulated_slurm_follows_them() -> None:
    one = {"gpus": 4, "speed": speed((4, 1, 1.0))}
    first, second, third = finished(*(job(partition="last", **one) for _ in range(2)), job(partition="left", **one))
    assert (first.started, third.started) == (0.0, 0.0)
    assert second.started == first.ended


def test_policies_see_on_which_nodes_a_job_may_run() -> None:
    seen: list[Snapshot] = []
    policy = ScriptedPolicy(lambda snapshot: seen.append(snapshot) or ())  # type: ignore[func-returns-value]
    finished(job(partition="right"), job(partition="gone"), policy=policy)
    allowed = seen[0].fits[seen[0].jobs.placement]
    assert allowed.tolist() == [[False, True, True], [True, True, True]]

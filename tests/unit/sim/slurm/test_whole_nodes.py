"""Jobs that the simulator's Slurm gives whole nodes."""

from typing import Any

import numpy as np
import pytest

from slurmplug.cluster.limits import Limits, QosLimits
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.slurm.partitions import Partition
from slurmplug.sim.slurm.settings import LauncherSettings, Reservations
from slurmplug.sim.slurm.share_tree import Shares
from slurmplug.sim.slurm.whole_nodes import with_whole_nodes
from tests.sim_jobs import ScriptedPolicy, job, run, speed

WHOLE = {"whole": Partition(frozenset({0, 1}), exclusive=True), "parts": Partition(frozenset({0, 1}))}
RESERVATIONS = (None, Reservations(resolution=1.0))


def finished(*jobs: SimJob, cluster: str = "2x4", **slurm: Any) -> tuple[FinishedJob, ...]:
    settings = LauncherSettings(pace=0.1, **{"partitions": WHOLE} | slurm)
    return run(
        *jobs, policy=ScriptedPolicy(lambda _: ()), launcher="slurm", cluster=cluster, slurm=settings, contention=1.0
    ).finished


@pytest.mark.parametrize("reservations", RESERVATIONS)
@pytest.mark.parametrize("release", [0.0, 5.0])
def test_a_job_that_gets_whole_nodes_shares_none_with_those_before_and_behind_it(
    reservations: Reservations | None, release: float
) -> None:
    made = finished(
        job(partition="parts", iterations=50),
        job(submit=1.0, partition="whole", iterations=20),
        job(submit=2.0, partition="whole", iterations=20),
        job(submit=60.0, partition="parts", iterations=50),
        reservations=reservations,
        release_seconds=release,
    )
    assert [each.started for each in made] == [0.0, 1.0, 21.0 + release, 60.0]
    assert made[2].ended < 50.0, "on the node of the first that got a whole one, as the other is not empty"


def test_a_job_with_the_option_gets_them_in_any_partition_and_every_job_by_select_linear() -> None:
    one = {"partition": "parts", "iterations": 30}
    first, second, third = finished(job(**one), job(**one, exclusive=True), job(submit=1.0, **one, exclusive=True))
    assert (first.started, second.started, third.started) == (0.0, 0.0, 30.0)
    assert [each.started for each in finished(*[job(**one)] * 3, whole_nodes=True)] == [0.0, 0.0, 30.0]
    assert [each.started for each in finished(*[job(**one)] * 3)] == [0.0, 0.0, 0.0]


def test_jobs_of_several_nodes_and_of_cpus_alone_get_them() -> None:
    two = {"gpus": 4, "nodes": 2, "speed": speed((4, 2, 1.0)), "iterations": 30}
    cpus = {"gpus": 0, "cpus": 2, "speed": speed((1, 1, 1.0)), "iterations": 30}
    made = finished(job(**two, partition="whole"), job(submit=1.0, **cpus, partition="parts"))
    assert [each.started for each in made] == [0.0, 30.0]
    made = finished(job(**cpus, nodes=2, partition="whole"), job(submit=1.0, partition="parts"))
    assert [each.started for each in made] == [0.0, 30.0]
    uneven = {"gpus": 3, "nodes": 2, "speed": speed((3, 2, 1.0)), "iterations": 30}
    made = finished(job(**uneven, partition="whole"), job(partition="parts"))
    assert [each.started for each in made] == [0.0, 30.0]


def test_where_it_runs_is_by_what_it_requested_and_not_by_what_it_was_given() -> None:
    """It had all 16 CPUs of the first node, which another now has."""
    one = {"gpus": 0, "speed": speed((1, 1, 1.0)), "iterations": 30, "cpus": 16, "cpus_requested": 1}
    made = finished(job(**one), job(**one), cluster="1x0x16x1000+1x0x8x1000")
    assert [each.started for each in made] == [0.0, 0.0]


def test_who_was_given_all_cpus_of_its_nodes_and_requested_fewer_had_the_option() -> None:
    nodes, settings = parse("1x0x16x1000+2x0x8x1000"), LauncherSettings()
    jobs = [
        job(cpus=16, cpus_requested=1),
        job(cpus=16, cpus_requested=3, nodes=2),
        job(cpus=4, cpus_requested=1),
        job(cpus=16, cpus_requested=16),
        job(cpus=16),
    ]
    made = list(with_whole_nodes(jobs, nodes, settings))
    assert [(each.exclusive, each.cpus) for each in made] == [
        (True, 1), (True, 3), (False, 4), (False, 16), (False, 16),
    ]  # fmt: skip


def test_limits_count_all_that_its_nodes_have() -> None:
    limits = Limits(qos={"normal": QosLimits(user={"gres/gpu": 7.0})})
    one = {"iterations": 30, "user": "u"}
    made = finished(job(partition="whole", **one), job(submit=1.0, partition="whole", **one), limits=limits)
    assert [each.started for each in made] == [0.0, 30.0]
    made = finished(job(partition="parts", **one), job(submit=1.0, partition="parts", **one), limits=limits)
    assert [each.started for each in made] == [0.0, 1.0]


def test_fairshare_counts_all_that_its_nodes_have() -> None:
    """Of two users who each had one GPU, one had the whole node; the other's next job is first."""
    shares = Shares({}, {})
    jobs = [job(user="a", partition="whole", iterations=100), job(user="b", partition="parts", iterations=110)]
    wide = {"gpus": 8, "speed": speed((8, 2, 1.0)), "partition": "parts", "iterations": 10}
    jobs += [job(submit=50.0, user=user, managed=False, **wide) for user in "ab"]
    weights = Weights(age=0.0, fairshare=1000.0, job_size=0.0, partition=0.0)
    made = finished(
        *jobs, weights=weights, shares=shares, billing=Billing(other=(1.0, 0.0, 0.0)), fairshare_interval=1.0
    )
    assert made[3].started < made[2].started
    assert np.isfinite(made[2].ended)

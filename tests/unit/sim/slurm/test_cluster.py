"""The simulated Slurm's times: how often it looks and backfills, and what a start and an end take."""

from typing import Any

import numpy as np
import pytest

from policies.baselines.fair import Fair
from policies.baselines.slurm import Slurm
from policies.snapshot import JobKey
from slurmplug.cluster.port import Command
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.engine.workload_table import workload_table
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.slurm.cluster import SlurmSimCluster
from slurmplug.sim.slurm.held_by_row import HeldByRow
from slurmplug.sim.slurm.job_requests import JobRequests
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.sim_jobs import ScriptedPolicy, job, run, simulation, speed


def started_by_slurm(*jobs: SimJob, **slurm: Any) -> tuple[FinishedJob, ...]:
    return run(
        *jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ()), slurm=LauncherSettings(pace=0.1, **slurm)
    ).finished


def wide(submit: float = 0.0, **fields: Any) -> Any:
    return job(submit=submit, gpus=8, speed=speed((8, 2, 1.0)), **fields)


def test_what_a_job_held_is_free_once_slurm_has_cleaned_up_behind_it() -> None:
    first, second = started_by_slurm(wide(), wide(1.0), release_seconds=7.0)
    assert second.started == first.ended + 7.0


def test_other_nodes_need_not_wait_until_slurm_has_cleaned_up() -> None:
    one = {"gpus": 4, "speed": speed((4, 1, 1.0))}
    first, second, third = started_by_slurm(
        job(**one), job(iterations=102, **one), job(submit=1.0, **one), release_seconds=7.0
    )
    assert (first.started, second.started) == (0.0, 0.0)
    assert third.started == first.ended + 7.0
    first, *_, last = started_by_slurm(job(**one), job(submit=101.0, **one), release_seconds=7.0)
    assert last.started == 101.0


def test_a_job_trains_once_it_is_launched_and_holds_its_gpus_meanwhile() -> None:
    first, second = started_by_slurm(wide(startup=2.0), wide(1.0), launch_seconds=5.0)
    assert first.ended - first.started == pytest.approx(107.0)
    assert second.started == pytest.approx(first.ended)
    assert second.ended - second.started == pytest.approx(105.0)


def test_between_two_rounds_of_backfill_nobody_passes_the_first() -> None:
    jobs = (
        job(gpus=4, speed=speed((4, 1, 1.0)), time_limit=120.0),
        wide(5.0, time_limit=200.0),
        job(submit=31.0, gpus=4, speed=speed((4, 1, 1.0)), iterations=20, time_limit=60.0),
    )
    assert started_by_slurm(*jobs)[2].started == pytest.approx(31.0)
    _, second, third = started_by_slurm(*jobs, bf_interval=25.0)
    assert third.started == pytest.approx(50.0)
    assert second.started == pytest.approx(100.0)


def test_an_elastic_job_starts_on_what_is_free_and_its_resize_later_is_counted() -> None:
    """Two of four GPUs are in use; what the other job requests is not free before 1500 s."""
    rigid = job(gpus=2, iterations=1500, speed=speed((2, 1, 1.0)))
    elastic = job(gpus=4, gpus_min=1, gpus_max=4, iterations=6000, speed=speed((1, 1, 1.0), (2, 1, 1.5), (4, 1, 2.0)))
    _, sized = run(rigid, elastic, launcher="slurm", policy=Fair(), cluster="1x4").finished
    assert sized.started < 300.0
    assert (sized.resized_starts, sized.resizes, sized.preemptions, sized.migrations) == (1, 1, 0, 0)
    assert sized.state == "COMPLETED"


def test_a_priority_is_read_with_the_site_factor_that_was_just_written_and_of_a_job_that_just_came() -> None:
    """Slurm adds a SiteFactor to the priority at once, and gives a job that is submitted its priority."""
    table = workload_table([wide(), wide(1.0), wide(2.5)], all_managed=False)
    engine = Engine(table, parse("2x4"), 0.9, limits=True)
    cluster = SlurmSimCluster(engine, LauncherSettings(pace=100.0))
    cluster.wait(2.0)
    cluster.read((), {})
    before = cluster.priority[1]
    key = JobKey("simulated", 2, 1)
    cluster.apply([Command("1", "update", key, {"SiteFactor": "1000"})])
    cluster.wait(3.0)
    cluster.read((), {})
    assert cluster.priority[1] == before + 1000
    assert cluster.priority[2] == before


@pytest.mark.parametrize("bf_interval", [0.0, 30.0])
def test_slurm_alone_does_the_same_without_cycles(bf_interval: float) -> None:
    rng = np.random.default_rng(4)
    jobs = [
        job(
            name=f"j{n}",
            submit=float(20 * n) + 5_000 * (n > 50),
            gpus=int(rng.choice([1, 2, 4, 8])),
            iterations=int(rng.integers(20, 900)),
            time_limit=float(rng.integers(900, 3_000)),
            user=f"u{n % 5}",
            cpus=int(rng.integers(1, 9)),
        )
        for n in range(100)
    ]
    runs = [
        simulation(
            *jobs, policy=Slurm(), launcher="slurm", cycles=cycles, slurm=LauncherSettings(bf_interval=bf_interval)
        ).run()
        for cycles in (True, False)
    ]
    with_cycles, without = ([(each.started, each.ended, each.wait) for each in run.finished] for run in runs)
    assert with_cycles == without
    assert max(wait for _, _, wait in without) > 1_000


def test_a_run_without_cycles_ends_where_a_job_never_starts() -> None:
    made = simulation(job(cpus=1_000), job(), policy=Slurm(), launcher="slurm", cycles=False).run()
    assert [each.state for each in made.finished] == ["PENDING", "COMPLETED"]


def test_what_rows_hold_is_known_by_row() -> None:
    held = HeldByRow(1)
    for row in range(100):
        held.add(row, [row % 3, 3], np.array([[1.0], [2.0]]), float(row))
    held.add(7, [9], np.array([[5.0]]), 70.0)
    for row in set(range(100)) - {7, 8}:
        held.remove(row)
    found = held.resources([4], np.array([[8.0]]), [1.0])
    entries = sorted(zip(found.node.tolist(), found.amount[:, 0].tolist(), found.until.tolist(), strict=True))
    assert entries == [(2, 1.0, 8.0), (3, 2.0, 8.0), (4, 8.0, 1.0), (9, 5.0, 70.0)]


def test_a_job_on_several_nodes_holds_as_much_of_each_until_it_ends() -> None:
    """Of two nodes of four GPUs and 32 CPUs."""
    of_cpus = {"gpus": 0, "nodes": 2, "cpus": 50, "speed": speed((1, 1, 1.0)), "managed": False}
    on_each = {"gpus": 4, "nodes": 2, "speed": speed((4, 2, 1.0)), "managed": False}
    wants_node = {"gpus": 3, "speed": speed((3, 1, 1.0)), "managed": False}
    first, second, third, fourth = started_by_slurm(
        job(**of_cpus), job(submit=1.0, **of_cpus), job(submit=2.0, **on_each), job(submit=3.0, **wants_node)
    )
    assert first.started == 0.0
    assert second.started == pytest.approx(100.0, abs=1.0)
    assert third.started == pytest.approx(2.0, abs=0.2)
    assert fourth.started == pytest.approx(third.ended, abs=0.2), "two GPUs are free on each node"


def test_what_a_job_on_several_nodes_requests_is_what_policies_and_limits_see() -> None:
    table = workload_table(
        [job(gpus=0, nodes=2, cpus=50, memory=8.0), job(gpus=6, nodes=3, cpus=12), job(gpus=2, nodes=3)],
        all_managed=False,
    )
    requests = JobRequests.of(table, 4.0)
    assert requests.nodes.tolist() == [2, 3, 0]
    assert requests.demand.tolist() == [[0, 25, 4], [1, 2, 0], [1, 0, 0]]
    assert (table.per_gpu * table.units(np.arange(3), table.requested)[:, None])[0].tolist() == [0, 50, 8]
    assert JobRequests.of(table, 1.0).nodes.tolist() == [2, 0, 0], "no node has two GPUs"
    assert workload_table([job(gpus=6, nodes=3)], all_managed=True).nodes.tolist() == [0], "policies place it"

"""The simulated Slurm's times: how often it looks and backfills, and what a start and an end take."""

from typing import Any

import pytest

from policies.baselines.fair import Fair
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.slurm.launcher import LauncherSettings
from tests.sim_jobs import ScriptedPolicy, job, run, speed


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
    assert (sized.resizes, sized.preemptions, sized.migrations) == (1, 0, 0)
    assert sized.state == "COMPLETED"

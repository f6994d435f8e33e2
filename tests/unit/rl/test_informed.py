"""The teacher that is told the speeds: by hand where one slot decides, and on the simulated workload."""

from typing import Any

import numpy as np

from policies.plan import Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.rl.informed import Informed
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

SLOT = 1200.0


def speed(power: float) -> Speed:
    """Of k^power on k GPUs."""
    gpus = np.array([1, 2, 4, 8])
    return Speed(gpus, np.ones(4, dtype=np.int64), gpus**power)


def teacher(*powers: float) -> Informed:
    given = [SimJob(f"j{at}", 0.0, 1, 100, speed(power)) for at, power in enumerate(powers)]
    return Informed(Workload("by hand", tuple(given)), 8, SLOT)


def queue(n: int, servers: int = 1, **columns: Any) -> Snapshot:
    given = {"gpus": 1, "gpus_min": 1, "gpus_max": 4, "submitted": NOW - n + np.arange(n)} | columns
    return snapshot(jobs(n, **given), nodes(servers))


def gpus(plan: Plan) -> dict[int, int | None]:
    return {action.job.job_id: action.gpus for action in plan.actions if action.kind == "place"}


def test_the_job_that_scales_has_more_gpus() -> None:
    plan = teacher(0.0, 0.5).decide(queue(2), forecasts(2, total=9_000.0, remaining=9_000.0), {})
    assert gpus(plan) == {1: 1, 2: 3}


def test_what_ends_in_the_slot_goes_first() -> None:
    """Either is to have all four GPUs, and only the second ends by that."""
    given = queue(2, gpus=4, gpus_min=4)
    plan = teacher(1.0, 1.0).decide(given, forecasts(2, total=[30_000.0, 600.0], remaining=[30_000.0, 600.0]), {})
    assert gpus(plan) == {2: 4}


def test_gpus_that_shorten_nothing_stay_free() -> None:
    plan = teacher(0.0).decide(queue(1), forecasts(1, total=9_000.0, remaining=9_000.0), {})
    assert gpus(plan) == {1: 1}


def test_a_job_of_unknown_run_time_is_given_gpus_too() -> None:
    assert set(gpus(teacher(1.0).decide(queue(1), forecasts(1, total=np.nan, remaining=np.nan), {}))) == {1}


def test_without_jobs_nothing_is_decided() -> None:
    assert teacher().decide(queue(0), forecasts(0), {}).actions == ()


def test_jobs_end_sooner_than_under_equal_shares_or_where_each_has_what_it_requests() -> None:
    given = load.load("gen:dl2", seed=1000, jobs=40)

    def mean_jct(policy: Policy) -> float:
        result = Simulation(given, policy, SimulationSettings("16x4", SLOT)).run()
        return float(np.mean([job.ended - job.submitted for job in result.finished]))

    informed = mean_jct(Informed(given, 4, SLOT))
    for rival in ("drf", "srtf"):
        assert informed < 0.9 * mean_jct(policy_registry.policy(Config(policy=rival, interval=SLOT)))

"""The fluid and the lower bound, on workloads whose best schedule is known, and against simulated policies."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.baselines.fair import Fair
from policies.baselines.fifo import FIFO
from policies.baselines.sjf import SRTF
from policies.mlfs.growth import POWER
from policies.policy import Policy
from slurmplug.commands import main
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.fluid import completions
from slurmplug.sim.experiment.lower_bound import mean_jct_bound
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.experiment.speedup import fastest

FOUR = parse("1x4")
LINEAR = Speed(np.array([1, 4]), np.ones(2, dtype=int), np.array([1.0, 4.0]))
POWERS = Speed(np.arange(1, 5), np.ones(4, dtype=int), np.arange(1.0, 5.0) ** POWER)


def job(iterations: int, submit: float = 0.0, gpus: int = 4, **fields: Any) -> SimJob:
    return SimJob("j", submit, gpus, iterations, fields.pop("speed", LINEAR), **fields)


def fluid(*jobs: SimJob) -> list[float]:
    return [float(end) for end in completions(jobs, FOUR)]


# --- the fluid --------------------------------------------------------------------------------------------------------


def test_linear_speeds_run_the_shortest_job_first_and_give_it_everything() -> None:
    small, large = job(40, gpus_min=1, gpus_max=4), job(400, gpus_min=1, gpus_max=4)
    # At p = .7 the smaller of two weighs (2^c - 1)^(1 - p) = 1.93 times as much.
    assert fluid(large, small) == pytest.approx([110.0, 10.0])


def test_a_rigid_job_alone_takes_its_own_time() -> None:
    assert fluid(job(40, submit=5.0, startup=2.0)) == pytest.approx([17.0])
    assert fluid(job(40, gpus=0)) == pytest.approx([40.0])


def test_a_job_beyond_its_largest_size_leaves_the_rest_to_others() -> None:
    assert fluid(job(30, gpus=1, gpus_min=1, gpus_max=3), job(10, gpus=1)) == pytest.approx([10.0, 10.0])


def test_speeds_that_are_a_power_are_shared_as_hesrpt_does() -> None:
    many = Speed(np.arange(1, 101), np.ones(100, dtype=int), np.arange(1.0, 101.0) ** POWER)
    sizes = [900.0, 300.0]
    jobs = [job(int(size), gpus=1, gpus_min=1, gpus_max=100, speed=many) for size in sizes]
    share = 0.5 ** (1 / (1 - POWER))
    first = sizes[1] / ((1 - share) * 100) ** POWER
    left = sizes[0] - first * (share * 100) ** POWER
    ended = completions(jobs, parse("1x100"))
    assert ended.tolist() == pytest.approx([first + left / 100**POWER, first], rel=2e-3)  # a hull has corners


# --- the bound --------------------------------------------------------------------------------------------------------


def test_the_bound_of_one_job_is_its_time_at_its_greatest_speed() -> None:
    assert mean_jct_bound([job(40, submit=3.0, gpus=1, gpus_min=1, gpus_max=4)], FOUR) == pytest.approx(10.0)
    assert mean_jct_bound([job(40, submit=3.0, gpus=1, startup=7.0)], FOUR) == pytest.approx(47.0)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_bound_of_equal_jobs_one_after_another_is_met(count: int) -> None:
    best = 10 * (count + 1) / 2
    bound = mean_jct_bound([job(40) for _ in range(count)], FOUR)
    assert best - 0.2 * count <= bound <= best + 1e-6


def test_jobs_without_gpus_count_with_their_own_time() -> None:
    assert mean_jct_bound([job(40), job(30, gpus=0)], FOUR) == pytest.approx((10 + 30) / 2)


def test_more_cuts_never_take_the_bound_above_the_best_schedule() -> None:
    jobs = [job(40, submit=float(i)) for i in range(4)]
    bounds = [mean_jct_bound(jobs, FOUR, cuts) for cuts in (1, 10, 400)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= 25 - 1.5 + 1e-6


def test_the_speed_of_a_bound_is_that_of_the_best_number_of_nodes() -> None:
    wide = Speed(np.array([2, 2]), np.array([1, 2]), np.array([1.0, 3.0]))
    assert fastest(job(9, gpus=2, speed=wide), parse("2x4")).at(2) == pytest.approx(3.0)
    assert fastest(job(9, gpus=2, speed=wide), parse("1x4")).at(2) == pytest.approx(1.0)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[SimJob, ...]:
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        gpus = draw(st.integers(1, 4))
        rates = np.cumsum(draw(st.lists(st.floats(0.1, 1.0), min_size=8, max_size=8)))
        speed = Speed(np.repeat(np.arange(1, 5), 2), np.tile([1, 2], 4), rates)
        least, most = (1, 4) if draw(st.booleans()) else (0, 0)
        at, iterations = draw(st.floats(0, 600)), draw(st.integers(1, 200))
        jobs.append(SimJob(f"j{number}", at, gpus, iterations, speed, startup=10.0, gpus_min=least, gpus_max=most))
    return tuple(sorted(jobs, key=lambda each: each.submit))


@settings(max_examples=15, deadline=None)
@given(workloads(), st.sampled_from([FIFO, Fair, SRTF]))
def test_no_policy_is_below_the_bound_nor_is_the_fluid(jobs: tuple[SimJob, ...], policy: type[Policy]) -> None:
    submitted = np.array([each.submit for each in jobs])
    bound = mean_jct_bound(jobs, parse("2x2"), 60)
    run = Simulation(Workload("w", jobs), policy(), SimulationSettings("2x2", interval=30.0)).run()
    assert bound <= np.mean([each.ended - each.submitted for each in run.finished]) * (1 + 1e-6)
    assert bound <= np.mean(completions(jobs, parse("2x2")) - submitted) * (1 + 1e-6)


# --- the command ------------------------------------------------------------------------------------------------------


def test_runs_are_compared_with_the_bounds_of_the_same_workload(tmp_path: Any) -> None:
    bounds, runs = str(tmp_path / "bounds.json"), str(tmp_path / "runs.json")
    few = ["small", "--cluster", "4x4", "--jobs", "8"]
    made = CliRunner().invoke(main, ["bound", *few, "--json", bounds])
    assert made.exit_code == 0, made.output
    assert [line.split()[0] for line in made.output.splitlines()] == ["policy", "lower-bound", "fluid"]
    assert CliRunner().invoke(main, ["simulate", *few, "--policy", "fair", "--json", runs]).exit_code == 0
    for against in ("fluid", "lower-bound"):
        compared = CliRunner().invoke(main, ["compare", bounds, runs, "--against", against, "--figure", "jct_mean"])
        assert compared.exit_code == 0, compared.output
        figure, policy, other, *_ = compared.output.splitlines()[2].split()
        assert (figure, policy, other) == ("jct_mean", "fair", against)
        assert "+" in compared.output


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    refused = CliRunner().invoke(main, ["bound", "gen:mlfs?elastic=off", "--cluster", "1x4", "--jobs", "50"])
    assert refused.exit_code == 1
    assert "GPUs, and the cluster has 4" in refused.output

"""Finish-time fairness and slowdowns, on jobs whose shares are short enough to work out by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.baselines.fifo import FIFO
from slurmplug.sim.engine.job import Part, SimJob, Speed, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.fairness import contention, finish_time_fairness, slowdowns
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.experiment.speedup import Speedup, packed
from slurmplug.sim.experiment.summary import summary

FOUR = parse("1x4")
LINEAR = Speed(np.array([1, 2, 4]), np.ones(3, dtype=int), np.array([1.0, 2.0, 4.0]))


def job(gpus: int, iterations: int, submit: float = 0.0, **fields: Any) -> SimJob:
    return SimJob("j", submit, gpus, iterations, fields.pop("speed", LINEAR), **fields)


def ended(of: SimJob, at: float, trained: float | None = None) -> FinishedJob:
    done = of.iterations if trained is None else trained
    return FinishedJob(
        job=of, submitted=of.submit, started=of.submit, ended=at, state="COMPLETED", stopped=False,
        times=np.array([of.submit, at]), iterations=np.array([0.0, done]), wait=0.0, gpu_seconds=0.0,
        bandwidth_bytes=0.0, preemptions=0, migrations=0, resizes=0,
    )  # fmt: skip


def rho(*jobs: FinishedJob) -> list[float]:
    return [float(value) for value in finish_time_fairness(jobs, FOUR)]


def test_a_speedup_is_the_least_concave_function_above_the_measured_rates() -> None:
    made = Speedup.through([1, 2, 3, 4, 5], [1.0, 1.2, 2.7, 2.9, 2.5])
    assert made.gpus.tolist() == [0, 1, 3, 4]
    assert [made.at(share) for share in (0.5, 2, 3.5, 9)] == pytest.approx([0.5, 1.85, 2.8, 2.9])


def test_a_range_that_begins_above_one_gpu_is_shared_by_time() -> None:
    speed = Speed(np.array([2, 4]), np.ones(2, dtype=int), np.array([2.0, 3.0]))
    made = packed(job(2, 8, gpus_min=2, gpus_max=4, speed=speed), 4, 4)
    assert (made.at(1), made.at(4)) == pytest.approx((1.0, 3.0))


def test_contention_is_the_mean_number_of_jobs_over_a_jobs_time() -> None:
    # The second is there from 4 to 8, the third from 6 on: over the first ten seconds (10 + 4 + 4) / 10.
    met = contention(np.array([0.0, 4.0, 6.0]), np.array([10.0, 8.0, math.nan]))
    assert met[:2].tolist() == pytest.approx([1.8, (4 + 4 + 2) / 4])
    assert math.isnan(met[2])


def test_a_job_alone_that_never_waits_has_a_rho_of_one() -> None:
    assert rho(ended(job(2, 8), 4.0)) == [1.0]
    assert rho(ended(job(2, 8, startup=6.0), 10.0)) == [1.0]


def test_two_jobs_one_after_the_other_share_the_cluster_unfairly() -> None:
    # Each takes 10 s on all four GPUs. The second ends at 20 s; on two GPUs from the start it needs 10 s at n = 1,
    # 20 s at n = 2: it met the first one for half of its time, n = 1.5, so 15 s. The first: n = 2, 20 s.
    first, second = ended(job(4, 40), 10.0), ended(job(4, 40), 20.0)
    assert rho(first, second) == pytest.approx([10 / 20, 20 / 15])


def test_a_rigid_job_smaller_than_its_share_is_compared_with_its_own_speed() -> None:
    first, second = ended(job(1, 10), 10.0), ended(job(1, 10), 15.0)
    assert rho(first, second) == pytest.approx([1.0, 1.5])


def test_an_elastic_job_is_compared_with_what_its_share_could_do() -> None:
    elastic = job(1, 40, gpus_min=1, gpus_max=4)
    assert rho(ended(elastic, 40.0)) == pytest.approx([4.0])  # alone it could have had all four


def test_what_was_stopped_early_is_measured_by_what_it_trained() -> None:
    assert rho(ended(job(1, 100), 20.0, trained=10)) == pytest.approx([2.0])


def test_jobs_without_an_end_gpus_or_training_have_no_rho() -> None:
    stays, cpu, never = ended(job(1, 9), math.nan), ended(job(0, 9), 9.0), ended(job(1, 9), 9.0, trained=0)
    assert all(map(math.isnan, rho(stays, cpu, never)))
    assert slowdowns((stays, cpu, never), FOUR).tolist() == pytest.approx([math.nan, 0.9, math.nan], nan_ok=True)


def test_a_job_in_parts_shares_as_a_whole() -> None:
    parts = (Part(2, 1, 1.0), Part(2, 1, 1.0))
    assert rho(ended(job(4, 40, parts=parts, gpus_min=1, gpus_max=4), 10.0)) == [1.0]


def test_a_slowdown_is_by_the_run_time_on_the_requested_gpus_and_bounded_for_short_jobs() -> None:
    jobs = ended(job(2, 40), 60.0), ended(job(1, 1), 20.0)
    assert slowdowns(jobs, FOUR).tolist() == pytest.approx([3.0, 2.0])


def test_the_figures_of_a_run_have_the_share_above_one_tenth_and_the_worst() -> None:
    jobs = tuple(replace(job(4, 600), name=f"j{i}", managed=i > 0) for i in range(3))
    run = Simulation(Workload("w", jobs), FIFO(), SimulationSettings("1x4", interval=10.0)).run()
    figures = summary(run)
    # They end at 150, 300 and 450 s, and meet 3, 2.5 and 2 jobs in the mean.
    assert figures["rho_max"] == pytest.approx(450 / (150 * 2))
    assert figures["unfair_ratio"] == pytest.approx(1 / 3)
    assert figures["slowdown_max"] == pytest.approx(3.0)
    assert (figures["plain_wait_mean"], figures["plain_wait_max"]) == (0.0, 0.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e3), st.floats(0.1, 1e3), st.booleans()),
        min_size=1, max_size=12,
    )
)  # fmt: skip
def test_contention_agrees_with_counting_at_each_moment(lives: list[tuple[float, float, bool]]) -> None:
    submitted = np.array([begin for begin, _, _ in lives])
    ends = np.array([begin + stay if leaves else math.nan for begin, stay, leaves in lives])
    last = np.where(np.isnan(ends), math.inf, ends)
    for row, met in enumerate(contention(submitted, ends)):
        if np.isnan(ends[row]):
            assert math.isnan(met)
            continue
        shared = np.minimum(last, ends[row]) - np.maximum(submitted, submitted[row])
        assert met == pytest.approx(np.maximum(shared, 0).sum() / (ends[row] - submitted[row]), rel=1e-6)

"""What a policy is trained on is never what it is judged by."""

import numpy as np
import pytest

from slurmplug.errors import UsageError
from slurmplug.rl.training_workloads import FIRST_SEED, LAST_SEED, TrainingWorkloads
from slurmplug.sim.engine.nodes import parse

WORKLOADS = TrainingWorkloads("gen:mlfs", jobs=40)


@pytest.mark.parametrize("seed", [0, 9, 500, 519, FIRST_SEED - 1, LAST_SEED + 1, -1])
def test_seeds_by_which_policies_are_judged_are_refused(seed: int) -> None:
    with pytest.raises(UsageError, match="is not one for training: give one from 1000"):
        WORKLOADS.sample(seed)


@pytest.mark.parametrize("name", ["pollux:workload.csv", "philly.csv", "small", ""])
def test_workloads_that_are_not_generated_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a workload for training: name a generator, gen:mlfs"):
        TrainingWorkloads(name)


@pytest.mark.parametrize("fields", [{"clusters": ()}, {"loads": (0.0, 1.0)}, {"loads": (2.0, 1.0)}])
def test_what_nothing_can_be_drawn_from_is_refused(fields: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(UsageError, match="at least one cluster, and loads above 0"):
        TrainingWorkloads("gen:mlfs", **fields)  # type: ignore[arg-type]


def test_a_seed_draws_the_same_workload_again() -> None:
    (one, cluster), (other, again) = WORKLOADS.sample(1234), WORKLOADS.sample(1234)
    assert cluster == again
    assert [(job.name, job.submit) for job in one.jobs] == [(job.name, job.submit) for job in other.jobs]


def test_seeds_draw_every_cluster_and_loads_on_both_sides_of_one() -> None:
    workloads = TrainingWorkloads("gen:dl2", jobs=50)
    drawn = [workloads.sample(seed) for seed in range(1000, 1030)]
    assert {cluster for _, cluster in drawn} == set(workloads.clusters)
    spans = [workload.jobs[-1].submit * sum(parse(cluster).gpus) for workload, cluster in drawn]
    assert max(spans) > 2 * min(spans)


def test_jobs_that_a_cluster_is_too_small_for_are_left_out() -> None:
    workload, _ = TrainingWorkloads("gen:mlfs?elastic=off", clusters=("2x4",), jobs=100).sample(1000)
    assert 0 < len(workload.jobs) < 100
    assert max(job.gpus for job in workload.jobs) <= 8


def test_a_cluster_that_no_job_fits_is_an_error() -> None:
    with pytest.raises(UsageError, match="name larger clusters"):
        TrainingWorkloads("gen:mlfs?elastic=off", clusters=("1x1",), jobs=1).sample(1000)


def test_loads_are_relative_to_the_clusters_gpus() -> None:
    at_one = {
        cluster: TrainingWorkloads("gen:mlfs", (cluster,), jobs=200, loads=(1.0, 1.0)).sample(1000)[0].jobs[-1].submit
        for cluster in ("10x4", "20x4")
    }
    assert at_one["10x4"] == pytest.approx(2 * at_one["20x4"])
    assert np.isfinite(at_one["20x4"])

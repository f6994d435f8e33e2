"""An inference of DL2's network, and a decision of some hundred of them, with the models that come with slurmplug: that
of J + 1 actions, and that of 3J + 1."""

from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.dl2 import DL2
from policies.snapshot import Snapshot
from slurmplug.config import model_files
from tests.builders import NOW, forecasts, jobs, nodes, servers, snapshot

JOBS, NODES, GPUS = 64, 32, 4


@pytest.fixture(scope="module", params=["dl2", "dl2-servers"])
def policy(request: pytest.FixtureRequest) -> DL2:
    model = model_files.shipped(request.param)
    assert model is not None
    return DL2(model=model)


@pytest.fixture(scope="module")
def queue(policy: DL2) -> Snapshot:
    """J waiting jobs of 1 to 16 GPUs, and as many parameter servers where the model gives any, on 128 GPUs."""
    submitted = NOW - JOBS + np.arange(JOBS)
    waiting = jobs(JOBS, gpus=4, gpus_min=1, gpus_max=16, kind="vgg16", submitted=submitted, max_iterations=100.0)
    if policy.allocator.actions == 1:
        return snapshot(waiting, nodes(NODES, capacity=[GPUS, GPUS, 0]))
    with_cpus = replace(waiting, demand=np.tile([4.0, 16.0, 0.0], (JOBS, 1)))
    return snapshot(with_cpus, nodes(NODES, capacity=[GPUS, 4 * GPUS, 0]), servers=servers(JOBS, most=16))


def test_bench_inference(benchmark: BenchmarkFixture, policy: DL2, queue: Snapshot) -> None:
    choices = policy.allocator.choices(queue, forecasts(JOBS, total=7200.0, remaining=7200.0), begins=True)
    state, mask = choices.state["jobs"], choices.mask
    assert len(state) == JOBS
    benchmark(policy.network.best, state, mask)


def test_bench_decide(benchmark: BenchmarkFixture, policy: DL2, queue: Snapshot) -> None:
    plan = benchmark(policy.decide, queue, forecasts(JOBS, total=7200.0, remaining=7200.0), {})
    assert len(plan.actions) > 0

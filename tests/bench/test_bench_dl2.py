"""An inference of DL2's network, and a decision of some hundred of them, with the model that comes with slurmplug."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.dl2 import DL2
from policies.snapshot import Snapshot
from slurmplug.config import model_files
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

JOBS, NODES, GPUS = 64, 32, 4


@pytest.fixture(scope="module")
def policy() -> DL2:
    model = model_files.shipped("dl2")
    assert model is not None
    return DL2(model=model)


@pytest.fixture(scope="module")
def queue() -> Snapshot:
    """J waiting jobs of 1 to 16 GPUs, on as many GPUs as in the largest cluster of its training."""
    submitted = NOW - JOBS + np.arange(JOBS)
    waiting = jobs(JOBS, gpus=4, gpus_min=1, gpus_max=16, kind="vgg16", submitted=submitted, max_iterations=100.0)
    return snapshot(waiting, nodes(NODES, capacity=[GPUS, GPUS, 0]))


def test_bench_inference(benchmark: BenchmarkFixture, policy: DL2, queue: Snapshot) -> None:
    choices = policy.allocator.choices(queue, forecasts(JOBS, total=7200.0, remaining=7200.0), begins=True)
    state, mask = choices.state["jobs"], choices.mask
    assert len(state) == JOBS
    benchmark(policy.network.best, state, mask)


def test_bench_decide(benchmark: BenchmarkFixture, policy: DL2, queue: Snapshot) -> None:
    plan = benchmark(policy.decide, queue, forecasts(JOBS, total=7200.0, remaining=7200.0), {})
    assert len(plan.actions) > 0

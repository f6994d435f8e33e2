"""A decision of SLAQ at the size of its paper's section 6.4: 4,000 jobs on 16,000 workers."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.policy import Policy
from policies.slaq.slaq import SLAQ, SLAQMaxMin, SLAQSettings
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

JOBS, NODES, GPUS = 4_000, 500, 32
POINTS = 20


@pytest.fixture(scope="module")
def cluster() -> tuple[Snapshot, Forecasts]:
    """All run, each on four GPUs, with curves of 20 points, a forecast loss and a forecast speed."""
    random = np.random.default_rng(0)
    held = np.full(JOBS, NODES * GPUS // JOBS)
    done = random.integers(1, 100, JOBS)
    curve = 1.0 / (1.0 + np.arange(float(POINTS)))
    of_jobs = jobs(
        JOBS,
        state="running",
        started=NOW - 1_000,
        reported=NOW - random.random(JOBS),
        restartable=True,
        gpus=held,
        gpus_min=1,
        gpus_max=64,
        iteration=done,
        max_iterations=200,
        losses=list(curve * random.lognormal(0, 1, (JOBS, 1))),
    )
    at = np.geomspace(1.0, 200.0, 12)
    grid = np.concatenate([np.zeros((JOBS, 1)), np.tile(at, (JOBS, 1))], axis=1) + done[:, None].astype(float)
    scale = random.lognormal(2, 1, (JOBS, 1))
    losses = scale / (scale + grid)
    rates = random.lognormal(-2, 1, (JOBS, 1)) * np.array([1, 1.9, 3.6, 6.5, 11, 18, 26])
    rows = np.arange(JOBS)
    nothing = forecasts(JOBS)
    predicted = Forecasts(
        nothing.total,
        nothing.remaining,
        nothing.final,
        nothing.accuracy,
        Fan.of(JOBS, rows, grid, [Forecast.certain(column, "bench") for column in losses.T]),
        Fan.of(JOBS, rows, np.tile(2.0 ** np.arange(7.0), (JOBS, 1)), [Forecast.certain(r, "bench") for r in rates.T]),
    )
    on = np.stack([rows, rows * held // GPUS, held], axis=1)
    return snapshot(of_jobs, nodes(NODES, capacity=[GPUS, GPUS, 0]), runs_on=on), predicted


POLICIES = {
    "slaq": SLAQ(SLAQSettings(interval=3.0)),
    "slaq-maxmin": SLAQMaxMin(SLAQSettings(interval=3.0)),
    "slaq at a restart's cost": SLAQ(SLAQSettings(interval=300.0, restart=30.0)),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_bench_decide(benchmark: BenchmarkFixture, cluster: tuple[Snapshot, Forecasts], policy: Policy) -> None:
    plan = benchmark(policy.decide, *cluster, {})
    assert np.all(np.isfinite(plan.score))
    assert plan.terms["share"].sum() == NODES * GPUS

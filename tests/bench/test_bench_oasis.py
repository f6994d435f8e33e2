"""A decision of OASiS about a job, T = 100 slots and 100 servers (section V-A has 50), and about a queue."""

from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.oasis.bids import OASiSSettings
from policies.oasis.oasis import OASiS
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

SLOT = 600.0
START = NOW - NOW % SLOT


def queue(n: int, servers: int) -> tuple[Snapshot, Forecasts]:
    """n jobs that arrive at once, of 1 to 8 GPUs and of 1 to 10 slots, half of them held to a completion time."""
    random = np.random.default_rng(0)
    gpus = random.integers(1, 9, n)
    utility = np.stack(
        [random.uniform(1, 100, n), random.choice([0.0, 0.001], n), random.uniform(1, 15, n) * SLOT], axis=1
    )
    of_jobs = jobs(n, gpus=gpus, gpus_min=1, gpus_max=gpus, utility=utility, restartable=True, submitted=START)
    seconds = random.uniform(1, 10, n) * SLOT
    capacity = np.stack([np.full(servers, 8.0), random.integers(32, 128, servers), np.full(servers, 1e5)], axis=1)
    return snapshot(of_jobs, nodes(servers, capacity=capacity), now=START), forecasts(
        n, remaining=seconds, total=seconds
    )


@pytest.mark.parametrize("pool", [True, False], ids=["alike servers joined", "each server"])
def test_bench_decide_a_job(benchmark: BenchmarkFixture, pool: bool) -> None:
    """100 jobs have their schedules; one arrives."""
    policy = OASiS(OASiSSettings(slot=SLOT, pool=pool, revisions=0))
    site, ahead = queue(101, 100)
    last = np.arange(101) == 100
    before = policy.decide(replace(site, jobs=replace(site.jobs, held=last)), ahead, {})
    row_of = {key: row for row, key in enumerate(site.jobs.keys)}
    started = {row_of[action.job]: action for action in before.actions}
    runs = np.isin(np.arange(101), list(started))
    on = [
        [row, site.nodes.names.index(node), share]
        for row, action in started.items()
        for node, share in zip(action.nodes, action.shares, strict=True)
    ]
    held = np.array([started[row].gpus if row in started else site.jobs.gpus[row] for row in range(101)])
    of_jobs = replace(site.jobs, state=np.where(runs, "running", "pending"), started=np.where(runs, START, np.nan))
    now = replace(site, jobs=replace(of_jobs, gpus=held), runs_on=np.array(on, dtype=np.int64))
    seconds = ahead.remaining.median * site.jobs.gpus / held
    plan = benchmark(policy.decide, now, forecasts(101, remaining=seconds, total=seconds), before.memory)
    assert len(plan.memory["told"]) == len(before.memory["told"]) + 1


@pytest.mark.parametrize("revisions", [0, 240], ids=lambda n: f"{n} offers more")
def test_bench_decide_a_queue(benchmark: BenchmarkFixture, revisions: int) -> None:
    policy = OASiS(OASiSSettings(slot=SLOT, revisions=revisions))
    site, ahead = queue(40, 10)
    plan = benchmark(policy.decide, site, ahead, {})
    assert np.isfinite(plan.score).all()

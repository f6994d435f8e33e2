"""A decision of OASiS about a job, T = 100 slots and 100 servers (section V-A has 50), and about a queue."""

import numpy as np
import pytest

from policies.oasis.oasis import OASiS
from policies.oasis.settings import OASiSSettings
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

SLOT = 600.0
START = NOW - NOW % SLOT


def queue(n, servers):
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
def test_bench_decide_a_job(benchmark, pool):
    """100 jobs have their schedules; one arrives."""
    policy = OASiS(OASiSSettings(slot=SLOT, pool=pool, revisions=0))
    site, ahead = queue(101, 100)
    first = jobs(101, **{name: getattr(site.jobs, name) for name in ("gpus", "gpus_min", "gpus_max", "utility", "restartable", "submitted")}, held=np.arange(101) == 100)  # fmt: skip  # noqa: E501
    before = policy.decide(snapshot(first, site.nodes, now=START), ahead, {})
    running = jobs(101, **{name: getattr(site.jobs, name) for name in ("gpus", "gpus_min", "gpus_max", "utility", "restartable", "submitted")}, state=np.where(np.arange(101) == 100, "pending", "running"), started=START)  # fmt: skip  # noqa: E501
    on = [
        [row, site.nodes.names.index(node), share]
        for row, action in enumerate(before.actions)
        if row < 100
        for node, share in zip(action.nodes, action.shares, strict=True)
    ]
    now = snapshot(running, site.nodes, now=START, runs_on=np.array(on, dtype=np.int64).reshape(-1, 3))
    plan = benchmark(policy.decide, now, ahead, before.memory)
    assert len(plan.memory["told"]) > 0


@pytest.mark.parametrize("revisions", [0, 240], ids=lambda n: f"{n} offers more")
def test_bench_decide_a_queue(benchmark, revisions):
    policy = OASiS(OASiSSettings(slot=SLOT, revisions=revisions))
    site, ahead = queue(40, 10)
    plan = benchmark(policy.decide, site, ahead, {})
    assert np.isfinite(plan.rank).all()

"""A decision of MLFS and the SiteFactors of a queue, at the size of the paper's experiment, a large and a huge site."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings, MLFSSettings
from policies.mlfs.rl import MLFRL
from policies.plan import Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.cluster.port import Command
from slurmplug.config import model_files
from slurmplug.rules.site_factor import commands, order
from tests.builders import NOW, forecasts, jobs, nodes, on_networks, snapshot

SIZES = [1_860, 10_000, 100_000]
POINTS = 50
GPUS = 8


@pytest.fixture(params=SIZES, ids=lambda n: f"{n} jobs", scope="module")
def queue(request: pytest.FixtureRequest) -> tuple[Snapshot, Forecasts]:
    """A tenth runs, with curves of 50 points and a forecast of their end; one in twenty has children.

    One in fifty nodes is free, and one network in ten is overloaded.
    """
    n = request.param
    random = np.random.default_rng(0)
    running = np.arange(n) % 10 == 0
    ml_job = np.arange(n) - np.arange(n) % 20 % 4 * (np.arange(n) % 20 < 4)
    heads = np.flatnonzero(np.arange(n) % 20 == 0)[:-1]
    parents = np.concatenate([np.stack([heads + child, heads], axis=1) for child in (1, 2, 3)])
    curve = 0.9 - 0.6 / np.arange(1.0, POINTS + 1) + random.normal(0, 0.01, POINTS)
    of_jobs = jobs(
        n,
        state=np.where(running, "running", "pending"),
        reason=np.where(running, "None", "Priority"),
        started=np.where(running, NOW - 1_000, np.nan),
        restartable=random.random(n) < 0.5,
        submitted=NOW - random.exponential(20_000, n),
        waited=random.exponential(10_000, n),
        attained=np.where(running, 1_000.0, 0.0),
        urgency=random.integers(0, 11, n),
        deadline=np.where(random.random(n) < 0.5, NOW + random.exponential(50_000, n), np.nan),
        iteration=np.where(running, POINTS, 0),
        max_iterations=np.where(random.random(n) < 0.8, 200.0, np.nan),
        target=0.95,
        stop=random.choice(["iterations", "optstop", "target"], n),
        downgrade=random.choice(["", "optstop", "target"], n),
        ml_job=ml_job,
        parents=parents,
        losses=[1 - curve if runs else [] for runs in running],
        accuracies=[curve if runs else [] for runs in running],
    )
    rows = np.flatnonzero(running)
    on = np.stack([rows, np.arange(len(rows)) // GPUS, np.ones(len(rows), dtype=np.int64)], axis=1)
    there = int(on[-1, 1]) + 1
    used = np.bincount(on[:, 1])[:, None] * [1, 1, 0]
    used[random.random(there) < 0.02] = 0
    on = on[used[on[:, 1], 0] > 0]
    busy = nodes(there, capacity=[GPUS, 64, 0], used=used)
    of_jobs = on_networks(of_jobs, random.uniform(0, 1, there), on)
    total = Forecast.lognormal(random.lognormal(9, 1, n), 0.5, "bench")
    some = np.flatnonzero(running)
    final = Forecast.assemble(n, [(some, Forecast.normal(random.normal(0.9, 0.02, len(some)), 0.01, "bench"))])
    nothing = forecasts(n, final=final)
    predicted = Forecasts(total, total, final, nothing.accuracy, nothing.loss, nothing.speed)
    return snapshot(of_jobs, busy, runs_on=on), predicted


@pytest.mark.parametrize("policy", [MLFH(), MLFS(MLFSSettings(overload_enter=1))], ids=["mlf-h", "mlfs"])
def test_bench_decide(benchmark: BenchmarkFixture, queue: tuple[Snapshot, Forecasts], policy: Policy) -> None:
    plan = benchmark(policy.decide, *queue, {})
    assert np.all(np.isfinite(plan.score))
    assert any(action.kind == "stop" for action in plan.actions) == (policy.name == "mlfs")
    assert any(action.kind == "preempt" for action in plan.actions)


@pytest.fixture(scope="module")
def paper() -> tuple[Snapshot, Forecasts]:
    """1,860 tasks on 80 GPUs (MLFS, section 4.1), in 20 nodes, three quarters of them in use: half of the tasks are
    elastic jobs, the others are three of a job each."""
    n, there = 1_860, 20
    random, at = np.random.default_rng(0), np.arange(n)
    elastic, runs = at < n // 2, at % (n // 2) < 30
    ml_job = np.where(elastic, at, at - at % 3)
    of_jobs = jobs(
        n,
        state=np.where(runs, "running", "pending"),
        reason=np.where(runs, "None", "Priority"),
        started=np.where(runs, NOW - 1_000, np.nan),
        restartable=True,
        submitted=NOW - random.exponential(20_000, n),
        waited=random.exponential(10_000, n),
        attained=np.where(runs, 1_000.0, 0.0),
        urgency=random.integers(0, 11, n),
        deadline=NOW + random.exponential(50_000, n),
        gpus_max=np.where(elastic, random.integers(2, 9, n), 1),
        iteration=np.where(runs, POINTS, 0),
        max_iterations=200.0,
        kind=random.choice(["alexnet", "resnet50", "mlp", "lstm", "svm"], n),
        ml_job=ml_job,
    )
    rows = np.flatnonzero(runs)
    on = np.stack([rows, np.arange(len(rows)) // 3, np.ones(len(rows), dtype=np.int64)], axis=1)
    used = np.bincount(on[:, 1], minlength=there)[:, None] * [1, 1, 0]
    counts, pace = np.array([1.0, 2, 3, 4, 6, 8]), random.lognormal(0, 1, n)
    power = random.uniform(0.3, 0.95, n)
    speeds = [Forecast.lognormal(pace * gpus**power, 0.2, "bench") for gpus in counts]
    total = Forecast.lognormal(random.lognormal(9, 1, n), 0.5, "bench")
    nothing = forecasts(n)
    speed = Fan.of(n, np.arange(n), np.tile(counts, (n, 1)), speeds)
    predicted = Forecasts(total, total, nothing.final, nothing.accuracy, nothing.loss, speed)
    return snapshot(of_jobs, nodes(there, capacity=[4, 32, 0], used=used), runs_on=on), predicted


@pytest.mark.parametrize("name", ["mlf-h", "mlf-rl"])
def test_bench_of_the_papers_size(benchmark: BenchmarkFixture, paper: tuple[Snapshot, Forecasts], name: str) -> None:
    """As the daemon has it decide: whether it knows the state, and the plan, by the model that slurmplug comes with."""
    policy = MLFRL(model=model_files.shipped("mlf-rl")) if name == "mlf-rl" else MLFH()

    def decided() -> Plan:
        if isinstance(policy, MLFRL):
            policy.distance(*paper)
        return policy.decide(*paper, {})

    plan = benchmark(decided)
    assert any(action.kind == "place" for action in plan.actions)


@pytest.mark.parametrize("grow", [False, True], ids=["as requested", "growing"])
def test_bench_growth(benchmark: BenchmarkFixture, queue: tuple[Snapshot, Forecasts], grow: bool) -> None:
    """Half of the jobs name a range of GPUs, and each has a speed of its own."""
    look, predicted = queue
    n = len(look.jobs)
    random = np.random.default_rng(0)
    ranged = replace(look.jobs, gpus_max=np.where(random.random(n) < 0.5, random.integers(2, 65, n), look.jobs.gpus))
    counts = np.array([1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
    pace, power = random.lognormal(0, 1, n), random.uniform(0.3, 0.95, n)
    speeds = [Forecast.lognormal(pace * gpus**power, 0.2, "bench") for gpus in counts]
    known = replace(predicted, speed=Fan.of(n, np.arange(n), np.tile(counts, (n, 1)), speeds))
    plan = benchmark(MLFH(MLFHSettings(grow=grow)).decide, replace(look, jobs=ranged), known, {})
    assert np.all(np.isfinite(plan.score))


@pytest.mark.parametrize("moved", [0.0, 0.01, 1.0], ids=lambda moved: f"{moved:.0%} moved")
@pytest.mark.parametrize("n", SIZES, ids=lambda n: f"{n} jobs")
def test_bench_site_factors(benchmark: BenchmarkFixture, n: int, moved: float) -> None:
    """A third of the jobs have no directives; the others are in their order, but for those that moved."""
    random = np.random.default_rng(0)
    score = np.where(random.random(n) < 1 / 3, np.nan, random.random(n))
    queue = jobs(n, priority=random.permutation(4 * n)[:n] + 1.0, site_factor=0.0)
    factors = _factors(commands(snapshot(queue), score), n)
    some = random.random(n) < moved
    score[some] = np.where(np.isnan(score[some]), np.nan, random.random(int(some.sum())))
    in_order = snapshot(jobs(n, priority=queue.priority + factors, site_factor=factors))
    writes = benchmark(commands, in_order, score)
    after = queue.priority + np.where(np.isnan(new := _factors(writes, n, np.nan)), factors, new)
    assert np.all(np.diff(after[order(score, queue.submitted, np.arange(n))]) < 0)


def _factors(writes: Sequence[Command], n: int, unwritten: float = 0.0) -> Floats:
    """(n,) what is written of each job."""
    factors = np.full(n, unwritten)
    factors[[write.job.job_id - 1 for write in writes]] = [int(write.fields["SiteFactor"]) for write in writes]
    return factors

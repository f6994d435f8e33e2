"""Simulating a queue forward on 100 samples of run times: all its jobs, and one more in four variants.

    pytest tests/bench/test_bench_starts.py --benchmark-only --benchmark-timer=time.process_time --benchmark-columns=min

512 GPUs on 64 nodes are full; jobs request 1 to 32 GPUs, with CPUs in proportion, for one of 24 time limits. The
forecasts of the run times are given. Under limits, each of 150 users, whose jobs are alike, may have 64 GPUs and 40
jobs at once, each of 20 accounts 128 GPUs. Jobs that are not alike are of 200 users, no two with the same time limit
but by chance.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from policies.snapshot import Snapshot
from predictors.forecast import Forecast, Forecasts
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits
from slurmplug.forecasting.starts.live_queue import LiveQueue, OneMore
from slurmplug.forecasting.starts.queue_forecast import queue_forecast
from slurmplug.forecasting.starts.start_outcomes import StartOutcomes
from tests.builders import NOW, jobs, nodes, snapshot

NODES, GPUS, SAMPLES = 64, 8, 100
SIZES = [1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32]


def full(waiting: int) -> Snapshot:
    """A cluster without a free GPU, and jobs that wait."""
    random = np.random.default_rng(0)
    gpus: list[int] = []
    on: list[tuple[int, int, int]] = []
    node = 0
    while node < NODES:
        size = int(random.choice(SIZES))
        count = min(max(size // GPUS, 1), NODES - node)
        of_node = [min(size, GPUS)] * count
        on += [(len(gpus), node + i, amount) for i, amount in enumerate(of_node)]
        gpus.append(sum(of_node))
        node += count
    running = len(gpus)
    every = np.array([*gpus, *random.choice(SIZES, waiting)])
    limits = np.unique(np.round(random.lognormal(9.5, 1.2, 24) / 600) * 600 + 600)
    limit = random.choice(limits, len(every))
    of = jobs(
        len(every),
        state=["running"] * running + ["pending"] * waiting,
        gpus=every,
        demand=np.stack([every, 4.0 * every, np.zeros(len(every))], axis=1),
        time_limit=limit,
        started=np.where(np.arange(len(every)) < running, NOW - limit * random.uniform(0, 0.9, len(every)), np.nan),
        priority=np.arange(len(every), 0, -1),
    )
    places = np.array(on)
    used = np.zeros((NODES, 3))
    np.add.at(used, places[:, 1], np.stack([places[:, 2], 4.0 * places[:, 2], 0 * places[:, 2]], axis=1))
    return snapshot(of, nodes(NODES, capacity=[GPUS, 64.0, 0.0], used=used), runs_on=places)


def of_users(of: Snapshot) -> Snapshot:
    """The same cluster with jobs of 150 users, each of whom submits jobs that are alike."""
    random, jobs = np.random.default_rng(1), of.jobs
    number = (150 * random.random(len(jobs)) ** 2).astype(np.int64)
    waiting = np.flatnonzero(jobs.pending)
    columns = {name: getattr(jobs, name).copy() for name in ("gpus", "demand", "time_limit")}
    for column in columns.values():
        column[waiting] = column[waiting[0] + number[waiting]]
    user, account = (np.char.add(kind, each.astype(np.str_)) for kind, each in (("u", number), ("a", number % 20)))
    return replace(of, jobs=replace(jobs, user=user, account=account, qos=np.full(len(jobs), "normal"), **columns))


def of_users_unlike(of: Snapshot) -> Snapshot:
    """The same cluster with jobs of 200 users, each with a time limit of its own."""
    random, jobs = np.random.default_rng(2), of.jobs
    number = random.integers(0, 200, len(jobs))
    limit = np.round(random.lognormal(9.5, 1.2, len(jobs))) + 600
    return replace(
        of,
        jobs=replace(
            jobs,
            user=np.char.add("u", number.astype(np.str_)),
            qos=np.full(len(jobs), "normal"),
            time_limit=np.where(jobs.pending, limit, jobs.time_limit),
        ),
    )


def queue(of: Snapshot, limits: Limits | None = None) -> LiveQueue:
    n, limit = len(of.jobs), of.jobs.time_limit
    total = Forecast.lognormal(0.2 * limit, 1.0, "bench").clip(upper=limit)
    elapsed = np.nan_to_num(of.now - of.jobs.started)
    forecasts = Forecasts(**{**vars(Forecasts.unknown(n)), "total": total, "remaining": total.beyond(elapsed)})
    return LiveQueue(of, forecasts, limits=limits, samples=SAMPLES)


@pytest.fixture(params=[2_000, 10_000])
def waiting(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def test_all_starts(benchmark: BenchmarkFixture, waiting: int) -> None:
    of = full(waiting)
    found = benchmark.pedantic(lambda: queue(of).starts(), rounds=3)
    assert np.isfinite(found[-waiting:]).all()


def test_all_starts_under_limits(benchmark: BenchmarkFixture, waiting: int) -> None:
    of = of_users(full(waiting))
    assocs = {Assoc(f"a{n}", "", ""): AssocLimits(group={"gres/gpu": 128.0}) for n in range(20)}
    limits = Limits({"normal": QosLimits(user={"gres/gpu": 64.0, JOBS: 40.0})}, assocs)
    found = benchmark.pedantic(lambda: queue(of, limits).starts(), rounds=1)
    assert np.isfinite(found[-waiting:]).all()


@pytest.mark.parametrize("limited", [False, True])
def test_all_starts_of_jobs_that_are_not_alike(benchmark: BenchmarkFixture, waiting: int, limited: bool) -> None:
    """Each user may have 32 GPUs and two jobs at once."""
    of = of_users_unlike(full(waiting))
    limits = Limits({"normal": QosLimits(user={"gres/gpu": 32.0, JOBS: 2.0})}) if limited else None
    found = benchmark.pedantic(lambda: queue(of, limits).starts(), rounds=1)
    assert np.isfinite(found[-waiting:]).all()


def test_four_variants_of_one_more(benchmark: BenchmarkFixture, waiting: int) -> None:
    of = full(waiting)
    variants = [
        OneMore(np.array([gpus, 4.0 * gpus, 0.0]), limit, np.full(SAMPLES, 0.3 * limit))
        for gpus, limit in ((4, 36_000.0), (4, 9_000.0), (3, 36_000.0), (5, 36_000.0))
    ]
    run: Callable[[], object] = lambda: queue(of).starts_of(variants, waiting, np.ones(NODES, dtype=bool))  # noqa: E731
    assert np.isfinite(benchmark.pedantic(run, rounds=1)).all()


@pytest.mark.parametrize("outcomes", [0, 5_000])
def test_the_forecast_of_the_queue(benchmark: BenchmarkFixture, waiting: int, outcomes: int) -> None:
    """As the daemon has it made every five minutes: with 30 samples, and the intervals of starts that came true."""
    of = full(waiting)
    n, limit, random = len(of.jobs), of.jobs.time_limit, np.random.default_rng(1)
    total = Forecast.lognormal(0.2 * limit, 1.0, "bench").clip(upper=limit)
    remaining = total.beyond(np.nan_to_num(of.now - of.jobs.started))
    forecasts = Forecasts(**{**vars(Forecasts.unknown(n)), "total": total, "remaining": remaining})
    came = StartOutcomes(*(random.lognormal(9.0, 2.0, outcomes) for _ in range(3)))
    found = benchmark.pedantic(lambda: queue_forecast(of, forecasts, came), rounds=3)
    assert np.isfinite(found.start[-waiting:, 0]).all()
    assert (found.outcomes > 0) == (outcomes > 0)

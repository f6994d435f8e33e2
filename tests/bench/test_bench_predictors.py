"""A forecast of one curve, one loss, one job, one speed, and of 10,000 of them; and what learning takes."""

from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from predictors.arrays import Floats
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossFamily, LossPredictor
from predictors.runtime import RuntimeModel, RuntimePredictor
from predictors.speed import SpeedPredictor

LEVELS = [0.05, 0.5, 0.95]
SIZES = pytest.mark.parametrize("n", [1, 10_000], ids=lambda n: f"{n} at once")


def curves(n: int, seed: int = 0) -> list[Floats]:
    """Of 40 epochs."""
    random = np.random.default_rng(seed)
    x = np.arange(1.0, 41)
    tops, drops, powers = (random.uniform(*bounds, (n, 1)) for bounds in ((0.5, 0.95), (0.2, 0.5), (0.3, 2.0)))
    return list(tops - drops * x**-powers + random.normal(0, 0.01, (n, 40)))


def jobs(n: int, seed: int = 0) -> tuple[list[dict[str, Any]], Floats]:
    """Of 50 users, in order of submission, with what they took."""
    random = np.random.default_rng(seed)
    users = random.integers(50, size=n)
    runtimes = np.exp(random.normal(4 + users / 10, 0.5))
    new_jobs: list[dict[str, Any]] = [
        {"user": f"u{user}", "partition": "gpu", "gpus": int(2**size), "cpus": 8, "time_limit": 86_400.0,
         "submit": 60.0 * i, "type": "train", "name": f"job{i}"}
        for i, (user, size) in enumerate(zip(users, random.integers(4, size=n), strict=True))
    ]  # fmt: skip
    return new_jobs, runtimes


@SIZES
@pytest.mark.parametrize("history", [0, 400], ids=["cold", "after 400 runs"])
def test_bench_learning_curves(benchmark: BenchmarkFixture, n: int, history: int) -> None:
    predictor = LearningCurvePredictor().fit(curves(history, seed=1))
    seen = [curve[:10] for curve in curves(n)]
    predictor.predict(seen[0], 40)
    quantiles = benchmark(lambda: predictor.predict_many(seen, np.full(n, 40)).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


def test_bench_learning_from_400_curves(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(LearningCurvePredictor().fit, (curves(400),), rounds=1)


@SIZES
@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
def test_bench_losses(benchmark: BenchmarkFixture, n: int, family: LossFamily) -> None:
    predictor = LossPredictor(family)
    losses = [1.0 - curve[:20] for curve in curves(n)]
    predictor.predict(losses[0], 10)
    quantiles = benchmark(lambda: predictor.predict_many(losses, 10).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


@SIZES
@pytest.mark.parametrize("model", ["stack", "svr"])
def test_bench_run_times(benchmark: BenchmarkFixture, n: int, model: RuntimeModel) -> None:
    predictor = RuntimePredictor(model).fit(*jobs(2_000, seed=1))
    new_jobs, _ = jobs(n)
    quantiles = benchmark(lambda: predictor.predict_many(new_jobs).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


def test_bench_speed_from_three_points(benchmark: BenchmarkFixture) -> None:
    def speeds() -> Floats:
        measured = SpeedPredictor().fit([1, 4, 8], [1, 1, 2], [1.0, 1.1, 1.4])
        return measured.predict([2, 16, 32, 64], [1, 4, 8, 16]).quantile(LEVELS)

    speeds()
    assert np.isfinite(benchmark(speeds)).all()

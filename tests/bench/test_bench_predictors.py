"""A forecast of one curve, one loss, one job, one speed, and of 10,000 of them; and what learning takes."""

import numpy as np
import pytest

from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.runtime import RuntimePredictor
from predictors.speed import SpeedPredictor

LEVELS = [0.05, 0.5, 0.95]
SIZES = pytest.mark.parametrize("n", [1, 10_000], ids=lambda n: f"{n} at once")


def curves(n, seed=0):
    """Of 40 epochs."""
    random = np.random.default_rng(seed)
    x = np.arange(1.0, 41)
    tops, drops, powers = (random.uniform(*bounds, (n, 1)) for bounds in ((0.5, 0.95), (0.2, 0.5), (0.3, 2.0)))
    return list(tops - drops * x**-powers + random.normal(0, 0.01, (n, 40)))


def jobs(n, seed=0):
    """Of 50 users, in order of submission, with what they took."""
    random = np.random.default_rng(seed)
    users = random.integers(50, size=n)
    runtimes = np.exp(random.normal(4 + users / 10, 0.5))
    new_jobs = [
        {"user": f"u{user}", "partition": "gpu", "gpus": int(2**size), "cpus": 8, "time_limit": 86_400.0,
         "submit": 60.0 * i, "type": "train", "name": f"job{i}"}
        for i, (user, size) in enumerate(zip(users, random.integers(4, size=n), strict=True))
    ]  # fmt: skip
    return new_jobs, runtimes


@SIZES
@pytest.mark.parametrize("history", [0, 400], ids=["cold", "after 400 runs"])
def test_bench_learning_curves(benchmark, n, history):
    predictor = LearningCurvePredictor().fit(curves(history, seed=1))
    seen = [curve[:10] for curve in curves(n)]
    predictor.predict(seen[0], 40)
    quantiles = benchmark(lambda: predictor.predict_many(seen, np.full(n, 40)).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


def test_bench_learning_from_400_curves(benchmark):
    benchmark.pedantic(LearningCurvePredictor().fit, (curves(400),), rounds=1)


@SIZES
@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
def test_bench_losses(benchmark, n, family):
    predictor = LossPredictor(family)
    losses = [1.0 - curve[:20] for curve in curves(n)]
    predictor.predict(losses[0], 10)
    quantiles = benchmark(lambda: predictor.predict_many(losses, 10).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


@SIZES
@pytest.mark.parametrize("model", ["stack", "svr"])
def test_bench_run_times(benchmark, n, model):
    predictor = RuntimePredictor(model).fit(*jobs(2_000, seed=1))
    new_jobs, _ = jobs(n)
    quantiles = benchmark(lambda: predictor.predict_many(new_jobs).quantile(LEVELS))
    assert np.isfinite(quantiles).all()


def test_bench_speed_from_three_points(benchmark):
    def speeds():
        measured = SpeedPredictor().fit([1, 4, 8], [1, 1, 2], [1.0, 1.1, 1.4])
        return measured.predict([2, 16, 32, 64], [1, 4, 8, 16]).quantile(LEVELS)

    speeds()
    assert np.isfinite(benchmark(speeds)).all()

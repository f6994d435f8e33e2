"""Time of a forecast: one, and a batch as large as a busy cluster asks for."""

from typing import Any

import numpy as np
import pytest

from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.runtime import RuntimePredictor
from predictors.speed import SpeedPredictor

BATCH = 10_000


def _curves(n: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    lengths = random.integers(5, 60, n)
    return [0.9 - 0.7 * np.arange(1.0, k + 1.0) ** -random.uniform(0.2, 1.5) for k in lengths]


def _jobs(n: int) -> list[dict[str, Any]]:
    return [
        {
            "user": f"u{i % 97}",
            "name": f"run-{i % 13}",
            "gpus": 2 ** (i % 4),
            "time_limit": 3600 * (1 + i % 24),
            "submit": 60.0 * i,
        }
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def curves() -> LearningCurvePredictor:
    finished = [curve for curve in _curves(300) if len(curve) > 20]
    return LearningCurvePredictor().fit(finished)


@pytest.fixture(scope="module")
def runtimes() -> RuntimePredictor:
    seconds = np.random.default_rng(2).lognormal(7.0, 1.0, 5000)
    return RuntimePredictor().fit(_jobs(5000), seconds)


@pytest.mark.parametrize("n", [1, BATCH])
def test_bench_learning_curves(benchmark: Any, curves: LearningCurvePredictor, n: int) -> None:
    begun = _curves(n)
    forecast = benchmark(lambda: curves.predict_many(begun, np.full(n, 100.0)))
    assert len(forecast) == n


@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
def test_bench_losses(benchmark: Any, family: str) -> None:
    losses = [1.0 - curve for curve in _curves(1000)]
    predictor = LossPredictor(family)
    predictor.predict(losses[0], 10)
    assert len(benchmark(lambda: predictor.predict_many(losses, 10))) == len(losses)


@pytest.mark.parametrize("n", [1, BATCH])
def test_bench_run_times(benchmark: Any, runtimes: RuntimePredictor, n: int) -> None:
    jobs = _jobs(n)
    assert len(benchmark(lambda: runtimes.predict_many(jobs))) == n


def test_bench_speed(benchmark: Any) -> None:
    predictor = SpeedPredictor().fit([1, 4, 8], [1, 1, 2], [0.5, 0.52, 0.7])
    assert len(benchmark(lambda: predictor.predict([1, 2, 4, 8, 16, 32], [1, 1, 1, 2, 4, 8]))) == 6

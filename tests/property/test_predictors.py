"""For any input, predictors return a distribution or raise a ValueError that names the fault."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossFamily, LossPredictor
from predictors.runtime import RuntimePredictor
from predictors.speed import SpeedPredictor

_any_number = st.floats(allow_nan=True, allow_infinity=True)
_curve = st.lists(_any_number | st.floats(0.0, 1.0), max_size=40)
_text = st.text(max_size=8) | st.none()
_job = st.dictionaries(st.sampled_from(["user", "account", "type", "name", "partition"]), _text) | st.dictionaries(
    st.sampled_from(["gpus", "cpus", "mem", "time_limit", "submit"]), _any_number | st.none()
)


def _is_a_distribution(forecast: Forecast) -> bool:
    inner = forecast.table[:, 1:-1]
    return bool(np.all(np.isfinite(inner)) and np.all(np.diff(inner, axis=1) >= 0))


@settings(deadline=None)
@given(_curve, st.integers(1, 60))
def test_any_curve_is_continued_by_a_distribution_or_refused(curve: list[float], at: int) -> None:
    if not any(np.isfinite(value) and abs(value) < 1e100 for value in curve):
        return
    predictor = LearningCurvePredictor()

    assert _is_a_distribution(predictor.predict(curve, len(curve) + at))
    assert predictor.predict(curve, 1).source[0] in ("observed", "learning curve, cold")


@settings(deadline=None)
@given(_curve, st.integers(1, 60), st.sampled_from(["auto", "sublinear", "linear"]))
def test_any_losses_are_continued_by_a_distribution_or_refused(
    losses: list[float], ahead: int, family: LossFamily
) -> None:
    if any(np.isfinite(value) and abs(value) < 1e100 for value in losses):
        assert _is_a_distribution(LossPredictor(family).predict(losses, ahead))


@settings(deadline=None, max_examples=50)
@given(st.lists(_job, max_size=5))
def test_any_jobs_get_a_row_each_within_their_limits(jobs: list[dict[str, object]]) -> None:
    history = [{"user": "a", "gpus": i % 3, "time_limit": 7200} for i in range(60)]
    for predictor in (RuntimePredictor(), _LEARNT.setdefault("stack", RuntimePredictor().fit(history, [60.0] * 60))):
        forecast = predictor.predict_many(jobs)
        assert len(forecast) == len(jobs)
        assert np.all(forecast.table[forecast.known, 1:-1] >= 0)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 8), st.floats(1e-4, 1e4)), min_size=1, max_size=6))
def test_any_measurements_give_positive_speeds(points: list[tuple[int, int, float]]) -> None:
    gpus, nodes, times = np.array([(max(g, n), n, t) for g, n, t in points]).T

    forecast = SpeedPredictor().fit(gpus, nodes, times).predict([1, 8, 128], [1, 2, 16])

    assert _is_a_distribution(forecast)
    assert np.all(forecast.table[:, 1] > 0)


_LEARNT: dict[str, RuntimePredictor] = {}

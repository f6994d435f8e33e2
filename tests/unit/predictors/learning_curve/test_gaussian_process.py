"""The Gaussian process over partial curves: predictions with and without a curve, near its points and far off."""

import numpy as np

from predictors.learning_curve import LearningCurvePredictor
from predictors.learning_curve.gaussian_process import (
    _NOISE,
    CurveGaussianProcess,
    _kernel,
    _left_factor,
    _right_factor,
)


def _points(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four points a curve, whose target is smooth in the features and in the metadata."""
    random = np.random.default_rng(5)
    x, known = random.standard_normal((n, 3)), random.random((n, 1))
    return x, known, np.tanh(x[:, 0]) + known[:, 0], np.arange(n) // 4


def test_a_smooth_target_is_interpolated() -> None:
    x, known, y, owner = _points(400)

    process, _ = CurveGaussianProcess.fit(x[:300], known[:300], y[:300], owner[:300], (x, known, owner))

    assert np.abs(process.predict(x[300:], known[300:]) - y[300:]).mean() < 0.3 * np.abs(y[300:] - y.mean()).mean()


def test_the_held_out_prediction_of_a_curve_is_that_of_a_process_without_its_points() -> None:
    x, known, y, owner = _points()

    process, held_out = CurveGaussianProcess.fit(x, known, y, owner, (x, known, owner))

    others = owner != 7
    inputs = process.features, process.known
    covariance_all = _kernel(*map(_left_factor, inputs), *map(_right_factor, inputs))
    covariance = covariance_all[np.ix_(others, others)] + _NOISE * np.eye(others.sum())
    weight = np.linalg.solve(covariance, y[others] - process.level)
    own = covariance_all[np.ix_(~others, others)]
    np.testing.assert_allclose(held_out[~others], process.level + own @ weight)


def test_the_held_out_prediction_of_a_curve_without_points_is_the_plain_one() -> None:
    x, known, y, owner = _points()

    process, held_out = CurveGaussianProcess.fit(x[:60], known[:60], y[:60], owner[:60], (x, known, owner))

    np.testing.assert_allclose(held_out[60:], process.predict(x[60:], known[60:]))


def test_metadata_distinguishes_curves_that_begin_alike() -> None:
    x, known = np.zeros((40, 2)), np.resize([0.0, 1.0], 40)[:, None]

    process, _ = CurveGaussianProcess.fit(x, 6.0 * known, known[:, 0], np.arange(40), (x, 6.0 * known, np.arange(40)))

    assert np.ptp(process.predict(x[:2], np.array([[0.0], [6.0]]))) > 0.8


def test_the_prediction_of_the_process_moves_that_of_the_forest() -> None:
    """Half of the trees predict the distance from it; they weigh as much as the curve is familiar."""
    curves = [0.8 - 0.5 * np.arange(1.0, 31.0) ** -power for power in np.linspace(0.3, 2.0, 24)]
    predictor = LearningCurvePredictor().fit(curves)
    before = predictor.predict(curves[3][:10], 30).mean[0]
    state = predictor.state()

    moved = LearningCurvePredictor.from_state({**state, "process/level": state["process/level"] + 0.4})

    most = 0.5 * 0.4 * 20 / 30 * (1.05 - curves[3][9])
    assert 0.5 * most < moved.predict(curves[3][:10], 30).mean[0] - before <= 1.1 * most

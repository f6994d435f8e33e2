"""The Gaussian process over beginnings of curves: what it says with and without a curve, near to points and far off."""

import numpy as np

from predictors.learning_curve import LearningCurvePredictor
from predictors.learning_curve.gaussian_process import _NOISE, CurveProcess, _left, _likeness, _right


def _points(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four points a curve, whose target is smooth in the features and in what is known."""
    random = np.random.default_rng(5)
    x, known = random.standard_normal((n, 3)), random.random((n, 1))
    return x, known, np.tanh(x[:, 0]) + known[:, 0], np.arange(n) // 4


def test_between_its_points_it_says_what_is_smooth() -> None:
    x, known, y, owner = _points(400)

    process, _ = CurveProcess.fit(x[:300], known[:300], y[:300], owner[:300], (x, known, owner))

    assert np.abs(process.predict(x[300:], known[300:]) - y[300:]).mean() < 0.3 * np.abs(y[300:] - y.mean()).mean()


def test_of_a_curve_it_tells_what_it_would_say_without_its_points() -> None:
    x, known, y, owner = _points()

    process, told = CurveProcess.fit(x, known, y, owner, (x, known, owner))

    others = owner != 7
    inputs = process.features, process.known
    likeness = _likeness(*map(_left, inputs), *map(_right, inputs))
    covariance = likeness[np.ix_(others, others)] + _NOISE * np.eye(others.sum())
    weight = np.linalg.solve(covariance, y[others] - process.level)
    own = likeness[np.ix_(~others, others)]
    np.testing.assert_allclose(told[~others], process.level + own @ weight)


def test_of_a_curve_without_points_it_tells_what_it_predicts() -> None:
    x, known, y, owner = _points()

    process, told = CurveProcess.fit(x[:60], known[:60], y[:60], owner[:60], (x, known, owner))

    np.testing.assert_allclose(told[60:], process.predict(x[60:], known[60:]))


def test_what_is_known_at_the_start_tells_like_beginnings_apart() -> None:
    x, known = np.zeros((40, 2)), np.resize([0.0, 1.0], 40)[:, None]

    process, _ = CurveProcess.fit(x, 6.0 * known, known[:, 0], np.arange(40), (x, 6.0 * known, np.arange(40)))

    assert np.ptp(process.predict(x[:2], np.array([[0.0], [6.0]]))) > 0.8


def test_the_word_of_the_process_moves_the_forest() -> None:
    """Half of its trees tell how far the target is from that word; they count as far as the curve is familiar."""
    curves = [0.8 - 0.5 * np.arange(1.0, 31.0) ** -power for power in np.linspace(0.3, 2.0, 24)]
    predictor = LearningCurvePredictor().fit(curves)
    before = predictor.predict(curves[3][:10], 30).mean[0]
    state = predictor.state()

    moved = LearningCurvePredictor.from_state({**state, "process/level": state["process/level"] + 0.4})

    most = 0.5 * 0.4 * 20 / 30 * (1.05 - curves[3][9])
    assert 0.5 * most < moved.predict(curves[3][:10], 30).mean[0] - before <= 1.1 * most

"""Extrapolation rules continue exactly the losses they describe; a network learns how to weigh them."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from predictors.loss.extrapolation import linear_prediction, shrinking_changes
from predictors.loss.features import EXPERTS, LossWindows, extract_features
from predictors.loss.least_squares import fit_least_squares
from predictors.loss.network import MIDDLE, LossNetwork
from predictors.loss.training import gradient, initial_weights, make_training_set, pinball_loss, sample_curves, train

K = np.arange(1.0, 61.0)
TEN, POINTS = np.array([10.0]), np.array([60.0])
LossCurve = Callable[[np.ndarray], np.ndarray]


@pytest.mark.parametrize("curve", [lambda k: 0.92**k, lambda k: k**-0.7, lambda k: (k + 8.0) ** -1.5])
def test_a_loss_of_a_known_shape_is_continued(curve: LossCurve) -> None:
    y = curve(K) - curve(K[-1])

    fit = fit_least_squares(np.stack([y, y])[None], POINTS, TEN)

    assert fit.mixtures[0, 0, 0] == pytest.approx(curve(K[-1] + 10.0) - curve(K[-1]), rel=0.05)
    assert fit.error[0, 0] < 0.01 * np.ptp(y)


def test_lines_go_straight_on() -> None:
    z, exponential, power = -0.1 * K + 6.0, np.log(0.97) * (K - 60.0), -0.8 * np.log(K / 60.0)

    by_log = fit_least_squares(np.stack([z, exponential])[None], POINTS, TEN)
    by_loglog = fit_least_squares(np.stack([z, power])[None], POINTS, TEN)

    assert by_log.line_ends[0, 8:] == pytest.approx([-1.0] * 3)
    assert by_log.line_ends[0, :4] == pytest.approx([10.0 * np.log(0.97)] * 4)
    assert by_loglog.line_ends[0, 4:8] == pytest.approx([-0.8 * np.log(70.0 / 60.0)] * 4)
    assert by_log.line_levels[0, 8:] == pytest.approx([0.0] * 3, abs=1e-9)
    assert by_log.line_errors[0, [0, 1, 2, 3, 8, 9, 10]] == pytest.approx([0.0] * 7, abs=1e-6)


def test_changes_that_shrink_by_a_ratio_go_on_shrinking() -> None:
    y = 0.9**K
    steps_ahead, ratio = shrinking_changes((y[-1] - y[::-1])[None], POINTS, TEN)

    assert steps_ahead[0, :4] == pytest.approx([(0.9**70 - 0.9**60) / 10.0] * 4)
    assert ratio[0] == pytest.approx([0.9, 0.9**3, 0.9**5, 0.9**10])


def test_linear_prediction_goes_on_swinging() -> None:
    y = np.exp(-np.arange(0.0, 71.0) / 20.0) * np.cos(0.4 * np.arange(0.0, 71.0))
    steps = np.diff(y)[:60][::-1]

    mean, off = linear_prediction(steps[None] / np.abs(steps[:10]).mean(), POINTS, TEN)

    assert mean[0] * np.abs(steps[:10]).mean() * 10.0 == pytest.approx([y[70] - y[60]] * 2, rel=0.01)
    assert off[0] == pytest.approx([0.0, 0.0], abs=1e-3)


def test_the_gradient_is_the_slope_of_the_pinball_loss() -> None:
    random = np.random.default_rng(0)
    x, experts = random.standard_normal((8, 5)), random.standard_normal((8, EXPERTS))
    dispersion, target, weight = random.uniform(0.1, 1.0, 8), random.standard_normal(8), random.uniform(0.5, 2.0, 8)
    weights = tuple(w.astype(np.float64) for w in initial_weights(5, random))
    score = partial(pinball_loss, target=target, weight=weight)

    _, gradients = gradient(weights, x, experts, dispersion, score)
    for w, slope in zip(weights, gradients, strict=True):
        steepest = np.unravel_index(np.abs(slope).argmax(), w.shape)
        around = []
        for value in (w[steepest] - 1e-6, w[steepest] + 1e-6):
            before, w[steepest] = w[steepest], value
            around.append(gradient(weights, x, experts, dispersion, score)[0])
            w[steepest] = before
        assert slope[steepest] == pytest.approx((around[1] - around[0]) / 2e-6, rel=1e-3)


@pytest.fixture(scope="module")
def exponentials() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    falling = np.exp(-random.uniform(0.01, 0.1, (60, 1)) * np.arange(240.0))
    return [falling + random.uniform(0.1, 1.0, (60, 1))]


def test_a_network_learns_the_curves_that_it_is_given(
    exponentials: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("predictors.loss.training._BATCH", 64)
    network = train(make_training_set(exponentials, np.random.default_rng(2)), 0)
    curve = np.exp(-0.04 * np.arange(240.0)) + 0.3
    features = extract_features(LossWindows.of([curve[:30], curve[:60]]), np.array([10.0, 10.0]))

    quantiles = network.quantiles(features) * features.unit[:, None]

    assert quantiles[:, MIDDLE] == pytest.approx(curve[[39, 69]] - curve[[29, 59]], rel=0.05)
    assert (np.diff(quantiles, axis=1) >= 0).all()


def test_a_network_is_kept_as_arrays(exponentials: list[np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictors.loss.training._EPOCHS", 1)
    network = train(make_training_set(exponentials, np.random.default_rng(2)), 0)
    features = extract_features(LossWindows.of([1.0 / K]), TEN)

    kept = LossNetwork.from_state(network.state())

    np.testing.assert_array_equal(kept.quantiles(features), network.quantiles(features))


def test_the_curves_learnt_from_are_the_same_each_time() -> None:
    one, other = (next(iter(sample_curves(7))) for _ in range(2))

    np.testing.assert_array_equal(one, other)
    assert one.shape == (300, 240)
    assert np.isfinite(one).all()

"""Losses are continued: SLAQ's two families exactly where they hold, any curve by its latest changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import predictors.loss.predictor
from predictors.loss import LossFamily, LossPredictor
from predictors.loss.algorithms import boosting, clustering, linear_models, networks

K = np.arange(1.0, 61.0)
SUBLINEAR = 1.0 / (0.002 * K**2 + 0.05 * K + 1.0) + 0.3
LINEAR = 0.93 ** (K - 5.0) + 0.2


def test_the_sublinear_family_continues_a_curve_of_its_own() -> None:
    forecast = LossPredictor("sublinear").predict(SUBLINEAR[:50], 10)

    assert forecast.median[0] == pytest.approx(SUBLINEAR[59], rel=0.005)
    assert forecast.source[0] == "sublinear"


def test_the_linear_family_continues_a_curve_of_its_own() -> None:
    forecast = LossPredictor("linear").predict(LINEAR[:50], 10)

    assert forecast.median[0] == pytest.approx(LINEAR[59], rel=0.005)
    assert forecast.source[0] == "linear"


def test_three_losses_of_the_sublinear_family_are_continued_as_a_hyperbola() -> None:
    """A quadratic fits any three, whatever the level below: rounding would choose among them."""
    hyperbola = 1.0 / (0.1 * K + 1.0) + 0.5

    assert LossPredictor("sublinear").predict(hyperbola[:3], 5).median[0] == pytest.approx(hyperbola[7], abs=0.02)


@pytest.mark.parametrize("family", ["sublinear", "linear"])
def test_a_curve_that_is_asked_for_several_iterations_is_forecast_as_for_each(family: LossFamily) -> None:
    predictor, curves = LossPredictor(family), [SUBLINEAR[:20], LINEAR[:7], SUBLINEAR[:2]]

    together = predictor.predict_many([curve for curve in curves for _ in range(3)], [1, 10, 100] * 3)
    matrix: Any = np.array([SUBLINEAR[:20], LINEAR[:20]])
    rows = predictor.predict_many(matrix, [10, 10])

    for row, (curve, ahead) in enumerate((curve, ahead) for curve in curves for ahead in (1, 10, 100)):
        np.testing.assert_allclose(together.table[row], predictor.predict(curve, ahead).table[0], rtol=1e-12)
    for row, curve in enumerate([SUBLINEAR, LINEAR]):
        np.testing.assert_allclose(rows.table[row], predictor.predict(curve[:20], 10).table[0], rtol=1e-12)


@pytest.mark.parametrize("curve", [SUBLINEAR, LINEAR, 2.0 * K**-0.7 + 0.1, 5.0 - 0.02 * K])
def test_changes_alone_continue_either_family_and_others(curve: np.ndarray) -> None:
    forecast = LossPredictor().predict(curve[:50], 10)

    assert forecast.median[0] == pytest.approx(curve[59], rel=0.01)
    assert forecast.source[0] == "loss changes"


@pytest.mark.parametrize("family", ["sublinear", "linear"])
def test_old_points_lose_their_say(family: LossFamily) -> None:
    """A curve that starts anew at another level is continued from there."""
    restarted = np.concatenate([np.full(100, 2.0), SUBLINEAR[:50]])

    forecast = LossPredictor(family).predict(restarted, 10)

    assert forecast.median[0] == pytest.approx(SUBLINEAR[59], abs=0.1)


def test_the_truth_lies_in_the_90_percent_interval_most_of_the_time() -> None:
    random = np.random.default_rng(4)
    curves = [a / (1.0 + K / b) + 0.002 * random.standard_normal(60) for a in (0.5, 1.0, 3.0) for b in (2.0, 8.0, 30.0)]

    low, high = LossPredictor().predict_many([c[:40] for c in curves], 10).quantile([0.05, 0.95]).T
    truth = np.array([c[49] for c in curves])

    assert np.mean((low <= truth) & (truth <= high)) >= 0.75


def test_a_loss_is_forecast_alike_in_any_unit() -> None:
    one, thousand = (LossPredictor().predict(scale * SUBLINEAR[:30], 10) for scale in (1.0, 1000.0))

    np.testing.assert_allclose(thousand.median, 1000.0 * one.median, rtol=1e-6)


def test_further_ahead_is_less_certain() -> None:
    noisy = SUBLINEAR[:40] + 0.01 * np.random.default_rng(0).standard_normal(40)

    near, far = (np.ptp(LossPredictor().predict(noisy, ahead).quantile([0.05, 0.95])) for ahead in (1, 30))

    assert far > near


def _widths(curve: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Of the 90% interval, and of the one that the network gives by itself."""
    widened = np.ptp(LossPredictor().predict(curve, 10).quantile([0.05, 0.95]))
    monkeypatch.setattr(predictors.loss.predictor, "_PRIOR_ERRORS", 1e12)
    return widened, np.ptp(LossPredictor().predict(curve, 10).quantile([0.05, 0.95]))


def test_an_interval_widens_where_those_before_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fell by a third at the thirtieth point and again at the fortieth, which nothing announced."""
    curve = np.concatenate([SUBLINEAR[:30], SUBLINEAR[30:40] / 1.5, SUBLINEAR[40:50] / 2.25])

    with_past, alone = _widths(curve, monkeypatch)

    assert with_past > 1.5 * alone


def test_an_interval_stays_where_those_before_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with_past, alone = _widths(5.0 - 0.02 * K[:50], monkeypatch)

    assert with_past == pytest.approx(alone)


def test_the_past_does_not_move_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = SUBLINEAR[:50] + 0.05 * np.random.default_rng(1).standard_normal(50)
    before = LossPredictor().predict(noisy, 10).median[0]

    monkeypatch.setattr(predictors.loss.predictor, "_PRIOR_ERRORS", 1e12)

    assert LossPredictor().predict(noisy, 10).median[0] == pytest.approx(before)


@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
def test_a_batch_gives_what_single_curves_give_in_order(family: LossFamily) -> None:
    predictor = LossPredictor(family)
    curves, ahead = [SUBLINEAR[:30], LINEAR[:12], SUBLINEAR[:30]], [10, 5, 2]

    batch = predictor.predict_many(curves, ahead)

    for i, (curve, steps) in enumerate(zip(curves, ahead, strict=True)):
        np.testing.assert_allclose(batch.table[i], predictor.predict(curve, steps).table[0])


@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
@pytest.mark.parametrize(
    "losses",
    [
        [0.7],
        [0.7, 0.6],
        [0.5] * 30,
        np.zeros(10),
        np.linspace(0.1, 9.0, 40),
        [3.0, np.nan, 2.5, np.inf, 2.0],
        [1e300, 1e200, 1.0, 0.5],
        -np.arange(20.0),
        [1e-200, 5e-201, 3e-201],
    ],
)
def test_odd_losses_get_a_finite_forecast(family: LossFamily, losses: list[float]) -> None:
    forecast = LossPredictor(family).predict(losses, 10)

    assert np.isfinite(forecast.quantile([0.05, 0.5, 0.95])).all()


@pytest.mark.parametrize("family", ["auto", "sublinear", "linear"])
def test_one_point_says_little(family: LossFamily) -> None:
    assert np.ptp(LossPredictor(family).predict([0.7, 0.69], 10).quantile([0.05, 0.95])) > 0.003


def test_a_curve_of_a_million_points_ends_in_good_time() -> None:
    losses = np.arange(1.0, 1e6 + 1.0) ** -0.2

    families: tuple[LossFamily, ...] = ("auto", "sublinear", "linear")
    for family in families:
        assert LossPredictor(family).predict(losses, 10).median[0] == pytest.approx(losses[-1], rel=0.001)


def test_no_losses_no_steps_and_no_such_family_are_refused() -> None:
    with pytest.raises(ValueError, match="finite value"):
        LossPredictor().predict([], 10)
    with pytest.raises(ValueError, match="ahead"):
        LossPredictor().predict([0.5], 0)
    with pytest.raises(ValueError, match="family"):
        LossPredictor("cubic")  # type: ignore[arg-type]


def test_a_network_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LossPredictor, "version", "loss-0")
    predictors.loss.predictor._network.cache_clear()

    with pytest.raises(ValueError, match="make it anew"):
        LossPredictor().predict([0.7, 0.6], 10)


@pytest.mark.parametrize("algorithm", [boosting, clustering, linear_models, networks])
def test_algorithms_lower_their_losses_the_same_way_each_time(algorithm: Callable[..., np.ndarray]) -> None:
    losses, again = (algorithm(60, 12, np.random.default_rng(1)) for _ in range(2))

    np.testing.assert_array_equal(losses, again)
    assert losses.shape == (12, 60)
    assert (losses >= 0).all()
    assert (losses[:, -5:].mean(axis=1) < losses[:, 0]).all()


def test_k_means_never_gets_worse() -> None:
    assert (np.diff(clustering(60, 12, np.random.default_rng(1))) <= 0).all()

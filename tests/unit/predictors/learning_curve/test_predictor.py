"""Learning curves are continued with honest uncertainty."""

import numpy as np
import pytest

from predictors.learning_curve import LearningCurvePredictor
from predictors.learning_curve.features import make_examples
from predictors.learning_curve.history import cluster_curves

_TOPS, _SPEEDS = np.linspace(0.65, 0.95, 20), np.resize([0.4, 0.7, 1.0, 1.3], 20)
_COLD = LearningCurvePredictor()


def _rising(n: int, top: float = 0.9, speed: float = 0.7, noise: float = 0.003, seed: int = 0) -> np.ndarray:
    x = np.arange(1.0, n + 1.0)
    return top - 0.6 * x**-speed + noise * np.random.default_rng(seed).standard_normal(n)


def test_a_power_law_is_continued_to_where_it_goes() -> None:
    curve = _rising(100)

    forecast = LearningCurvePredictor().predict(curve[:30], at=100)

    assert forecast.median[0] == pytest.approx(curve[-1], abs=0.05)
    assert forecast.source[0] == "learning curve, cold"


def test_the_truth_lies_in_the_90_percent_interval_most_of_the_time() -> None:
    curves = [
        _rising(60, top, speed, 0.005, i)
        for i, (top, speed) in enumerate((t, s) for t in np.linspace(0.65, 0.95, 8) for s in np.linspace(0.4, 1.5, 5))
    ]

    forecast = LearningCurvePredictor().predict_many([c[:20] for c in curves], np.full(len(curves), 60))
    low, high = forecast.quantile([0.05, 0.95]).T
    finals = np.array([curve[-1] for curve in curves])

    assert np.mean((low <= finals) & (finals <= high)) >= 0.8


def test_the_probability_of_reaching_a_target_falls_with_the_target() -> None:
    forecast = LearningCurvePredictor().predict(_rising(30), at=100)

    assert forecast.sf(0.7)[0] > 0.9
    assert forecast.sf(0.98)[0] < 0.1


def test_more_of_a_curve_makes_its_forecast_narrower() -> None:
    curve = _rising(100)
    predictor = LearningCurvePredictor()

    widths = [np.ptp(predictor.predict(curve[:n], at=100).quantile([0.05, 0.95])) for n in (5, 20, 80)]

    assert widths[0] > widths[1] > widths[2]


def test_a_batch_gives_what_single_curves_give_in_order() -> None:
    predictor = LearningCurvePredictor()
    curves = [_rising(n, seed=n) for n in (30, 10, 30, 7)]
    ats = np.array([100, 50, 60, 100])

    batch = predictor.predict_many(curves, ats)

    for i, (curve, at) in enumerate(zip(curves, ats, strict=True)):
        np.testing.assert_allclose(batch.table[i], predictor.predict(curve, at).table[0])


def test_curves_of_one_length_may_go_on_to_different_iterations(fitted: LearningCurvePredictor) -> None:
    curves = [0.8 * (1.0 - np.exp(-np.arange(1, 201) / scale)) for scale in (20.0, 60.0, 90.0)] * 3
    ats = [201, 900, 240, 201.5, 240, 300, 1e6, 240, 250]

    for predictor in (LearningCurvePredictor(), fitted):
        batch = predictor.predict_many(curves, ats)

        for row, (curve, at) in enumerate(zip(curves, ats, strict=True)):
            np.testing.assert_allclose(batch.table[row], predictor.predict(curve, at).table[0], atol=1e-9)


def test_a_share_stays_within_0_and_1_and_a_percentage_within_100() -> None:
    share = LearningCurvePredictor().predict(1.0 - 0.5 * np.arange(1.0, 11.0) ** -2, at=1000)
    percent = LearningCurvePredictor().predict(100.0 - 50.0 * np.arange(1.0, 11.0) ** -2, at=1000)

    assert 0.0 <= share.quantile(0.0)[0] <= share.quantile(1.0)[0] <= 1.0
    assert 50.0 < percent.median[0] <= percent.quantile(1.0)[0] <= 100.0


def test_a_percentage_is_forecast_as_the_share_it_is() -> None:
    curve = _rising(30)

    share, percent = (LearningCurvePredictor().predict(scale * curve, at=80) for scale in (1.0, 100.0))

    np.testing.assert_allclose(percent.median, 100.0 * share.median)


def test_a_quantity_without_bounds_is_forecast_in_its_own_scale() -> None:
    """A loss, for which lower is better, comes negated."""
    curve = -(1000.0 + 5000.0 * np.arange(1.0, 41.0) ** -0.8)

    forecast = LearningCurvePredictor().predict(curve, at=100)

    assert -1300.0 < forecast.median[0] < -700.0
    assert forecast.quantile(1.0)[0] == 0.0


def test_a_quantity_that_is_neither_share_nor_loss_is_not_bounded() -> None:
    forecast = LearningCurvePredictor().predict(5000.0 - 9000.0 * np.arange(1.0, 41.0) ** -0.8, at=100)

    assert 4400.0 < forecast.median[0] < 5600.0
    assert forecast.quantile(1.0)[0] == np.inf


def test_an_iteration_already_seen_is_certain() -> None:
    forecast = LearningCurvePredictor().predict([0.1, 0.2, 0.3], at=2)

    assert forecast.quantile([0.0, 1.0]).tolist() == [[0.2, 0.2]]
    assert forecast.source[0] == "observed"


@pytest.mark.parametrize(
    "curve",
    [
        [0.5],
        [0.5] * 20,
        np.linspace(0.9, 0.2, 20),
        [0.1, np.nan, 0.3, np.inf, 0.4],
        [1.2, 1.4, 1.5],
        [0.0, 0.0],
        [1e308, -1e308, 0.5],
        np.zeros(3),
        np.random.default_rng(0).standard_normal(50),
    ],
)
def test_odd_curves_get_a_finite_forecast_with_some_width(curve: np.ndarray) -> None:
    forecast = LearningCurvePredictor().predict(curve, at=100)

    assert np.isfinite(forecast.quantile([0.01, 0.5, 0.99])).all()
    assert np.ptp(forecast.quantile([0.01, 0.99])) > 0


def test_one_point_may_go_nearly_anywhere() -> None:
    forecast = LearningCurvePredictor().predict([0.3], at=50)

    assert np.ptp(forecast.quantile([0.05, 0.95])) > 0.4


def test_a_curve_of_a_million_points_ends_in_good_time() -> None:
    curve = 0.9 - 0.5 * np.arange(1.0, 1e6 + 1.0) ** -0.3

    forecast = LearningCurvePredictor().predict(curve, at=2e6)

    assert forecast.median[0] == pytest.approx(curve[-1], abs=0.01)


@pytest.mark.parametrize("curve", [[], [np.nan, np.nan], [[0.1, 0.2]]])
def test_what_is_no_curve_is_refused(curve: list[float]) -> None:
    with pytest.raises(ValueError, match="a curve"):
        LearningCurvePredictor().predict(curve, at=10)


@pytest.mark.parametrize("at", [0, -3, np.nan, np.inf])
def test_what_is_no_iteration_is_refused(at: float) -> None:
    with pytest.raises(ValueError, match="iteration"):
        LearningCurvePredictor().predict([0.1, 0.2], at=at)


def _history(n: int = 60) -> list[np.ndarray]:
    """Runs of one kind: they rise late and then fast, which no curve of the prior does so regularly."""
    random = np.random.default_rng(7)
    x = np.arange(1.0, 41.0)
    middles, tops = random.uniform(14.0, 18.0, (n, 1)), random.uniform(0.65, 0.8, (n, 1))
    return list(0.1 + tops / (1.0 + np.exp((middles - x) / 2.0)) + 0.004 * random.standard_normal((n, 40)))


@pytest.fixture(scope="module")
def fitted() -> LearningCurvePredictor:
    return LearningCurvePredictor().fit(_history())


def test_history_teaches_how_such_runs_go_on(fitted: LearningCurvePredictor) -> None:
    """After twelve iterations these runs still stand near the ground."""
    curves = _history(75)[60:]
    finals = np.array([curve[-1] for curve in curves])
    begun, ats = [curve[:12] for curve in curves], np.full(15, 40)

    warm, cold = (p.predict_many(begun, ats) for p in (fitted, LearningCurvePredictor()))

    assert np.abs(warm.median - finals).mean() < 0.05 < np.abs(cold.median - finals).mean()
    assert set(warm.source) == {"learning curve"}


def test_a_short_history_of_another_kind_does_not_spoil_what_the_prior_knows() -> None:
    curves = [_rising(60, top, speed, 0.005, i) for i, (top, speed) in enumerate(zip(_TOPS, _SPEEDS, strict=True))]
    finals = np.array([curve[-1] for curve in curves])
    begun, ats = [curve[:15] for curve in curves], np.full(len(curves), 60)

    warm, cold = (p.predict_many(begun, ats) for p in (LearningCurvePredictor().fit(_history(20)), _COLD))
    low, high = warm.quantile([0.05, 0.95]).T

    assert np.abs(warm.median - finals).mean() < 1.25 * np.abs(cold.median - finals).mean()
    assert np.mean((low <= finals) & (finals <= high)) >= 0.8


def test_a_hyper_parameter_that_decides_the_end_is_used() -> None:
    """The same beginning ends high or low by the learning rate alone."""
    random = np.random.default_rng(3)
    rates = random.choice([0.1, 0.001], 80)
    x = np.arange(1.0, 31.0)
    curves = [np.where(x < 10, 0.3, 0.9 if rate > 0.01 else 0.4) + 0.002 * random.standard_normal(30) for rate in rates]
    predictor = LearningCurvePredictor().fit(curves, [{"hp": {"lr": rate}} for rate in rates])

    forecast = predictor.predict_many([curves[0][:8]] * 2, [30, 30], [{"hp": {"lr": 0.1}}, {"hp": {"lr": 0.001}}])

    np.testing.assert_allclose(forecast.median, [0.9, 0.4], atol=0.05)


def test_curves_of_the_prior_are_numbered_after_those_that_are_too_short_to_be_cut() -> None:
    own = make_examples([_rising(20), np.array([0.5])])

    joined = own.followed_by(make_examples([_rising(30)]), 2)

    assert set(own.owner.tolist()) == {0}
    assert set(joined.owner.tolist()) == {0, 2}


def test_few_finished_curves_leave_the_predictor_cold() -> None:
    assert LearningCurvePredictor().fit(_history(5)).predict([0.1, 0.2], 40).source[0] == "learning curve, cold"


def test_curves_that_were_predicted_badly_widen_later_intervals() -> None:
    predictor, begun = LearningCurvePredictor(), _rising(20)
    before = np.ptp(predictor.predict(begun, 60).quantile([0.05, 0.95]))

    for _ in range(10):
        predictor.update(np.concatenate([np.full(30, 0.2), np.full(30, 0.9)]))

    assert np.ptp(predictor.predict(begun, 60).quantile([0.05, 0.95])) > before


def test_a_fitted_model_comes_back_from_plain_values(fitted: LearningCurvePredictor) -> None:
    back = LearningCurvePredictor.from_state(fitted.state())

    np.testing.assert_array_equal(back.predict(_rising(10), 40).table, fitted.predict(_rising(10), 40).table)


def test_the_keys_of_a_state_are_those_of_models_in_ledgers(fitted: LearningCurvePredictor) -> None:
    """Of version learning-curve-8: a ledger keeps them, whatever the attributes are called."""
    forest, process = "roots feature threshold below leaf", "centre scale features known weight level"
    expected = {"version", "seed", "spread", "doubt", *(f"meta/{name}" for name in ("numbers", "knots", "words"))}
    expected |= {f"forest/{name}" for name in forest.split()} | {f"process/{name}" for name in process.split()}

    assert set(fitted.state()) == expected


def test_a_model_of_another_version_is_refused(fitted: LearningCurvePredictor) -> None:
    with pytest.raises(ValueError, match="fit it again"):
        LearningCurvePredictor.from_state({**fitted.state(), "version": "learning-curve-0"})


def test_the_same_history_and_seed_give_the_same_forecasts(fitted: LearningCurvePredictor) -> None:
    again = LearningCurvePredictor().fit(_history())

    np.testing.assert_array_equal(again.predict(_rising(10), 40).table, fitted.predict(_rising(10), 40).table)


def test_as_many_metas_as_curves_are_asked_for() -> None:
    with pytest.raises(ValueError, match="metas"):
        LearningCurvePredictor().predict_many([[0.1], [0.2]], [5, 5], [None])


def test_curves_of_unlike_kinds_are_of_different_clusters() -> None:
    random = np.random.default_rng(0)
    centres = np.repeat(np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 3.0], [9.0, 3.0]]), 10, axis=0)
    owner = np.repeat(np.arange(41), 3)  # the last is none of the history
    inputs = np.append(centres, [[50.0, 50.0]], axis=0)[owner] + 0.1 * random.standard_normal((123, 2))

    clusters = cluster_curves(inputs, owner, 40)

    assert [len(set(clusters[i : i + 10].tolist())) for i in range(0, 40, 10)] == [1] * 4
    assert len(set(clusters.tolist())) == 4

"""Scores against numbers worked out by hand."""

import numpy as np
import pytest
from scipy.stats import norm

from predictors import scoring
from predictors.forecast import Forecast
from predictors.scoring import ScoreRow


def test_too_long_and_too_short_by_the_same_factor_agree_alike() -> None:
    assert scoring.agreement([50.0, 200.0], [100.0, 100.0]) == 0.5
    assert scoring.agreement([100.0], [100.0]) == 1.0


def test_an_error_relative_to_nothing_does_not_count() -> None:
    assert scoring.relative_error([1.1, 5.0, 1.0], [1.0, 0.0, -2.0], [1.0, 0.0, -2.0]) == pytest.approx(0.8)
    assert np.isnan(scoring.relative_error([5.0], [0.0], [0.0]))


def test_the_log_likelihood_of_a_normal_is_its_density() -> None:
    actual = np.array([0.1, -0.4])
    likelihood = scoring.log_likelihood(Forecast.normal([0.0, 0.0], [1.0, 1.0], "test"), actual)
    assert likelihood == pytest.approx(norm.logpdf(actual).mean(), abs=0.02)


@pytest.mark.parametrize(("actual", "expected"), [(1e9, -20.0), (3.0, 20.0)])
def test_what_was_held_for_impossible_and_what_was_held_for_certain_count_so_much_and_no_more(
    actual: float, expected: float
) -> None:
    assert scoring.log_likelihood(Forecast.certain([3.0], "test"), [actual]) == expected


def test_coverage_counts_the_bounds_and_exceedance_does_not() -> None:
    assert scoring.coverage([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.1]) == pytest.approx(2 / 3)
    assert scoring.exceedance([1.0, 1.0], [1.0, 1.1]) == 0.5


def test_the_interval_of_a_calibrated_forecast_covers_nine_tenths() -> None:
    actual = np.random.default_rng(0).normal(0, 2, 20_000)
    scores = scoring.distribution_scores(Forecast.normal(np.zeros(20_000), 2.0, "test"), actual)
    assert scores["covers 90%"] == pytest.approx(0.9, abs=0.01)
    assert scores["mae"] == pytest.approx(2 * np.sqrt(2 / np.pi), rel=0.02)


@pytest.mark.parametrize("predicted", [[], [1.0, 2.0]])
def test_predictions_that_are_not_one_a_value_are_refused(predicted: list[float]) -> None:
    with pytest.raises(ValueError, match="cannot be scored"):
        scoring.absolute_error(predicted, [1.0] if predicted else [])


def test_a_mean_of_lines_counts_each_alike() -> None:
    lines = [ScoreRow("a", "m", 1, {"mae": 1.0}), ScoreRow("b", "m", 99, {"mae": 3.0})]
    assert scoring.mean_row(lines, "both") == ScoreRow("both", "m", 100, {"mae": 2.0})

"""Forecasts are distributions: what they answer agrees with the distributions they were made from."""

import numpy as np
import pytest
from scipy import stats

from predictors.forecast import LEVELS, Fan, Forecast, Forecasts


def test_a_normal_forecast_answers_as_the_normal_distribution() -> None:
    forecast = Forecast.normal([0.0, 10.0], [1.0, 2.0], "test")
    reference = stats.norm([0.0, 10.0], [1.0, 2.0])

    np.testing.assert_allclose(forecast.mean, [0.0, 10.0], atol=1e-9)
    np.testing.assert_allclose(forecast.median, [0.0, 10.0], atol=1e-9)
    np.testing.assert_allclose(forecast.quantile(0.95), reference.ppf(0.95))
    np.testing.assert_allclose(forecast.sf([1.3, 8.0]), reference.sf([1.3, 8.0]), atol=0.005)
    np.testing.assert_allclose(forecast.logpdf([1.3, 8.0]), reference.logpdf([1.3, 8.0]), atol=0.1)


def test_a_lognormal_forecast_is_never_negative_and_has_the_lognormal_mean() -> None:
    forecast = Forecast.lognormal(100.0, 0.8, "test")

    np.testing.assert_allclose(forecast.mean, 100.0 * np.exp(0.8**2 / 2), rtol=0.02)
    assert forecast.quantile(0.0) == 0.0
    assert forecast.sf(-1.0) == 1.0
    assert forecast.logpdf(-1.0) == -np.inf


def test_bounds_may_differ_by_row() -> None:
    forecast = Forecast.quantiles(
        [0.1, 0.9], [[-2.0, 2.0], [-2.0, 2.0]], "test", lower=[-1.0, -np.inf], upper=[9.0, 1.0]
    )

    np.testing.assert_allclose(forecast.quantile([0.0, 0.5, 1.0]), [[-1.0, 0.0, 9.0], [-np.inf, 0.0, 1.0]], atol=1e-12)


def test_a_forecast_times_a_number_is_that_of_so_many_times_as_much() -> None:
    forecast = Forecast.lognormal([100.0, 100.0], 0.8, "test").times([3.0, 0.0])

    np.testing.assert_allclose(forecast[0].table, Forecast.lognormal(300.0, 0.8, "test").table)
    assert not forecast[1].table.any()


def test_one_level_gives_a_number_a_row_and_k_levels_give_k() -> None:
    forecast = Forecast.normal([0.0, 1.0, 2.0], 1.0, "test")

    assert forecast.quantile(0.1).shape == (3,)
    assert forecast.quantile([0.1, 0.5]).shape == (3, 2)
    assert forecast.quantile([0.1]).shape == (3, 1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        forecast.quantile(1.2)


def test_the_density_integrates_to_the_difference_of_the_survival_function() -> None:
    forecast = Forecast.lognormal(5.0, 0.5, "test")
    y = np.linspace(0.01, 60.0, 200_001)
    rows = forecast[np.zeros(len(y), dtype=int)]

    mass = np.trapezoid(np.exp(rows.logpdf(y)), y)

    np.testing.assert_allclose(mass, forecast.sf(0.01)[0] - forecast.sf(60.0)[0], atol=1e-3)


def test_what_remains_of_a_lognormal_run_time_is_its_conditional_distribution() -> None:
    total = Forecast.lognormal(1000.0, 1.0, "test")
    sample = np.random.default_rng(1).lognormal(np.log(1000.0), 1.0, 400_000)
    later = sample[sample > 2500.0] - 2500.0

    remaining = total.beyond(2500.0)

    np.testing.assert_allclose(remaining.median, np.median(later), rtol=0.05)
    np.testing.assert_allclose(remaining.quantile(0.9), np.quantile(later, 0.9), rtol=0.08)
    assert remaining.quantile(0.0) == 0.0


def test_far_beyond_the_table_the_remaining_time_stays_positive_and_finite() -> None:
    remaining = Forecast.lognormal(10.0, 0.5, "test").beyond(1e6)

    assert 0.0 < remaining.median[0] < 1e6
    assert np.isfinite(remaining.mean[0])


def test_nothing_remains_of_a_job_at_its_time_limit() -> None:
    capped = Forecast.lognormal(3600.0, 1.0, "test").clip(upper=7200.0)

    assert capped.quantile(1.0) == 7200.0
    assert capped.beyond(7200.0).mean == 0.0
    assert capped.beyond(3600.0).quantile(1.0) == 3600.0


def test_a_limit_puts_an_atom_where_probability_was_cut_off() -> None:
    capped = Forecast.normal(10.0, 2.0, "test").clip(upper=10.0)

    np.testing.assert_allclose(capped.sf(10.0), 0.5, atol=1e-9)
    assert capped.sf(10.1) == 0.0
    assert capped.logpdf(10.0) == np.inf


def test_a_certain_value_has_all_probability_at_that_value() -> None:
    forecast = Forecast.certain([3.0], "test")

    assert forecast.mean == pytest.approx(3.0)
    assert forecast.sf(3.0) == 1.0
    assert forecast.sf(3.0001) == 0.0


def test_unknown_rows_are_nan_in_every_answer_and_have_no_source() -> None:
    forecast = Forecast.unknown(2)

    for answer in (forecast.mean, forecast.median, forecast.sf(1.0), forecast.logpdf(1.0), forecast.beyond(1.0).mean):
        assert np.isnan(answer).all()
    assert list(forecast.source) == ["", ""]
    assert not forecast.known.any()


def test_rows_are_taken_by_number_slice_mask_and_list() -> None:
    forecast = Forecast.normal([0.0, 1.0, 2.0], 1.0, ["a", "b", "c"])

    assert len(forecast[1]) == 1
    assert forecast[1].source == ["b"]
    assert list(forecast[1:].source) == ["b", "c"]
    assert list(forecast[np.array([True, False, True])].source) == ["a", "c"]
    assert list(forecast[[2, 0]].source) == ["c", "a"]


def test_a_batch_is_assembled_from_parts_of_several_sources() -> None:
    batch = Forecast.assemble(
        4, [([2, 0], Forecast.certain([20.0, 0.0], "svr")), ([3], Forecast.certain([9.0], "time limit"))]
    )

    np.testing.assert_array_equal(batch.median, [0.0, np.nan, 20.0, 9.0])
    assert list(batch.source) == ["svr", "", "svr", "time limit"]


def test_quantiles_at_other_levels_are_kept_and_crossing_ones_are_put_in_order() -> None:
    forecast = Forecast.quantiles([0.1, 0.5, 0.9], [[1.0, 5.0, 4.0]], "test")

    np.testing.assert_allclose(forecast.quantile([0.1, 0.5, 0.9]), [[1.0, 4.0, 5.0]])
    assert forecast.quantile(0.999)[0] > 5.0


def test_tables_that_are_no_distribution_are_refused() -> None:
    with pytest.raises(ValueError, match="decrease"):
        Forecast(np.linspace(1.0, 0.0, len(LEVELS))[None, :], np.array(["x"]))
    with pytest.raises(ValueError, match="table is"):
        Forecast(np.zeros((1, 3)), np.array(["x"]))
    with pytest.raises(ValueError, match="infinite"):
        Forecast(np.full((1, len(LEVELS)), np.inf), np.array(["x"]))
    with pytest.raises(ValueError, match="increasing"):
        Forecast.quantiles([0.5, 0.1], [[1.0, 2.0]], "x")


def test_a_forecast_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Forecast.certain(1.0, "x").table[0, 0] = 2.0


def _fan() -> Fan:
    x = np.array([[1.0, 2.0, 4.0]])
    columns = [Forecast.normal(0.1 * k, 0.01 * k, "curve") for k in (1, 2, 4)]
    return Fan.of(3, [1], x, columns)


def test_a_fan_is_linear_between_its_columns_and_flat_outside() -> None:
    fan = _fan()

    np.testing.assert_allclose(fan.at([1, 1, 1, 1], [1.0, 3.0, 0.0, 9.0]).median, [0.1, 0.3, 0.1, 0.4])
    np.testing.assert_allclose(fan.at([1], 3.0).quantile(0.9), Forecast.normal(0.3, 0.03, "").quantile(0.9))


def test_a_fan_knows_nothing_of_rows_it_was_not_given() -> None:
    fan = _fan()

    assert list(fan.known) == [False, True, False]
    assert np.isnan(fan.at([0], 2.0).median).all()
    assert list(fan.at([1, 2], 2.0).source) == ["curve", ""]
    assert np.isnan(Fan.unknown(5).at(np.arange(5), 3.0).mean).all()


def test_what_was_not_forecast_is_unknown_in_every_field() -> None:
    nothing = Forecasts.unknown(3)

    assert len(nothing.total) == len(nothing.remaining) == len(nothing.speed) == 3
    assert not nothing.accuracy.known.any()

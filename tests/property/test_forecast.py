"""Laws that every forecast obeys."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from predictors.forecast import LEVELS, Forecast

_numbers = st.floats(-1e6, 1e6)
_tables = st.lists(_numbers, min_size=len(LEVELS), max_size=len(LEVELS)).map(sorted)
_unbounded = st.tuples(_tables, st.booleans(), st.booleans()).map(
    lambda t: [-np.inf if t[1] else t[0][0], *t[0][1:-1], np.inf if t[2] else t[0][-1]]
)


def _forecast(table: list[float]) -> Forecast:
    return Forecast(np.array([table]), np.array(["test"]))


@given(_unbounded, st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8).map(sorted))
def test_quantiles_do_not_decrease_with_the_level(table: list[float], levels: list[float]) -> None:
    values = _forecast(table).quantile(levels)[0]

    assert np.all(values[1:] >= values[:-1])


@given(_unbounded, st.floats(0.001, 0.999))
def test_the_survival_function_undoes_the_quantile(table: list[float], level: float) -> None:
    forecast = _forecast(table)
    value = forecast.quantile(level)

    assert forecast.sf(value)[0] >= 1.0 - level - 1e-6


@given(_unbounded, _numbers, _numbers)
def test_the_survival_function_does_not_increase(table: list[float], a: float, b: float) -> None:
    forecast = _forecast(table)

    assert forecast.sf(min(a, b))[0] >= forecast.sf(max(a, b))[0]
    assert 0.0 <= forecast.sf(a)[0] <= 1.0


@given(_unbounded, _numbers)
def test_what_remains_is_a_distribution_of_numbers_not_negative(table: list[float], y: float) -> None:
    remaining = _forecast(table).beyond(y)

    assert remaining.known.all()
    assert remaining.quantile(0.0)[0] >= 0.0
    assert np.all(np.diff(remaining.table[0][1:-1]) >= 0)


@given(_tables)
def test_the_mean_lies_within_a_finite_support(table: list[float]) -> None:
    mean = _forecast(table).mean[0]

    slack = 1e-9 * (1.0 + abs(table[0]) + abs(table[-1]))
    assert table[0] - slack <= mean <= table[-1] + slack

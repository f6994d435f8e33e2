"""What history and prior say of a curve is weighed by how much it is like the history."""

import numpy as np
import pytest

from predictors.learning_curve.blending import GRID, LeftOut, Said, _blurred, doubted, mixed, sobered
from predictors.learning_curve.features import HISTORY_LENGTH, HORIZON


def test_a_short_run_is_expected_to_gain_less_of_what_the_prior_promises_than_a_long_one() -> None:
    """The same features but for the horizon; at 70 iterations a fifth less is kept, at 200 all of it."""
    gains = np.tile(np.linspace(0.0, 1.0, 17), (3, 1))
    x = np.zeros((3, 30))
    x[:, HISTORY_LENGTH] = np.log([20, 20, 3])
    x[:, HORIZON] = np.log([70, 200, 70])

    sober = sobered(gains, x)

    np.testing.assert_allclose(sober[:, 8], [0.4, 0.5, 0.5])
    assert np.ptp(sober[0]) < np.ptp(sober[2])


def test_a_forecast_of_a_curve_unlike_the_history_is_blurred_more() -> None:
    alike, unlike = np.ptp(_blurred(np.array([1.0, 0.5])), axis=1)

    assert 0.0 < alike < unlike / 3.0


def _disagreeing(familiarity: list[float]) -> Said:
    """Half of the way to the top is gained, says the history, and nothing, says the prior."""
    spread, n = 0.02 * (GRID - 0.5), len(familiarity)
    return Said(np.tile(0.5 + spread, (n, 1)), np.tile(spread, (n, 1)), np.array(familiarity))


def test_the_less_a_curve_is_like_the_history_the_more_the_prior_says_of_it() -> None:
    medians = mixed(_disagreeing([1.0, 0.9, 0.5]), 1.0, 4.0)[:, len(GRID) // 2]

    np.testing.assert_allclose(medians, [0.5, 0.5 * 0.9 / 1.3, 0.5 * 0.5 / 2.5], atol=1e-9)


def test_without_doubt_the_history_says_it_all() -> None:
    assert mixed(_disagreeing([0.5]), 1.0, 0.0)[0, len(GRID) // 2] == pytest.approx(0.5)


@pytest.mark.parametrize(("truth", "wrong"), [(0.5, False), (0.0, True)])
def test_a_history_that_was_wrong_of_strange_curves_isdoubted(truth: float, wrong: bool) -> None:
    strange = LeftOut(_disagreeing([0.6] * 10), np.full(10, truth), np.ones(10))

    assert (doubted([strange], 1.0) > 100.0) is wrong

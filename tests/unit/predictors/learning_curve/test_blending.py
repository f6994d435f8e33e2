"""History and prior are blended by how familiar a curve is."""

import numpy as np
import pytest

from predictors.learning_curve.blending import HeldOut, SourceQuantiles, _normal_error, blend, fit_shift_penalty
from predictors.learning_curve.features import HISTORY_LENGTH, HORIZON
from predictors.learning_curve.prior import shrink_overconfident
from predictors.learning_curve.quantiles import QUANTILE_LEVELS


def test_a_short_run_gains_less_of_what_the_prior_expects_than_a_long_one() -> None:
    """The same features but for the horizon; at 70 iterations a fifth less is kept, at 200 all of it."""
    gains = np.tile(np.linspace(0.0, 1.0, 17), (3, 1))
    x = np.zeros((3, 30))
    x[:, HISTORY_LENGTH] = np.log([20, 20, 3])
    x[:, HORIZON] = np.log([70, 200, 70])

    shrunk = shrink_overconfident(gains, x)

    np.testing.assert_allclose(shrunk[:, 8], [0.4, 0.5, 0.5])
    assert np.ptp(shrunk[0]) < np.ptp(shrunk[2])


def test_an_unfamiliar_curve_gets_a_larger_normal_error() -> None:
    familiar, unfamiliar = np.ptp(_normal_error(np.array([1.0, 0.5])), axis=1)

    assert 0.0 < familiar < unfamiliar / 3.0


def _disagreeing(familiarity: list[float]) -> SourceQuantiles:
    """By the history half of the way to the top is gained, by the prior nothing."""
    spread, n = 0.02 * (QUANTILE_LEVELS - 0.5), len(familiarity)
    return SourceQuantiles(np.tile(0.5 + spread, (n, 1)), np.tile(spread, (n, 1)), np.array(familiarity))


def test_the_less_familiar_a_curve_is_the_more_the_prior_weighs() -> None:
    medians = blend(_disagreeing([1.0, 0.9, 0.5]), 1.0, 4.0)[:, len(QUANTILE_LEVELS) // 2]

    np.testing.assert_allclose(medians, [0.5, 0.5 * 0.9 / 1.3, 0.5 * 0.5 / 2.5], atol=1e-9)


def test_without_a_shift_penalty_the_history_alone_counts() -> None:
    assert blend(_disagreeing([0.5]), 1.0, 0.0)[0, len(QUANTILE_LEVELS) // 2] == pytest.approx(0.5)


@pytest.mark.parametrize(("truth", "wrong"), [(0.5, False), (0.0, True)])
def test_a_history_that_was_wrong_of_unfamiliar_curves_is_penalised(truth: float, wrong: bool) -> None:
    unfamiliar = HeldOut(_disagreeing([0.6] * 10), np.full(10, truth), np.ones(10))

    assert (fit_shift_penalty([unfamiliar], 1.0) > 100.0) is wrong

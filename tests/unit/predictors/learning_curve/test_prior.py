"""The forest that ships is the one that the prior gives."""

import numpy as np

from predictors.learning_curve.features import CUTS, make_examples
from predictors.learning_curve.prior import grow_forest, prior_quantiles, sample_prior_curves
from predictors.learning_curve.quantiles import sample_quantiles


def test_the_forest_that_ships_is_what_the_prior_gives_today() -> None:
    """Another seed differs by .025 in the mean, and so would another release of scikit-learn that draws otherwise."""
    random = np.random.default_rng(7)
    curves = [curve for length in (20, 100, 400) for curve in sample_prior_curves(length, 20, random)]
    x = make_examples(curves, CUTS[1::2]).x
    grown = sample_quantiles(grow_forest().sample(x))
    assert np.abs(prior_quantiles(x) - grown).mean() < 0.005, "run `python -m docs.make_learning_curve_forest`"

"""Replays of finished runs under the rules that stop jobs."""

import numpy as np

from predictors.trials.curves import FinishedCurve
from slurmplug.learning import stop_trials


def test_curves_that_saturate_at_different_heights_are_stopped_where_they_cannot_meet_the_median() -> None:
    at = np.arange(1.0, 31.0)
    noise = np.random.default_rng(0).normal(0, 0.005, (40, len(at)))
    heights = np.linspace(0.3, 0.9, 40)[:, None]
    runs = [FinishedCurve(curve, "one") for curve in heights * (1 - np.exp(-at / 4)) + noise]
    rows = {(row.part, row.method): row.scores for row in stop_trials.accuracy_trial(runs)}
    spent, paper = rows["out of reach", "error spent"], rows["out of reach", "as in the paper"]
    assert 0 < spent["stopped"] <= paper["stopped"] <= 0.6
    assert paper["epochs used"] < spent["epochs used"] < 1
    assert spent["wrongly"] == 0
    assert rows["no better value", "forecast or fall"]["stopped"] >= rows["no better value", "forecast"]["stopped"] > 0


def test_a_loss_is_stopped_only_where_it_is_made_to_explode() -> None:
    at = np.arange(1.0, 41.0)
    reported, exploding = stop_trials.loss_trial({"a": [1 / at, 2.3 * np.exp(-at / 9)], "b": [3.0 + 1 / at]})
    assert (reported.items, reported.scores["stopped"], exploding.scores["stopped"]) == (3, 0.0, 1.0)
    assert exploding.scores["reports"] < 20

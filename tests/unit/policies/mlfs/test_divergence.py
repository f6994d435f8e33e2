"""Trainings that have diverged, and those that have not."""

from typing import Any

import numpy as np
import pytest

from policies.mlfs import divergence
from policies.mlfs.curve_shape import CurveShape, falls, still_improves
from policies.mlfs.early_stopping import StopCandidates, stop_actions
from policies.mlfs.load_control import LoadControlSettings, assess_load
from policies.plan import NOTHING_REMEMBERED, Action
from predictors.arrays import Floats
from predictors.forecast import Forecast
from tests.builders import curves, jobs, snapshot

SETTINGS = LoadControlSettings()
LEARNING = 2.3 * np.exp(-np.arange(20.0) / 8) + 0.1


def stops(**columns: Any) -> tuple[Action, ...]:
    given: dict[str, Any] = {"state": "running", "stop": "optstop", "iteration": 20, "max_iterations": 100}
    of_jobs = jobs(**given | columns)
    load = assess_load(snapshot(of_jobs), NOTHING_REMEMBERED, SETTINGS)
    candidates = StopCandidates.of(of_jobs, Forecast.unknown(1), SETTINGS, overloaded=False)
    return stop_actions(snapshot(of_jobs), candidates, load, SETTINGS)


def beyond(losses: Floats) -> bool:
    return bool(divergence.beyond_its_past(curves([losses]), np.array([0]), SETTINGS)[0][0])


class TestNotFinite:
    def test_five_in_a_row_stop_a_job_that_never_reported_anything_else(self) -> None:
        (action,) = stops(not_finite=5)
        assert (action.reason.rule, action.reason.facts["cause"]) == ("diverged", "diverged")
        assert action.reason.facts["how"] == "not finite"
        assert action.reason.facts["reports"] == 5

    @pytest.mark.parametrize(
        "columns",
        [{"not_finite": 4}, {"stop": "target", "target": 0.9}, {"stop": "iterations"}, {"managed": False},
         {"state": "pending"}, {"iteration": 100}, {"downgrade": "optstop", "stop": "iterations"}],
    )  # fmt: skip
    def test_unless_all_holds(self, columns: dict[str, Any]) -> None:
        assert stops(**{"not_finite": 5} | columns) == ()

    def test_a_target_that_was_met_before_is_the_cause(self) -> None:
        (action,) = stops(not_finite=9, target=0.8, accuracies=[[0.5, 0.6, 0.7, 0.8, 0.81]])
        assert action.reason.facts["cause"] == "reached"


class TestBeyondItsPast:
    def test_a_loss_that_explodes_has_diverged_after_five_reports(self) -> None:
        exploding = 0.2 * 1.8 ** np.arange(1.0, 16.0)
        found = [beyond(np.append(LEARNING, exploding[:n])) for n in range(16)]
        first = found.index(True)
        assert found == [False] * first + [True] * (16 - first)
        assert (exploding[:first] > 3 * LEARNING[0]).sum() == 5

    def test_one_that_explodes_from_its_first_report_has_too(self) -> None:
        assert beyond(0.2 * 1.5 ** np.arange(18.0))

    def test_a_single_spike_a_noisy_loss_and_one_that_rises_back_have_not(self) -> None:
        noise = np.random.default_rng(0).normal(0, 0.3, 200)
        assert not beyond(np.append(LEARNING, [50.0, 40.0, 0.2, 30.0, 60.0]))
        assert not any(beyond(1.0 + noise[:n]) for n in range(200))
        assert not beyond(np.append(LEARNING, np.full(5, 2.3)))

    def test_a_loss_may_be_negative_and_a_constant_one_says_nothing(self) -> None:
        assert beyond(np.append(-100 + 50 * np.exp(-np.arange(20.0)), np.full(5, 60.0)))
        assert not beyond(np.append(-100 + 50 * np.exp(-np.arange(20.0)), np.full(5, 40.0)))
        assert not beyond(np.append(np.zeros(20), np.ones(5)))

    def test_fewer_than_ten_losses_are_no_past(self) -> None:
        assert not beyond(np.append(LEARNING[:9], np.full(5, 99.0)))
        assert beyond(np.append(LEARNING[:10], np.full(5, 99.0)))

    def test_it_stops_no_job_whose_accuracy_or_validation_loss_improves(self) -> None:
        exploded = np.append(LEARNING, np.full(5, 99.0))
        rising, flat = np.linspace(0.1, 0.6, 25), np.full(25, 0.5)
        (action,) = stops(losses=[exploded], accuracies=[flat])
        assert (action.reason.rule, action.reason.facts["how"]) == ("diverged", "beyond its past")
        assert action.reason.facts["loss"] == 99.0
        assert stops(losses=[exploded], accuracies=[rising]) == ()
        assert stops(losses=[exploded], accuracies=[flat], validation_losses=[rising]) == ()


class TestShapes:
    def test_a_curve_improves_while_one_of_its_last_three_values_is_the_best(self) -> None:
        some = curves([[], [1, 2], [1, 2, 3, 4, 5, 5, 5], [1, 2, 3, 4, 5, 5, 5, 5], [1, 2, 3, 4, 9, 5, 4]])
        assert still_improves(some, np.arange(5)).tolist() == [False, True, True, False, True]

    def test_a_curve_falls_if_its_best_value_is_half_of_its_reports_ago(self) -> None:
        peak = np.array([0.5, 0.6, 0.7, 0.8])
        fallen = [*(np.append(peak, 0.79 - 0.01 * np.arange(n)) for n in (9, 10)), np.append(peak, np.full(20, 0.7))]
        slow = np.append(np.linspace(0.1, 0.8, 30), 0.79 - 0.01 * np.arange(15))
        some = curves([*fallen, slow])
        rows = np.arange(4)
        assert falls(some, rows, CurveShape.of(some, rows)).tolist() == [False, True, False, False]

    def test_the_best_value_has_the_iteration_where_it_was_first_reached(self) -> None:
        some = curves([[0.1, 0.9, 0.5, 0.9], [0.3, 0.2, 0.4]])
        assert CurveShape.of(some, np.array([1, 0])).best_at.tolist() == [3.0, 2.0]

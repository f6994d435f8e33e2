"""Losses, accuracies and speeds ahead: each from what is known of the job, made when that changes."""

from typing import Any

import numpy as np
import pytest

from policies.snapshot import Curves, Jobs
from predictors.forecast import LEVELS, Fan, Forecast, Forecasts
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from slurmplug.forecasting.curve_fans import CurveFans, PredictedLosses
from slurmplug.forecasting.forecast_cache import CachePolicy, CurveForecasts, ForecastCache
from slurmplug.forecasting.forecaster import Forecaster
from tests.builders import NOW, jobs, nodes, snapshot

FALLING = [1.0, 0.6, 0.4, 0.3, 0.25]
RISING = [0.1, 0.4, 0.55, 0.63, 0.68]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """The length of each curve that the predictors were given, and what else."""
    calls: list[tuple[int, Any]] = []
    curve, loss = LearningCurvePredictor.predict_many, LossPredictor.predict_many

    def curves_ahead(self: Any, curves: Any, ats: Any, metas: Any = None) -> Forecast:
        calls.extend((len(each), meta) for each, meta in zip(curves, metas, strict=True))
        return curve(self, curves, ats, metas)

    def losses_ahead(self: Any, curves: Any, ahead: Any) -> Forecast:
        calls.extend((len(each), steps) for each, steps in zip(curves, ahead, strict=True))
        return loss(self, curves, ahead)

    monkeypatch.setattr(LearningCurvePredictor, "predict_many", curves_ahead)
    monkeypatch.setattr(LossPredictor, "predict_many", losses_ahead)
    return calls


def made() -> CurveFans:
    return CurveFans(LearningCurvePredictor(), PredictedLosses(LossPredictor("sublinear")))


class TestLosses:
    def test_begin_with_the_last_report_and_go_on_below_it(self) -> None:
        fan = made().losses(jobs(losses=[FALLING]))
        assert fan.at([0], 5).median.tolist() == [0.25]
        assert fan.at([0], 15).median[0] < 0.25
        assert fan.x[0].tolist() == [5, 6, 8, 15, 35, 105]

    def test_are_by_iteration_where_a_job_reports_every_tenth(self) -> None:
        of_jobs = jobs(losses=[FALLING])
        tenth = Curves(of_jobs.losses.iterations * 10, of_jobs.losses.values, of_jobs.losses.starts)
        fan = made().losses(jobs_with(of_jobs, losses=tenth))
        assert fan.x[0].tolist() == [50, 60, 80, 150, 350, 1050]

    def test_are_unknown_of_jobs_that_reported_none_or_what_is_beyond_belief(self) -> None:
        fan = made().losses(jobs(4, losses=[FALLING, [], [1.0, 1e200], [1.0, np.nan]]))
        assert fan.known.tolist() == [True, False, False, False]

    def test_are_made_again_only_when_a_job_reported(self, calls: list[Any]) -> None:
        fans = made()
        for curve in (FALLING, FALLING, [*FALLING, 0.2]):
            fans.losses(jobs(2, losses=[curve, RISING]))
        assert [length for length, _ in calls] == [5] * 10 + [6] * 5


class TestAccuracies:
    def test_go_from_the_last_report_to_the_end(self) -> None:
        fan = made().accuracies(jobs(accuracies=[RISING], max_iterations=65))
        assert fan.x[0].tolist() == [5, 15, 25, 35, 45, 55, 65]
        assert fan.at([0], 5).median.tolist() == [0.68]
        assert fan.at([0], 65).median[0] > 0.68

    def test_agree_with_the_final_value(self) -> None:
        of_jobs = jobs(accuracies=[RISING], max_iterations=65)
        result = Forecaster().forecast(snapshot(of_jobs), {"final", "accuracy"})
        assert result.accuracy.at([0], 65).median == pytest.approx(result.final.median)

    def test_are_unknown_without_a_curve_or_an_end(self) -> None:
        fan = made().accuracies(jobs(3, accuracies=[RISING, [], RISING], max_iterations=[np.nan, 9, 9]))
        assert fan.known.tolist() == [False, False, True]

    def test_stay_where_they_are_after_the_end(self, calls: list[Any]) -> None:
        fan = made().accuracies(jobs(accuracies=[RISING], max_iterations=5))
        assert fan.at([0], 99).median.tolist() == [0.68]
        assert calls == []

    def test_use_what_is_known_of_the_job_at_its_start(self, calls: list[Any]) -> None:
        made().accuracies(jobs(accuracies=[RISING], max_iterations=65, kind="mlp", name="run7"))
        assert calls[0] == (5, {"type": "mlp", "name": "run7"})


def jobs_with(of_jobs: Jobs, **columns: Any) -> Jobs:
    return Jobs(**{**vars(of_jobs), **columns})


class TestForecastCache:
    made: list[str]

    def fan(self, cache: ForecastCache, inputs: dict[str, int], contents: dict[str, str] | None = None) -> Fan:
        """Fans whose value is the input that they were made from."""
        keys = list(inputs)
        self.made = []

        def make(due: Any) -> CurveForecasts:
            values = np.array([inputs[keys[i]] for i in due], dtype=float)
            self.made = [keys[i] for i in due]
            table = Forecast.certain(np.repeat(values, 2), "test").table.reshape(len(due), 2, -1)
            return CurveForecasts(np.tile([1.0, 2.0], (len(due), 1)), table, np.full(len(due), "test"))

        columns = np.array(list(inputs.values()), dtype=float)[:, None]
        return cache.fan(keys, np.arange(len(keys)), columns, make, lambda i: (contents or {})[keys[i]])

    def test_new_ones_come_first_and_the_others_in_turn(self) -> None:
        cache = ForecastCache(2, CachePolicy(most=2))
        self.fan(cache, {"a": 1, "b": 1})
        turns = []
        for now in (2, 3, 4):
            fan = self.fan(cache, {"a": now, "b": now, "c": 1, "d": now} if now > 2 else {"a": 2, "b": 2, "c": 1})
            turns.append(self.made)
        assert turns == [["a", "c"], ["b", "d"], ["a", "b"]]
        assert fan.at([0, 1, 2, 3], 1).median.tolist() == [4, 4, 1, 3]

    def test_what_there_was_no_time_for_is_unknown(self) -> None:
        assert self.fan(ForecastCache(2, CachePolicy(most=1)), {"a": 1, "b": 1}).known.tolist() == [True, False]

    def test_jobs_that_went_are_forgotten(self) -> None:
        cache = ForecastCache(2, CachePolicy())
        self.fan(cache, {"a": 1, "b": 1})
        self.fan(cache, {"b": 1})
        assert self.made == []
        self.fan(cache, {"a": 1, "b": 1})
        assert self.made == ["a"]

    def test_by_growth_a_curve_is_forecast_again_when_it_is_a_tenth_longer_or_shorter_than_it_was(self) -> None:
        cache, made = ForecastCache(2, CachePolicy(growth=1.1)), []
        for points in (1, 2, 3, 29, 30, 31, 32, 20, 20):
            fan = self.fan(cache, {"a": points})
            made.append(bool(self.made))
        assert made == [True, True, True, True, False, False, True, True, False]
        assert fan.at([0], 1).median.tolist() == [20]

    def test_equal_curves_share_one_forecast_also_after_the_first_job_went(self) -> None:
        cache, content = ForecastCache(2, CachePolicy(shared={})), {"a": "x", "b": "x", "c": "y", "d": "x"}
        self.fan(cache, {"a": 1, "b": 1, "c": 2}, content)
        assert len(self.made) == 2
        assert self.fan(cache, {"c": 2, "d": 1}, content).at([0, 1], 1).median.tolist() == [2, 1]
        assert self.made == []

    def test_the_fan_is_the_same_object_where_nothing_changed(self) -> None:
        cache, keys = ForecastCache(1, CachePolicy()), ("a", "b")

        def fan(rows: list[int], value: float) -> Fan:
            made = CurveForecasts(
                np.ones((len(rows), 1)), np.ones((len(rows), 1, len(LEVELS))), np.full(len(rows), "t")
            )
            return cache.fan(keys, np.array(rows), np.full((len(rows), 1), value), lambda due: made)

        first = fan([0], 1.0)
        assert fan([0], 1.0) is first
        assert fan([0], 2.0) is not first
        assert fan([1], 2.0).known.tolist() == [False, True]


class Taught(LearningCurvePredictor):
    """A predictor that was taught that all curves end at 0.99."""

    def predict_many(self, curves: Any, ats: Any, metas: Any = None) -> Forecast:
        return Forecast.certain([0.99] * len(curves), "taught")


@pytest.mark.parametrize(
    ("taught_by", "taught"),
    [
        ({"ada"}, [True, False]),
        ({"eve"}, [False, False]),
        ({"eve", "ada"}, [True, False]),
        ({"eve", "kim", "joe"}, [True, True]),
        (None, [True, True]),
    ],
)
def test_the_curves_of_few_users_forecast_their_own_jobs_only(taught_by: Any, taught: list[bool]) -> None:
    of_jobs = jobs(2, user=["ada", "bob"], accuracies=[[0.1, 0.2, 0.3]] * 2, max_iterations=[9, 9])
    fans = CurveFans(Taught(), PredictedLosses(LossPredictor("sublinear")), taught_by=taught_by)
    assert (fans.finals(of_jobs).source == "taught").tolist() == taught
    assert [source == "taught" for source in fans.accuracies(of_jobs).source.tolist()] == taught


def training(n: int = 1, on: Any = ((0, 0, 2),), **columns: Any) -> Any:
    given = {"state": "running", "started": NOW - 1000.0, "iteration": 9, "gpus": 2, "gpus_max": 8, **columns}
    return snapshot(jobs(n, **given), nodes(4), runs_on=np.array(on, dtype=np.int64))


def test_what_is_not_needed_is_unknown() -> None:
    current = training(iteration_time=0.5, losses=[FALLING], accuracies=[RISING], max_iterations=65)
    result: Forecasts = Forecaster().forecast(current, frozenset({"speed", "rigid speed"}))
    assert result.speed.known.all()
    assert not result.loss.known.any()
    assert not result.accuracy.known.any()

"""The trials: what is hidden from whom, what is counted, and what the simple methods do."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimeModel
from predictors.scoring import ScoreRow
from predictors.trials import curves, loss, optstop, runtime, speed
from predictors.trials.curves import FinishedCurve
from predictors.trials.optstop import WatchedRun


def ticks() -> Callable[[], int]:
    """A clock that advances one second at each call."""
    return count().__next__


def rising(n: int, points: int = 30, group: str = "", seed: int = 0) -> list[FinishedCurve]:
    random = np.random.default_rng(seed)
    x = np.arange(1.0, points + 1)
    return [
        FinishedCurve(top - drop * x**-power + random.normal(0, 0.003, points), group)
        for top, drop, power in zip(
            random.uniform(0.6, 0.9, n), random.uniform(0.2, 0.5, n), random.uniform(0.5, 1.5, n), strict=True
        )
    ]


def scored(lines: list[ScoreRow], part: str, method: str) -> dict[str, float]:
    return next(dict(line.scores) for line in lines if line.part == part and line.method == method)


class TestCurves:
    def test_five_points_are_seen_of_a_short_curve_and_the_share_of_a_long_one(self) -> None:
        assert len(FinishedCurve(np.zeros(12)).observed(0.25)) == 5
        assert len(FinishedCurve(np.zeros(100)).observed(0.25)) == 25

    def test_a_power_law_is_continued(self) -> None:
        x = np.arange(1.0, 11)
        assert curves.power_law(0.9 - 0.4 * x**-0.7, 100) == pytest.approx(0.9 - 0.4 * 100**-0.7, abs=0.005)

    def test_a_curve_that_falls_is_not_continued_upwards(self) -> None:
        assert curves.power_law(np.linspace(0.9, 0.5, 10), 100) <= 0.9

    def test_the_last_value_is_off_by_what_is_still_gained(self) -> None:
        runs = [FinishedCurve(np.linspace(0.0, 1.0, 21)) for _ in range(4)]
        lines = curves.trial(runs, 0.5, ticks())
        assert scored(lines, "cold", "last value")["mae"] == pytest.approx(1.0 - runs[0].observed(0.5)[-1])

    def test_no_history_holds_what_it_is_tested_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[tuple[bytes, set[bytes]]] = []

        class Spy(LearningCurvePredictor):
            def fit(self, curves: Any, meta: Any = None) -> LearningCurvePredictor:
                self.fitted_on = {curve.tobytes() for curve in curves}
                return super().fit(curves, meta)

            def predict_many(self, curves: Any, ats: Any, metas: Any = None) -> Forecast:
                seen.extend((curve.tobytes(), self.fitted_on) for curve in curves)
                return super().predict_many(curves, ats, metas)

        monkeypatch.setattr(curves, "LearningCurvePredictor", Spy)
        runs = [*rising(6, group="a"), *rising(6, group="b", seed=1)]
        curves.trial(runs, 0.5, ticks())
        assert len(seen) > 12
        assert not any(known.startswith(part) for part, fitted_on in seen for known in fitted_on)

    def test_a_group_unseen_is_one_of_several(self) -> None:
        one = curves.trial(rising(6, group="a"), 0.5, ticks())
        assert {line.part for line in one} == {"with history", "cold"}

    def test_milliseconds_are_those_of_the_clock_over_the_curves(self) -> None:
        runs = rising(10)
        lines = curves.trial(runs, 0.5, ticks(), history=rising(4, seed=1))
        assert scored(lines, "cold", "learning curve")["ms"] == pytest.approx(1e3 / 10)

    def test_curves_that_are_too_short_cannot_be_tried(self) -> None:
        with pytest.raises(ValueError, match="fewer than two curves"):
            curves.trial([FinishedCurve(np.zeros(5))] * 3, 0.25, ticks())


class TestOptStop:
    @staticmethod
    def watched(*ends: float, uncertain: tuple[float, ...] = ()) -> list[WatchedRun]:
        """Runs of ten epochs, of which it is soon known how they end, save those in doubt."""
        return [
            WatchedRun(
                np.linspace(0, end, 10), Forecast.normal(np.full(5, end), 0.2 if end in uncertain else 1e-3, "test")
            )
            for end in ends
        ]

    def test_a_run_that_cannot_be_best_is_stopped_at_once_and_the_best_is_not(self) -> None:
        used = list(optstop.optstop(self.watched(0.5, 0.4, 0.9, 0.6), np.arange(4), 0.05))
        assert used == [10, 5, 10, 5]

    def test_a_run_in_doubt_goes_on(self) -> None:
        used = list(optstop.optstop(self.watched(0.5, 0.4, uncertain=(0.4,)), np.arange(2), 0.05))
        assert used == [10, 10]

    def test_a_threshold_of_nothing_stops_nothing(self) -> None:
        assert list(optstop.optstop(self.watched(0.9, 0.1), np.arange(2), 0.0)) == [10, 10]

    def test_a_greater_risk_gives_a_higher_threshold(self) -> None:
        history = [*rising(40, points=16, group="a"), *rising(40, points=16, group="b", seed=1)]
        assert 0 < optstop.safe_threshold(history, 0.05) < optstop.safe_threshold(history, 0.5) < 1

    def test_a_run_that_seldom_ends_best_lowers_the_threshold_as_one_that_often_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        history = rising(40)
        uncertain_run = sorted(history, key=lambda run: run.values[-1])[-5]

        def watch(runs: list[FinishedCurve], predictor: Any) -> list[WatchedRun]:
            predicted = [
                Forecast.normal([run.values[-1] - 0.1 * (run is uncertain_run)] * 3, 0.05, "test") for run in runs
            ]
            return [WatchedRun(run.values, forecast) for run, forecast in zip(runs, predicted, strict=True)]

        monkeypatch.setattr(optstop, "watch", watch)
        assert optstop.safe_threshold(history, 0.05) == pytest.approx(0.023, abs=0.002)
        assert optstop.safe_threshold(history, 0.5) == pytest.approx(0.5, abs=0.01)

    def test_a_history_too_short_for_the_risk_stops_nothing(self) -> None:
        assert optstop.safe_threshold(rising(10), 0.05) == 0.0

    def test_the_median_rule_waits_for_finished_runs(self) -> None:
        runs = self.watched(*np.linspace(0.9, 0.3, 7))
        assert list(optstop.median_rule(runs, np.arange(7))) == [10] * 5 + [5, 5]

    def test_successive_halving_keeps_the_best_third_of_a_rung(self) -> None:
        runs = self.watched(0.9, 0.8, 0.7, 0.95)
        assert list(optstop.successive_halving(runs, np.arange(4))) == [10, 3, 3, 10]

    def test_half_of_a_group_is_replayed_with_all_others_as_history(self) -> None:
        runs = [*rising(40, group="a"), *rising(5, group="b", seed=1)]
        (_, first, past), (_, second, _) = optstop.searches(runs)
        assert len(first) == len(second) == 20
        assert len(past) == 25
        assert not {id(run) for run in first} & {id(run) for run in [*past, *second]}

    def test_few_runs_are_no_search(self) -> None:
        with pytest.raises(ValueError, match="no group"):
            optstop.searches(rising(30))

    def test_doing_nothing_uses_everything_and_misses_nothing(self) -> None:
        lines = optstop.trial(rising(12), rising(20, seed=1), ticks(), orders=3)
        assert scored(lines, "", "none") | {"threshold": 0, "ms": 0} == {
            "epochs used": 1.0, "regret": 0.0, "best found": 1.0, "threshold": 0, "ms": 0,
        }  # fmt: skip


class TestLoss:
    def test_the_last_value_is_off_by_the_fall_to_come(self) -> None:
        fall = np.linspace(3.0, 1.0, 41)
        lines = loss.trial({"LogReg": [fall], "MLPC": [fall]}, ticks())
        assert scored(lines, "LogReg", "last value")["of the range"] == pytest.approx(10 / 40)
        assert {line.part for line in lines} == {"convex kinds", "all kinds", "LogReg", "MLPC"}

    def test_the_last_change_is_right_of_a_line_and_errs_more_the_further_a_curve_bends(self) -> None:
        line, bend = np.linspace(3.0, 1.0, 41), 1 / np.arange(1.0, 42.0)
        errors = []
        for ahead in loss.AHEAD:
            lines = loss.trial({"LogReg": [line], "SVM": [bend]}, ticks(), ahead)
            assert scored(lines, "LogReg", "last change")["of the value"] == pytest.approx(0, abs=1e-9)
            errors.append(scored(lines, "SVM", "last change")["of the value"])
        assert errors == sorted(errors)

    def test_a_mean_over_kinds_counts_them_alike(self) -> None:
        still, falling = np.array([*[1.0] * 25, 0.9]), np.linspace(3.0, 1.0, 41)
        lines = loss.trial({"LogReg": [still] * 9, "SVM": [falling]}, ticks())
        each = [scored(lines, kind, "last value")["of the range"] for kind in ("LogReg", "SVM")]
        assert scored(lines, "convex kinds", "last value")["of the range"] == pytest.approx(np.mean(each))

    def test_intervals_that_hold_what_comes_cover_it_and_simple_methods_have_none(self) -> None:
        smooth, jump = 1 / np.arange(1.0, 42.0), np.array([*np.linspace(3.0, 2.9, 40), *[90.0] * 4])
        lines = loss.trial({"LogReg": [smooth], "SVM": [jump]}, ticks())
        assert scored(lines, "LogReg", "auto")["covers 90%"] == 1.0
        assert scored(lines, "SVM", "auto")["covers 90%"] == 21 / 25, "of 25 forecasts, 4 are of what nobody can know"
        assert np.isnan(scored(lines, "LogReg", "last value")["covers 90%"])

    def test_losses_too_short_to_look_ahead_cannot_be_tried(self) -> None:
        with pytest.raises(ValueError, match="no loss curve"):
            loss.trial({"SVM": [np.ones(19)]}, ticks())


class TestRuntime:
    @staticmethod
    def job(submit: int, run: float, user: str = "ada", limit: int = 3_600) -> dict[str, float | str]:
        return {"submit": float(submit), "end": float(submit + run), "user": user, "time_limit": float(limit)}

    def test_only_jobs_finished_by_then_are_known(self) -> None:
        jobs = [self.job(0, 100), self.job(50, 200), self.job(99, 10), self.job(100, 10), self.job(300, 10)]
        predicted = runtime.last_two(jobs, np.array([100.0, 200.0, 10.0, 10.0, 10.0]))
        assert np.isnan(predicted[:3]).all()
        assert predicted[3:].tolist() == [100.0, 105.0]

    def test_other_users_jobs_are_not_a_users_last_two(self) -> None:
        jobs = [self.job(0, 100, "ada"), self.job(200, 50, "bob")]
        assert np.isnan(runtime.last_two(jobs, np.array([100.0, 50.0]))[1])

    def test_the_request_is_scored_on_the_jobs_after_the_history(self) -> None:
        jobs = [self.job(1_000 * i, 600) for i in range(20)]
        lines = runtime.trial(jobs, np.full(20, 600.0), ticks(), earlier=15, models=())
        assert [(line.method, line.items) for line in lines] == [("request", 5), ("last two", 5)]
        assert lines[0].scores["mae s"] == 3_000
        assert lines[0].scores["min/max"] == pytest.approx(1 / 6)
        assert lines[1].scores["mae s"] == 0

    @pytest.mark.parametrize("model", ["stack", "svr"])
    def test_a_habit_is_learnt(self, model: RuntimeModel) -> None:
        random = np.random.default_rng(0)
        runs = random.choice([100.0, 2_000.0], 500)
        jobs = [self.job(4_000 * i, run, f"user of {run}") for i, run in enumerate(runs)]
        lines = runtime.trial(jobs, runs, ticks(), earlier=300, models=(model,))
        assert scored(lines, "", model)["min/max"] > 0.9

    def test_a_log_that_ends_with_its_history_cannot_be_tried(self) -> None:
        with pytest.raises(ValueError, match="no jobs"):
            runtime.trial([self.job(0, 1)], np.ones(1), ticks(), earlier=1)


class TestSpeed:
    @staticmethod
    def profile(times: np.ndarray | None = None) -> speed.Profile:
        gpus = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
        nodes = np.array([1.0, 1.0, 1.0, 2.0, 4.0])
        return speed.Profile("resnet", "v100", gpus, nodes, np.ones(5) if times is None else times)

    def test_where_steps_take_as_long_everywhere_the_nearest_is_right(self) -> None:
        lines = speed.trial([self.profile()], ticks())
        assert scored(lines, "from 3", "nearest")["error"] == 0
        assert scored(lines, "from 3", "measured speed")["error"] < 0.3

    def test_each_model_and_each_type_of_gpu_has_its_line(self) -> None:
        parts = {line.part for line in speed.trial([self.profile()], ticks())}
        assert {"from 1", "from 2: resnet", "from 3: v100"} <= parts

    def test_three_counts_leave_none_to_predict(self) -> None:
        one = self.profile()
        few = speed.Profile("m", "g", one.gpus[:3], one.nodes[:3], one.step_time[:3])
        with pytest.raises(ValueError, match="more than 3 counts"):
            speed.trial([few], ticks())

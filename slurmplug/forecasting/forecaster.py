"""Forecasts of the jobs of a snapshot: run times, final accuracies, accuracies and losses by iteration, speeds.

The daemon and the simulator use this one `Forecaster`. They differ in its parts: where run times are from, where losses
to come are from, and how often a curve's forecast is made again. The source of each number says what made it.
"""

from collections.abc import Collection, Set
from dataclasses import replace

import numpy as np

from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.runtime import RuntimePredictor
from predictors.speed import SpeedPredictor
from slurmplug.forecasting.curve_fans import CurveFans, LossSource, PredictedLosses
from slurmplug.forecasting.forecast_cache import EVERY_CHANGE, CachePolicies
from slurmplug.forecasting.run_times import HistoryRunTimes, RunTimes
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.speeds.speed_fans import GUESS, SpeedFans


class Forecaster:
    """The predictors in use; `use` replaces them between two cycles.

    By default those of a daemon without a history.
    """

    def __init__(
        self,
        run_times: RunTimes | None = None,
        losses: LossSource | None = None,
        caches: CachePolicies = EVERY_CHANGE,
    ) -> None:
        self._losses, self._caches = losses or PredictedLosses(), caches
        self._assemble(run_times or HistoryRunTimes(RuntimePredictor()), LearningCurvePredictor(), SeenSpeeds())

    def use(
        self,
        runtime: RuntimePredictor,
        curves: LearningCurvePredictor,
        speeds: SeenSpeeds | None = None,
        taught_by: Collection[str] | None = None,
    ) -> None:
        """Forecast with these predictors from now on, and forget the forecasts of the former.

        taught_by: the users on whose runs `curves` was fitted, as `CurveFans` has it.
        """
        self._assemble(HistoryRunTimes(runtime), curves, speeds or SeenSpeeds(), taught_by)

    def copy_of_seen_speeds(self) -> SeenSpeeds:
        """The step times of jobs as they were seen so far, for another thread to add to."""
        return SeenSpeeds.from_state(self._kind_paces.seen.state())

    def _assemble(
        self,
        run_times: RunTimes,
        curves: LearningCurvePredictor,
        speeds: SeenSpeeds,
        taught_by: Collection[str] | None = None,
    ) -> None:
        self._run_times, self._curves = run_times, curves
        self._curve_fans = CurveFans(curves, self._losses, self._caches, taught_by)
        self._kind_paces = KindPaces(speeds)
        self._speed_fans = SpeedFans(self._kind_paces)
        self._models: dict[Need, str] = {
            "total": run_times.version,
            "final": curves.version,
            "loss": self._losses.version,
            "speed": SpeedPredictor.version,
        }
        self._unknown = replace(Forecasts.unknown(0), models=self._models)

    def get_ready(self, needs: Set[Need] = frozenset({"final"})) -> None:
        """Make now what the first forecast would have to wait for, the longest for losses, if they are needed."""
        if needs & {"final", "accuracy"}:
            self._curves.predict(np.linspace(0.1, 0.5, 5), 10)
        if "loss" in needs:
            LossPredictor().predict(np.linspace(0.5, 0.1, 5), 10)

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        jobs, fans = snapshot.jobs, self._curve_fans
        if len(self._unknown.total) != len(jobs):
            self._unknown = replace(Forecasts.unknown(len(jobs)), models=self._models)
        unknown = self._unknown
        if not needs or not len(jobs):
            return unknown
        total, remaining, as_requested = unknown.total, unknown.remaining, unknown.total
        if needs & {"total", "remaining", "speed"}:
            self._kind_paces.begin(snapshot)
            total, remaining, as_requested = self._run_times.forecast(snapshot, needs, self._kind_paces)
        guess, rigid = GUESS if "guessed speed" in needs else 0.0, "rigid speed" in needs
        speed = (
            self._speed_fans.speeds(snapshot, as_requested, guess, rigid=rigid) if "speed" in needs else unknown.speed
        )
        return Forecasts(
            total=total,
            remaining=remaining,
            final=fans.finals(jobs) if "final" in needs else unknown.final,
            accuracy=fans.accuracies(jobs) if "accuracy" in needs else unknown.accuracy,
            loss=fans.losses(jobs) if "loss" in needs else unknown.loss,
            speed=speed,
            models=self._models,
        )

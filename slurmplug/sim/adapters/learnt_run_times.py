"""Run times of simulated jobs as a daemon forecasts them: learnt from the jobs that have ended in the simulation."""

from collections.abc import Set

import numpy as np

from policies.snapshot import Snapshot
from predictors.forecast import Need
from predictors.runtime import Job, RuntimePredictor
from slurmplug.forecasting.run_times import HistoryRunTimes, RunTimeForecasts, as_submitted
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.learning.schedule import MAX_RUNS, training_is_due
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.true_values import trainings


class LearntRunTimes:
    """Forecasts by jobs that completed before, trained again when a daemon would train.

    A job that a policy stopped, or that was requeued, teaches nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_history = HistoryRunTimes(RuntimePredictor())
        self._submitted: dict[int, Job] = {}
        """by training, what was known of each job when it was first seen"""
        self._runs, self._trained_at = 0, -np.inf

    @property
    def version(self) -> str:
        """The run-time predictor's."""
        return self._by_history.version

    def forecast(self, snapshot: Snapshot, needs: Set[Need], paces: KindPaces) -> RunTimeForecasts:
        """As `HistoryRunTimes.forecast`."""
        jobs = snapshot.jobs
        for row, training in enumerate(trainings(self._engine, jobs.keys).tolist()):
            if training not in self._submitted:
                self._submitted[training] = as_submitted(jobs, row, int(jobs.requested[row, 0]))
        self._train_when_due(snapshot.now)
        return self._by_history.forecast(snapshot, needs, paces)

    def _train_when_due(self, now: float) -> None:
        engine = self._engine
        ended = np.flatnonzero(~np.isnan(engine.ended))
        if not training_is_due(len(ended) - self._runs, len(ended), now - self._trained_at):
            return
        self._runs, self._trained_at = len(ended), now
        latest = ended[np.argsort(engine.ended[ended], kind="stable")][-MAX_RUNS:].tolist()
        runs = [training for training in latest if training in self._submitted and self._teaches(training)]
        if runs:
            jobs = [{**self._submitted[run], "end": float(engine.ended[run])} for run in runs]
            predictor = RuntimePredictor().fit(jobs, engine.ended[runs] - engine.first_started[runs])
            self._by_history = HistoryRunTimes(predictor)

    def _teaches(self, training: int) -> bool:
        log, rows = self._engine.logs[training], self._engine.table.rows_of(training)
        ran_once = not self._engine.restarts[rows.start : rows.stop].any()
        return log.state == "COMPLETED" and not log.stopped and ran_once

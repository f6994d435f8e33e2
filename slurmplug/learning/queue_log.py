"""The queue of a site as it was when each job of its log was submitted, and its forecast from there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast
from slurmplug.forecasting.run_times import OUTLIVED
from slurmplug.forecasting.starts.queue_history import QueueHistory, QueueState
from slurmplug.forecasting.starts.queues import Running, Waiting
from slurmplug.forecasting.starts.run_time_samples import SHORTEST, evenly, samples_of
from slurmplug.forecasting.starts.simulation import start_times
from slurmplug.learning.dataset_files import JobLog

SAMPLES = 50
"""of run times, of each queue"""
_AT_ONCE = 100
"""queues that are simulated together"""
_NO_LIMIT = 7 * 86_400.0
"""Seconds; the time limit of jobs in a log that states none."""


class QueueLog(QueueHistory):
    """The n jobs of a log with their waiting times, columns (n,) in order of submission; times are seconds.

    forecast: the run time of each, as it was made when the job was submitted.
    """

    def __init__(self, log: JobLog, forecast: Forecast) -> None:
        limit = np.array([job.get("time_limit") or np.nan for job in log.jobs], dtype=np.float64)
        longest = np.nanmax(limit) if np.isfinite(limit).any() else _NO_LIMIT
        limit = np.where(np.isnan(limit), longest, limit)
        submit = np.array([job["submit"] for job in log.jobs], dtype=np.float64)
        start = submit + log.waits
        super().__init__(
            submit=submit,
            start=start,
            end=start + log.runtimes,
            units=np.array([job["cpus"] for job in log.jobs], dtype=np.float64),
            limit=limit,
            expected=np.where(forecast.known, forecast.median, limit / 2),
            user=np.unique([str(job.get("user")) for job in log.jobs], return_inverse=True)[1],
        )
        self.forecast = forecast

    def simulated_waits(self, states: Sequence[QueueState], seed: int = 0) -> tuple[Floats, Floats]:
        """(n, samples) the waits of the n submitted jobs on forecast run times; (n,) on requested ones."""
        parts = [
            self._simulated(states[at : at + _AT_ONCE], np.random.default_rng([seed, at]))
            for at in range(0, len(states), _AT_ONCE)
        ]
        forecast, requested = zip(*parts, strict=True)
        return np.concatenate(forecast), np.concatenate(requested)

    def _simulated(self, states: Sequence[QueueState], random: np.random.Generator) -> tuple[Floats, Floats]:
        k, j = (max(len(getattr(state, name)) for state in states) for name in ("running", "waiting"))
        q = len(states)
        held, until, units, limit = np.zeros((q, k, 1)), np.ones((q, k)), np.zeros((q, j, 1)), np.ones((q, j))
        ends, seconds = np.ones((q, SAMPLES, k)), np.ones((q, SAMPLES, j))
        for at, state in enumerate(states):
            runs, waits = state.running, state.waiting
            held[at, : len(runs), 0], units[at, : len(waits), 0] = self.units[runs], self.units[waits]
            limit[at, : len(waits)] = self.limit[waits]
            elapsed = self.submit[state.row] - self.start[runs]
            until[at, : len(runs)] = np.maximum(self.limit[runs] - elapsed, SHORTEST)
            ends[at, :, : len(runs)] = self._drawn_remaining(runs, elapsed, random).T
            seconds[at, :, : len(waits)] = samples_of(self.forecast[waits], self.limit[waits], SAMPLES, random).T
        free = np.array([[self.processors(state) - self.units[state.running].sum()] for state in states])
        target = np.array([len(state.waiting) - 1 for state in states])
        every = np.arange(q)
        by_forecast = start_times(Running(held, ends, until), Waiting(units, seconds, limit), free, target=target)
        as_requested = start_times(
            Running(held, until[:, None], until), Waiting(units, limit[:, None], limit), free, target=target
        )
        return by_forecast[every, :, target], as_requested[every, 0, target]

    def _drawn_remaining(self, rows: Ints, elapsed: Floats, random: np.random.Generator) -> Floats:
        """(n, samples) seconds that running jobs have left; of one that has outlived its forecast anything up to its
        limit."""
        forecast, left = self.forecast[rows], np.maximum(self.limit[rows] - elapsed, SHORTEST)
        outlived = forecast.known & (elapsed > forecast.quantile(OUTLIVED))
        remaining = forecast.beyond(elapsed)
        drawn = samples_of(remaining, left, SAMPLES, random)
        return np.where(outlived[:, None], random.permuted(left[:, None] * evenly(SAMPLES), axis=1), drawn)

"""The queue of a site as it was when each job of its log was submitted, and its forecast from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast
from slurmplug.forecasting.queues import Running, Waiting
from slurmplug.forecasting.run_time_samples import SHORTEST, evenly, samples_of
from slurmplug.forecasting.run_times import OUTLIVED
from slurmplug.forecasting.starts import start_times
from slurmplug.learning.dataset_files import JobLog

SAMPLES = 50
"""of run times, of each queue"""
_AT_ONCE = 100
"""queues that are simulated together"""
_NO_LIMIT = 7 * 86_400.0
"""Seconds; the time limit of jobs in a log that states none."""
_LATEST_STARTS = 50
_DAY = 86_400.0
_ALIKE = 0.7
"""how far the logarithms of two sizes or limits are apart at most, for their jobs to be alike"""


@dataclass(frozen=True, eq=False)
class QueueState:
    """Rows of the log: which jobs ran and which waited, in order of submission, when the job `row` was submitted."""

    row: int
    running: Ints
    waiting: Ints


class QueueLog:
    """The n jobs of a log with their waiting times, columns (n,) in order of submission; times are seconds.

    forecast: the run time of each, as it was made when the job was submitted.
    """

    def __init__(self, log: JobLog, forecast: Forecast) -> None:
        self.forecast = forecast
        self.submit = np.array([job["submit"] for job in log.jobs], dtype=np.float64)
        self.wait = log.waits
        self.start = self.submit + log.waits
        self.end = self.start + log.runtimes
        self.units = np.array([job["cpus"] for job in log.jobs], dtype=np.float64)
        limit = np.array([job.get("time_limit") or np.nan for job in log.jobs], dtype=np.float64)
        longest = np.nanmax(limit) if np.isfinite(limit).any() else _NO_LIMIT
        self.limit = np.where(np.isnan(limit), longest, limit)
        self.user = np.unique([str(job.get("user")) for job in log.jobs], return_inverse=True)[1]
        self.expected = np.where(forecast.known, forecast.median, self.limit / 2)
        change = np.concatenate([-self.units, self.units])
        when = np.concatenate([self.end, self.start])
        order = np.lexsort((change, when))
        self._changes = when[order]
        self._most_used = np.maximum.accumulate(np.cumsum(change[order]))

    def state(self, row: int) -> QueueState:
        """The queue when that job was submitted."""
        now, earlier = self.submit[row], slice(0, row)
        started = self.start[earlier] <= now
        return QueueState(
            row, np.flatnonzero(started & (self.end[earlier] > now)), np.append(np.flatnonzero(~started), row)
        )

    def processors(self, state: QueueState) -> float:
        """As many as there are, as far as the log has shown: the most that were ever in use by then, or asked for."""
        at = int(np.searchsorted(self._changes, self.submit[state.row], side="right")) - 1
        most = float(self._most_used[at]) if at >= 0 else 0.0
        return max(most, float(self.units[state.waiting].max()))

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

    def features(self, state: QueueState) -> list[float]:
        """What a learnt model is told of the job and of the queue, as in Brown et al. 2022: its request and forecast,
        the hour and day, what runs and waits in all and of its user, and how long others waited."""
        row, runs, waits = state.row, state.running, state.waiting[:-1]
        now, units, limit, user = self.submit[row], self.units[row], self.limit[row], self.user[row]
        left = np.clip(self.expected[runs] - (now - self.start[runs]), 60.0, self.limit[runs])
        age = now - self.submit[waits]
        own_runs, own_waits = self.user[runs] == user, self.user[waits] == user
        started = np.flatnonzero(self.start[:row] <= now)
        started = started[np.argsort(self.start[started], kind="stable")]
        latest, own_latest = started[-_LATEST_STARTS:], started[self.user[started] == user][-5:]
        smaller = (self.units[waits] <= units) & (self.limit[waits] <= limit)
        alike, alike_latest = self._alike(waits, row), latest[self._alike(latest, row)]
        return [
            units, limit, self.expected[row], now % _DAY, now // _DAY % 7, self.processors(state),
            len(waits), self.units[waits].sum(), self.units[waits] @ self.expected[waits],
            self.units[waits] @ self.limit[waits], len(runs), self.units[runs].sum(), self.units[runs] @ left,
            self.units[runs] @ np.maximum(self.limit[runs] - (now - self.start[runs]), 0.0),
            own_waits.sum(), self.units[waits][own_waits].sum(),
            self.units[waits][own_waits] @ self.expected[waits][own_waits], own_runs.sum(),
            self.units[runs][own_runs].sum(), self.units[runs][own_runs] @ left[own_runs],
            *_spread(left[own_runs]), *_spread(age), *_spread(age[own_waits]), *_spread(age[smaller]), smaller.sum(),
            *_spread(age[alike]), alike.sum(), *_spread(self.wait[latest]), *_spread(self.wait[own_latest]),
            *_spread(self.wait[alike_latest]), *_spread(now - self.start[own_latest]),
            self.units[waits][self.units[waits] * self.limit[waits] < units * limit].sum(),
        ]  # fmt: skip

    def _alike(self, rows: Ints, row: int) -> Bools:
        """(n,) whether these jobs request about as much, and for about as long, as that one."""
        close = [
            np.abs(np.log(np.maximum(column[rows], 1.0) / max(float(column[row]), 1.0))) < _ALIKE
            for column in (self.units, self.limit)
        ]
        return np.asarray(close[0] & close[1])


def _spread(values: Floats) -> tuple[float, float, float]:
    """The last, the mean and the greatest; NaN, which trees know, where there is none."""
    if not len(values):
        return (np.nan, np.nan, np.nan)
    return float(values[-1]), float(values.mean()), float(values.max())

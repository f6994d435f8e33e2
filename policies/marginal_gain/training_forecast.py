"""Forecasts of each job's loss by number of GPUs and time (SLAQ, sections 4.1 and 4.2).

Arrays are over m candidate jobs; queries are for r of them and c numbers of GPUs each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.marginal_gain.speeds import MEDIAN, interpolated
from policies.snapshot import Curves, Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecasts

MIN_REPORTS = 5
"""reports of the loss before its forecast is used: with fewer, half of the curves are continued flat"""
HALF_LIFE = 5.0
"""iterations to half of the loss without a forecast: an O(1/k) curve that falls by six times its first change"""


@dataclass(frozen=True, eq=False)
class TrainingForecast:
    """The training state of m jobs, with their speed by GPUs and their loss by iteration.

    at: iterations done by now. last: the maximum of iterations. speed_at, speed (m, k): numbers of GPUs and iterations
    a second, not falling; NaN where unknown. pace: iterations a second per GPU where the speed is unknown. loss_at,
    losses (m, j): iterations and the loss there, not rising. largest: the largest fall of the loss in one iteration so
    far. first, lowest: the loss at the start, and at the end of the forecast.
    """

    at: Floats
    last: Floats
    speed_at: Floats
    speed: Floats
    pace: Floats
    loss_at: Floats
    losses: Floats
    largest: Floats
    first: Floats
    lowest: Floats

    def rate(self, some: Ints, gpus: Floats) -> Floats:
        """(r, c) iterations a second of the jobs `some` (r,) on `gpus` (r, c).

        Between two forecasts the rate is linear in the GPUs, as in a fan; below the first it is proportional to them.
        """
        grid, speed = self.speed_at[some], self.speed[some]
        below = np.minimum(gpus / grid[:, :1], 1.0)
        known = interpolated(grid, speed, gpus) * below
        return np.asarray(np.where(np.isnan(speed[:, :1]), self.pace[some, None] * gpus, known))

    def loss(self, some: Ints, gpus: Floats, seconds: Floats) -> Floats:
        """(r, c) the loss of the jobs `some` (r,) after `seconds` (r, c) or (r, 1) more on `gpus` (r, c)."""
        reached = self.at[some, None] + self.rate(some, gpus) * np.maximum(seconds, 0.0)
        return interpolated(self.loss_at[some], self.losses[some], np.minimum(reached, self.last[some, None]))

    def now(self) -> Floats:
        """(m,) the loss at present."""
        return interpolated(self.loss_at, self.losses, self.at[:, None])[:, 0]

    @classmethod
    def of(cls, snapshot: Snapshot, forecasts: Forecasts, rows: Ints, held: Ints, epoch: float) -> TrainingForecast:
        """The forecast of these rows, which hold `held` (n,) GPUs; `epoch`: seconds an iteration where nothing is
        known."""
        jobs, now = snapshot.jobs, snapshot.now
        m = len(rows)
        speed_at, speed = _medians(forecasts.speed, rows)
        speed = np.maximum.accumulate(speed, axis=1)
        pace = _gpu_pace(snapshot, forecasts, rows, held, epoch)
        loss_at, losses = _medians(forecasts.loss, rows)
        losses = np.minimum.accumulate(losses, axis=1)
        reports = jobs.losses.lengths()[rows]
        unknown = ~np.isfinite(losses).all(axis=1) | ((reports > 0) & (reports < MIN_REPORTS))
        last = np.where(np.isnan(jobs.max_iterations[rows]), np.inf, jobs.max_iterations[rows])
        if unknown.any():
            loss_at, losses = _with_default_curves(loss_at, losses, unknown, jobs.iteration[rows])
        forecast = cls(
            at=jobs.iteration[rows],
            last=last,
            speed_at=speed_at,
            speed=speed,
            pace=pace,
            loss_at=loss_at,
            losses=losses,
            largest=np.ones(m),
            first=losses[:, 0],
            lowest=losses[:, -1],
        )
        return forecast._with_progress(jobs, rows, held, now)._with_history(jobs, rows, unknown)

    def _with_progress(self, jobs: Jobs, rows: Ints, held: Ints, now: float) -> TrainingForecast:
        """With the progress since the last report, at most one iteration, since the next one would be reported."""
        some = np.arange(len(rows))
        rate = self.rate(some, np.maximum(held[rows], 1).astype(np.float64)[:, None])[:, 0]
        since = np.where(held[rows] > 0, now - np.fmax(jobs.reported[rows], jobs.started[rows]), 0.0)
        done = np.clip(np.nan_to_num(since) * rate, 0.0, 1.0)
        return _replaced(self, at=np.minimum(self.at + done, self.last))

    def _with_history(self, jobs: Jobs, rows: Ints, unknown: np.ndarray) -> TrainingForecast:
        """With the largest fall of the loss and the first loss that the job reported, where its losses are known."""
        first, largest = _history(jobs.losses, rows)
        step = np.minimum(self.at + 1.0, self.last)[:, None]
        ahead = self.now() - interpolated(self.loss_at, self.losses, step)[:, 0]
        falls = ~unknown & (largest > 0)
        largest = np.where(falls, np.fmax(largest, ahead), np.where(unknown, 1.0 / (1.0 + HALF_LIFE), ahead))
        begun = np.where(unknown | np.isnan(first), self.losses[:, 0], np.fmax(first, self.losses[:, 0]))
        return _replaced(self, largest=np.maximum(largest, 1e-300), first=begun)


def _replaced(forecast: TrainingForecast, **columns: Floats) -> TrainingForecast:
    return TrainingForecast(**{**vars(forecast), **columns})


def _medians(fan: Fan, rows: Ints) -> tuple[Floats, Floats]:
    """x (m, k) and the medians there (m, k) of these rows; all of a row are NaN where one of them is unknown."""
    place = fan.index[rows]
    if not len(fan.x):
        return np.ones((len(rows), 1)), np.full((len(rows), 1), np.nan)
    medians = fan.table[:, :, MEDIAN][place]
    known = (place >= 0) & ~np.isnan(medians).any(axis=1)
    return fan.x[place], np.where(known[:, None], medians, np.nan)


def _gpu_pace(snapshot: Snapshot, forecasts: Forecasts, rows: Ints, held: Ints, epoch: float) -> Floats:
    """(m,) iterations a second per GPU, with a constant c S (4.2.1).

    As measured, by the GPU seconds until the last report, whatever the number of GPUs; else by the time of an
    iteration; else by the forecast run time; else one iteration in an epoch.
    """
    jobs = snapshot.jobs
    since = np.maximum(np.nan_to_num(snapshot.now - np.fmax(jobs.reported, jobs.started)), 0.0)
    since = np.minimum(since, snapshot.elapsed)  # of a suspension, when it was is not known
    requested = np.maximum(jobs.gpus[rows], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_work = jobs.iteration[rows] / np.maximum(jobs.attained - since * held, 0.0)[rows]
        by_time = 1.0 / (jobs.iteration_time[rows] * np.maximum(np.where(held > 0, held, jobs.gpus)[rows], 1))
        by_total = jobs.max_iterations[rows] / (forecasts.total.median[rows] * requested)
    pace = 1.0 / (epoch * requested)
    for better in (by_total, by_time, by_work):
        pace = np.where(np.isfinite(better) & (better > 0), better, pace)
    return pace


def _with_default_curves(loss_at: Floats, losses: Floats, unknown: np.ndarray, at: Floats) -> tuple[Floats, Floats]:
    """The curves, with an O(1/k) curve, the paper's first class, where no loss is forecast."""
    ahead = np.concatenate([[0.0], np.geomspace(1.0, 1e4, 24)])
    width = max(loss_at.shape[1], len(ahead))
    grid, values = (np.pad(a, ((0, 0), (0, width - a.shape[1])), mode="edge") for a in (loss_at, losses))
    short = width - loss_at.shape[1]
    if short:  # x rises along a row
        grid[:, -short:] += np.arange(1.0, short + 1.0)
    default = at[unknown, None] + np.pad(ahead, (0, width - len(ahead)), mode="linear_ramp", end_values=1e6)
    grid[unknown], values[unknown] = default, 1.0 / (1.0 + default / HALF_LIFE)
    return grid, values


def _history(losses: Curves, rows: Ints) -> tuple[Floats, Floats]:
    """(m,) the first loss of each row, NaN without one, and the largest fall in one iteration, 0 with less than two."""
    starts, ends = losses.starts[rows], losses.starts[rows + 1]
    first, largest = np.full(len(rows), np.nan), np.zeros(len(rows))
    some = ends > starts
    first[some] = losses.values[starts[some]]
    pairs = np.flatnonzero(ends - starts >= 2)
    if len(pairs):
        with np.errstate(divide="ignore", invalid="ignore"):
            falls = -np.diff(losses.values) / np.diff(losses.iterations)
        falls = np.append(np.nan_to_num(falls, nan=0.0, posinf=0.0, neginf=0.0), 0.0)
        bounds = np.stack([starts[pairs], ends[pairs] - 1], axis=1)
        order = np.argsort(bounds[:, 0], kind="stable")
        largest[pairs[order]] = np.maximum.reduceat(falls, bounds[order].ravel())[::2]
    return first, np.maximum(largest, 0.0)

"""How far the loss of each job falls on so many GPUs in so many seconds (SLAQ, sections 4.1 and 4.2).

Arrays over candidates: m jobs, each asked about c counts of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.marginal_gain.speeds import MEDIAN
from policies.snapshot import Curves, Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecasts

FEWEST = 5
"""reports of the loss from which on its forecast is believed: before, a curve is continued flat as often as not"""
HALF = 5.0
"""iterations to half of the loss, where nothing else is known: a curve of O(1/k) that falls by six first changes"""
_BLOCK = 1 << 18
"""numbers looked at together, so that they stay in the processor's cache"""


@dataclass(frozen=True, eq=False)
class TrainingForecast:
    """What is known of m jobs: where each is, how fast it trains and how its loss goes on.

    at: iterations done by now. last: the iteration it ends at. speed_at, speed (m, k): iterations a second by GPUs,
    rising; NaN where unknown. pace: iterations a second of each GPU where the speed is unknown. loss_at, losses (m, j):
    loss by iteration, not rising. largest: the largest fall of the loss in one iteration so far. first, lowest: the
    loss at the start and as far as it is forecast.
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
        """(r, c) iterations a second of `some` (r,) of the jobs on `gpus` (r, c).

        Between two forecasts the rate is linear in the GPUs, as a fan is; below the first in proportion.
        """
        grid, speed = self.speed_at[some], self.speed[some]
        below = np.minimum(gpus / grid[:, :1], 1.0)
        known = _interpolated(grid, speed, gpus) * below
        return np.asarray(np.where(np.isnan(speed[:, :1]), self.pace[some, None] * gpus, known))

    def loss(self, some: Ints, gpus: Floats, seconds: Floats) -> Floats:
        """(r, c) the loss after so many more `seconds` (r, c), or (r, 1), on so many GPUs."""
        reached = self.at[some, None] + self.rate(some, gpus) * np.maximum(seconds, 0.0)
        return _interpolated(self.loss_at[some], self.losses[some], np.minimum(reached, self.last[some, None]))

    def now(self) -> Floats:
        """(m,) the loss at present."""
        return _interpolated(self.loss_at, self.losses, self.at[:, None])[:, 0]

    @classmethod
    def of(cls, snapshot: Snapshot, forecasts: Forecasts, rows: Ints, held: Ints, epoch: float) -> TrainingForecast:
        """Of these rows, holding `held` (n,) GPUs; an iteration is guessed at `epoch` seconds where nothing tells."""
        jobs, now = snapshot.jobs, snapshot.now
        m = len(rows)
        speed_at, speed = _medians(forecasts.speed, rows)
        speed = np.maximum.accumulate(speed, axis=1)
        pace = _pace(snapshot, forecasts, rows, held, epoch)
        loss_at, losses = _medians(forecasts.loss, rows)
        losses = np.minimum.accumulate(losses, axis=1)
        told = jobs.losses.lengths()[rows]
        unknown = np.isnan(losses[:, 0]) | ((told > 0) & (told < FEWEST))
        last = np.where(np.isnan(jobs.max_iterations[rows]), np.inf, jobs.max_iterations[rows])
        if unknown.any():
            loss_at, losses = _with_guessed(loss_at, losses, unknown, jobs.iteration[rows])
        outlook = cls(
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
        return outlook._since(jobs, rows, held, now)._seen(jobs, rows, unknown)

    def _since(self, jobs: Jobs, rows: Ints, held: Ints, now: float) -> TrainingForecast:
        """With what was done since the last report: less than one more iteration, or it would have told."""
        some = np.arange(len(rows))
        rate = self.rate(some, np.maximum(held[rows], 1).astype(np.float64)[:, None])[:, 0]
        since = np.where(held[rows] > 0, now - np.fmax(jobs.reported[rows], jobs.started[rows]), 0.0)
        done = np.clip(np.nan_to_num(since) * rate, 0.0, 1.0)
        return _replaced(self, at=np.minimum(self.at + done, self.last))

    def _seen(self, jobs: Jobs, rows: Ints, unknown: np.ndarray) -> TrainingForecast:
        """With the largest fall and the first loss that the job reported, where its losses are known."""
        first, largest = _history(jobs.losses, rows)
        step = np.minimum(self.at + 1.0, self.last)[:, None]
        ahead = self.now() - _interpolated(self.loss_at, self.losses, step)[:, 0]
        told = ~unknown & (largest > 0)
        largest = np.where(told, np.fmax(largest, ahead), np.where(unknown, 1.0 / (1.0 + HALF), ahead))
        begun = np.where(unknown | np.isnan(first), self.losses[:, 0], np.fmax(first, self.losses[:, 0]))
        return _replaced(self, largest=np.maximum(largest, 1e-300), first=begun)


def _replaced(outlook: TrainingForecast, **columns: Floats) -> TrainingForecast:
    return TrainingForecast(**{**vars(outlook), **columns})


def _medians(fan: Fan, rows: Ints) -> tuple[Floats, Floats]:
    """x (m, k) and the medians there (m, k) of these rows; NaN medians where nothing is known."""
    place = fan.index[rows]
    if not len(fan.x):
        return np.ones((len(rows), 1)), np.full((len(rows), 1), np.nan)
    medians = fan.table[:, :, MEDIAN]
    return fan.x[place], np.where((place >= 0)[:, None], medians[place], np.nan)


def _pace(snapshot: Snapshot, forecasts: Forecasts, rows: Ints, held: Ints, epoch: float) -> Floats:
    """(m,) iterations a second of each GPU, c S being constant (4.2.1).

    As measured, by the GPU seconds until the last report, however many GPUs the job had; else by the run time forecast;
    else one iteration in an epoch.
    """
    jobs = snapshot.jobs
    since = np.maximum(np.nan_to_num(snapshot.now - np.fmax(jobs.reported, jobs.started)), 0.0)
    asked = np.maximum(jobs.gpus[rows], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_work = jobs.iteration[rows] / np.maximum(jobs.attained - since * held, 0.0)[rows]
        by_time = 1.0 / (jobs.iteration_time[rows] * np.maximum(np.where(held > 0, held, jobs.gpus)[rows], 1))
        by_total = jobs.max_iterations[rows] / (forecasts.total.median[rows] * asked)
    pace = 1.0 / (epoch * asked)
    for told in (by_total, by_time, by_work):
        pace = np.where(np.isfinite(told) & (told > 0), told, pace)
    return pace


def _with_guessed(loss_at: Floats, losses: Floats, unknown: np.ndarray, at: Floats) -> tuple[Floats, Floats]:
    """Where no loss is forecast it is taken to fall as the paper's first class, O(1/k), as far as is looked at."""
    ahead = np.concatenate([[0.0], np.geomspace(1.0, 1e4, 24)])
    width = max(loss_at.shape[1], len(ahead))
    grid, values = (np.pad(a, ((0, 0), (0, width - a.shape[1])), mode="edge") for a in (loss_at, losses))
    short = width - loss_at.shape[1]
    if short:  # x rises along a row
        grid[:, -short:] += np.arange(1.0, short + 1.0)
    guessed = at[unknown, None] + np.pad(ahead, (0, width - len(ahead)), mode="linear_ramp", end_values=1e6)
    grid[unknown], values[unknown] = guessed, 1.0 / (1.0 + guessed / HALF)
    return grid, values


def _history(losses: Curves, rows: Ints) -> tuple[Floats, Floats]:
    """(m,) the first loss of each row, NaN without one, and the largest fall in one iteration, 0 without two."""
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


def _interpolated(grid: Floats, values: Floats, x: Floats) -> Floats:
    """(r, c) rows of `values` (r, k) at x (r, c), linear between the points of `grid` (r, k) and flat outside."""
    r, k = grid.shape
    if k == 1:
        return np.broadcast_to(values, x.shape)
    out = np.empty(x.shape)
    step = max(1, _BLOCK // max(1, x.shape[1] * k))
    for at in range(0, r, step):
        part = slice(at, at + step)
        g, v, points = grid[part], values[part], x[part]
        column = np.zeros(points.shape, dtype=np.int64)
        for j in range(1, k - 1):
            column += g[:, j : j + 1] <= points
        each = np.arange(len(g))[:, None]
        slope = np.diff(v, axis=1) / np.diff(g, axis=1)
        inside = np.clip(points, g[:, :1], g[:, -1:])
        out[part] = v[each, column] + slope[each, column] * (inside - g[each, column])
    return out

"""When the jobs of a queue start and end: all of them at once, as `slurmplug estimate` does for one more."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts
from slurmplug.cluster.limits import Limits
from slurmplug.forecasting.starts.live_queue import NO_LIMIT, SAMPLES, LiveQueue
from slurmplug.forecasting.starts.start_outcomes import StartOutcomes, as_they_came, ends_of, median_and_interval

ALIKE = 100
"""Starts are corrected alike if their logarithms agree, rounded to multiples of 1 / ALIKE,"""
ALIKE_LIMITS = 4
"""and the logarithms of their time limits agree, rounded to multiples of 1 / ALIKE_LIMITS."""
AT_ONCE = 2_000_000
"""samples of ends that are in memory"""


@dataclass(frozen=True, eq=False)
class QueueForecast:
    """When n jobs that wait for room or a limit, or run, are forecast to start and end.

    Times are seconds since the epoch. Of three columns, the median and the ends of an 80% interval; infinite if later
    than all that was simulated, NaN where not known.

    at: when the queue was so. outcomes: how many starts that came true those of waiting jobs are corrected by; 0 where
    these are too few, and then they have no interval. waits: whether each waits. single: whether it waits as one job
    that has not run yet. start, end: (n, 3). in_time: the share of the samples that end by the `deadline`.
    """

    at: float
    outcomes: int
    keys: tuple[JobKey, ...]
    waits: Bools
    single: Bools
    start: Floats
    end: Floats
    deadline: Floats
    in_time: Floats


def queue_forecast(
    snapshot: Snapshot,
    forecasts: Forecasts,
    outcomes: StartOutcomes,
    *,
    limits: Limits | None = None,
    samples: int = SAMPLES,
) -> QueueForecast:
    """Forecast when a snapshot's jobs start and end; of an array that waits, its first element.

    forecasts: of the snapshot's jobs, `total` and `remaining`. limits: as of `LiveQueue`.
    """
    jobs, queue = snapshot.jobs, LiveQueue(snapshot, forecasts, limits=limits, samples=samples)
    waits, seconds = queue.starts(), queue.run_times()
    start, end = np.full((2, len(jobs), 3), np.nan)
    in_time = np.full(len(jobs), np.nan)
    told = 0

    def note_ends(rows: Ints, samples: Floats) -> None:
        end[rows] = median_and_interval(samples)
        in_time[rows] = (samples <= jobs.deadline[rows, None]).mean(axis=1)

    running = np.flatnonzero(~jobs.pending)
    note_ends(running, snapshot.now + seconds[running])
    waiting = np.flatnonzero(~np.isnan(waits[:, 0]))
    medians = median_and_interval(waits[waiting])[:, 0]
    limits_of = np.nan_to_num(jobs.time_limit[waiting], nan=NO_LIMIT)
    for places in _alike(medians, limits_of):
        rows, wait = waiting[places], waits[waiting[places]]
        of = medians[places]
        limit = float(limits_of[places[0]])
        ratios = outcomes.ratios(float(of[0]), limit) if np.isfinite(of[0]) else np.zeros(0)
        if len(ratios):
            told = len(ratios)
            wait = as_they_came(of, ratios)
        starts = snapshot.now + wait
        start[rows] = median_and_interval(starts)
        for part in _parts(len(rows), starts.shape[1] * samples):
            note_ends(rows[part], ends_of(starts[part], seconds[rows[part]]))
    if not told:
        start[waiting, 1:], end[waiting, 1:] = np.nan, np.nan
    known = np.where(jobs.pending, forecasts.total.known, forecasts.remaining.known)
    end[~known], in_time[~known | np.isnan(jobs.deadline)] = np.nan, np.nan
    rows = np.sort(np.concatenate([running, waiting]))
    return QueueForecast(
        at=snapshot.now,
        outcomes=told,
        keys=tuple(jobs.keys[row] for row in rows.tolist()),
        waits=jobs.pending[rows],
        single=(jobs.pending & (jobs.elements == 1) & (jobs.restarts == 0))[rows],
        start=start[rows],
        end=end[rows],
        deadline=jobs.deadline[rows],
        in_time=in_time[rows],
    )


def _alike(medians: Floats, limits: Floats) -> Iterator[Ints]:
    """The places of those whose starts and time limits are about the same."""
    parts = np.round([np.log1p(medians) * ALIKE, np.log1p(limits) * ALIKE_LIMITS])
    _, of = np.unique(parts, axis=1, return_inverse=True)
    of = of.ravel()
    order = np.argsort(of, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(of[order])) + 1) if len(order) else ()


def _parts(rows: int, samples: int) -> Iterator[slice]:
    """Slices of so many rows, of which each has so many samples, that are not too many at once."""
    step = max(1, AT_ONCE // samples)
    yield from (slice(first, first + step) for first in range(0, rows, step))

"""When each simulated training reported its last iterations: a training reports each one that it has done."""

from math import floor
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.engine.run_log import ALMOST, RunLog

RECENT = 20
"""Reports whose times are kept of each training, as many as the time of an iteration is taken from."""


class LastReports:
    """The reports of each training until its progress last changed its pace; those since then follow from the pace."""

    def __init__(self, trainings: int) -> None:
        self.iteration: Floats = np.zeros(trainings)
        """the last iteration reported, 0 for none"""
        self.times: Floats = np.full((trainings, RECENT), np.nan)
        """(trainings, RECENT) when the iterations up to it were reported, the last one in the last column"""
        self._median_of: Floats = np.full((trainings, 3), np.nan)
        """(trainings, 3) the last iteration, whether it was reported at the present pace, and the time since when
        reports count, of which the median below was taken; NaN for none"""
        self._median: Floats = np.full(trainings, np.nan)

    def note(self, training: int, log: RunLog, since: tuple[float, float], rate: float, done: float) -> None:
        """Add what it reported at one pace, from a (time, iteration) on until it had done so many iterations.

        What it reports again counts as reported then only, as it took up from a checkpoint before that.
        """
        self._median_of[training] = np.nan
        time, iteration = since
        first, last = floor(iteration + ALMOST) + 1, floor(done + ALMOST)
        if last < first or not rate:
            return
        before = self.times[training]
        if first <= self.iteration[training]:
            older = [log.time_of(each) for each in range(max(1, first - RECENT), first)]
            before = np.append(np.full(RECENT - len(older), np.nan), older)
        times = time + (np.arange(max(first, last - RECENT + 1), last + 1) - iteration) / rate
        self.times[training] = np.append(before, times)[-RECENT:]
        self.iteration[training] = last

    def seen(self, trainings: Ints, pace: "TrainingPaces", since: Floats) -> "Seen":
        """What the last RECENT reports of each of these trainings (k,) say.

        since: (k,) reports from that time on count for the time of an iteration.
        """
        first, last, reported = pace.reports()
        before, before_time = self.iteration[trainings], self.times[trainings, -1]
        rate = np.where(reported, pace.rate, 1.0)
        iteration = np.where(reported, last, before)
        count = np.where(reported, last - first + 1, 0)
        even = (count >= RECENT) | ((count >= 2) & ~(before_time >= since))
        iteration_time = np.where(even, 1.0 / rate, np.nan)
        rows = np.flatnonzero(~even & (before + count >= 2))
        if len(rows):
            key = np.stack([iteration[rows], reported[rows], since[rows]], axis=1)
            iteration_time[rows] = self._median_steps(trainings[rows], pace, rows, key)
        time = np.where(reported, pace.time + (last - pace.iteration) / rate, before_time)
        return Seen(iteration, time, iteration_time)

    def _median_steps(self, trainings: Ints, pace: "TrainingPaces", rows: Ints, key: Floats) -> Floats:
        """(k,) the median step of these trainings, `rows` of the pace; computed again where the key changed."""
        changed = np.flatnonzero((self._median_of[trainings] != key).any(axis=1))
        found = self._median[trainings]
        if len(changed):
            of = trainings[changed]
            times = self._times(of, pace.of(rows[changed]))
            found[changed] = _median_step(np.where(times >= key[changed, 2:], times, np.nan))
            self._median_of[of], self._median[of] = key[changed], found[changed]
        return found

    def _times(self, trainings: Ints, pace: "TrainingPaces") -> Floats:
        """(k, RECENT) when the last iterations were reported, the last one in the last column; NaN where unknown."""
        first, last, going = pace.reports()
        before = self.iteration[trainings]
        last = np.where(going, last, before)
        at = last[:, None] + np.arange(1 - RECENT, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            fresh = pace.time[:, None] + (at - pace.iteration[:, None]) / pace.rate[:, None]
        column = (at - before[:, None] + RECENT - 1).astype(np.int64)
        times = np.take_along_axis(self.times[trainings], np.clip(column, 0, RECENT - 1), axis=1)
        times[(column < 0) | (column >= RECENT)] = np.nan
        return np.where(going[:, None] & (at >= first[:, None]), fresh, times)


class Seen(NamedTuple):
    """What trainings (k,) reported last: the iteration, 0 for none; when, NaN for none; and seconds an iteration.

    These are the median time between two reports, as `slurmplug.intake.columns` has it of a live job; NaN
    where fewer than two count.
    """

    iteration: Floats
    time: Floats
    iteration_time: Floats


class TrainingPaces(NamedTuple):
    """The progress of trainings (k,): from a time and an iteration on at a rate, until so many iterations are done."""

    time: Floats
    iteration: Floats
    rate: Floats
    done: Floats

    def of(self, rows: Ints) -> "TrainingPaces":
        """The paces of these rows."""
        return TrainingPaces(*(column[rows] for column in self))

    def reports(self) -> tuple[Floats, Floats, Bools]:
        """(k,) the first and the last iteration reported at this pace, and whether there is any."""
        first, last = np.floor(self.iteration + ALMOST) + 1, np.floor(self.done + ALMOST)
        return first, last, (self.rate > 0) & (last >= first)


def _median_step(times: Floats) -> Floats:
    """(k,) of (k, m) times, NaN where there is none; NaN for fewer than two in a row."""
    steps = np.sort(np.diff(times, axis=1), axis=1)
    count = (~np.isnan(steps)).sum(axis=1)
    middle = np.stack([np.maximum(count - 1, 0) // 2, count // 2], axis=1)
    return np.asarray(np.take_along_axis(steps, middle.clip(0, steps.shape[1] - 1), axis=1).mean(axis=1))

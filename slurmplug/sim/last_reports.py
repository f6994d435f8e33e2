"""When each simulated training reported its last iterations: a training reports each one that it has done."""

from math import floor
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.story import ALMOST, Story

RECENT = 20
"""Reports whose times are kept of each training, as many as the time of an iteration is taken from."""


class LastReports:
    """The reports of each training until its progress last changed its pace; those since then follow from the pace."""

    def __init__(self, trainings: int) -> None:
        self.iteration: Floats = np.zeros(trainings)
        """the last iteration reported, 0 for none"""
        self.times: Floats = np.full((trainings, RECENT), np.nan)
        """(trainings, RECENT) when the iterations up to it were reported, the last one in the last column"""

    def note(self, training: int, story: Story, since: tuple[float, float], rate: float, done: float) -> None:
        """Add what it reported at one pace, from a (time, iteration) on until it had done so many iterations.

        What it reports again counts as reported then only, as it took up from a checkpoint before that.
        """
        time, iteration = since
        first, last = floor(iteration + ALMOST) + 1, floor(done + ALMOST)
        if last < first or not rate:
            return
        before = self.times[training]
        if first <= self.iteration[training]:
            older = [story.time_of(each) for each in range(max(1, first - RECENT), first)]
            before = np.append(np.full(RECENT - len(older), np.nan), older)
        times = time + (np.arange(max(first, last - RECENT + 1), last + 1) - iteration) / rate
        self.times[training] = np.append(before, times)[-RECENT:]
        self.iteration[training] = last

    def until(self, trainings: Ints, pace: "Pace") -> tuple[Floats, Floats]:
        """(k,) the last iteration that each of these trainings has reported, 0 for none; (k,) when, NaN for none."""
        _, last, going = pace.reports()
        with np.errstate(divide="ignore", invalid="ignore"):
            times = pace.time + (last - pace.iteration) / pace.rate
        iteration = np.where(going, last, self.iteration[trainings])
        return iteration, np.where(going, times, self.times[trainings, -1])

    def iteration_times(self, trainings: Ints, pace: "Pace", since: Floats) -> Floats:
        """(k,) the median seconds between the reports, among the last RECENT, that were made since (k,) a time.

        NaN where fewer than two were. As `slurmplug.columns` has it of the reports of a live job.
        """
        first, last, going = pace.reports()
        count = np.where(going, last - first + 1, 0)
        even = (count >= RECENT) | ((count >= 2) & ~(self.times[trainings, -1] >= since))
        found = np.full(len(trainings), np.nan)
        found[even] = 1.0 / pace.rate[even]
        rows = np.flatnonzero(~even & (self.iteration[trainings] + count >= 2))
        if len(rows):
            times = self._times(trainings[rows], pace.of(rows))
            found[rows] = _median_step(np.where(times >= since[rows, None], times, np.nan))
        return found

    def _times(self, trainings: Ints, pace: "Pace") -> Floats:
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


class Pace(NamedTuple):
    """Of trainings (k,): from this time and iteration on at this rate, until so many iterations were done."""

    time: Floats
    iteration: Floats
    rate: Floats
    done: Floats

    def of(self, rows: Ints) -> "Pace":
        """Those of these rows."""
        return Pace(*(column[rows] for column in self))

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

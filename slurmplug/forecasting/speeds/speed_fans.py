"""Iterations per second by GPUs: how a job scales by its kind, at its own pace or that of its forecast run time."""

import operator
from bisect import bisect_left
from collections.abc import Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from policies.placement.allocation import elastic
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Floats
from predictors.forecast import LEVELS, Fan, Forecast
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.paces import Pace, Request, requests
from slurmplug.forecasting.speeds.seen_speeds import Steps, Whose
from slurmplug.forecasting.speeds.speed_tables import Table

_MEDIAN = len(LEVELS) // 2
GUESS = 0.01
"""How much of the rise in speed that is expected beyond what was seen counts for policies that guess: hardly any, but
more than nothing."""


class _Scaled(NamedTuple):
    """The speeds of a job: a table times a factor, seen up to so many GPUs, or the column of these."""

    table: Table
    factor: float
    seen_to: int
    source: str


class SpeedFans:
    """The speeds of the jobs in a snapshot by GPUs, on as few nodes as hold them.

    A job that trains or has trained goes by its own step times on all its placements. Another goes by its forecast run
    time on the GPUs that it asked for, and by how fast jobs of its kind were, each weighted by how well it tells the
    pace: jobs of a kind may be of very different sizes. How it scales from there follows from the ratios within jobs of
    its kind, and before any were seen from what may be expected of any job.

    Beyond the most GPUs that it asked for, or on which it or its kind was seen, no rise counts, or `GUESS` of what is
    expected: GPUs that are given on a guess are missed elsewhere, unless nobody else has a use for them.
    """

    def __init__(self, paces: KindPaces) -> None:
        self._paces, self._seen, self._tables = paces, paces.seen, paces.tables
        self._most: dict[Whose, int] = {}
        """in this cycle, the most GPUs on which a kind was seen"""
        self._latest: tuple[list[int], list[_Scaled], list[Floats], float, Fan] = [], [], [], 0.0, Fan.unknown(0)
        """the latest fan, and what it was made of"""

    def speeds(self, snapshot: Snapshot, as_requested: Forecast, guess: float = 0.0, *, rigid: bool = True) -> Fan:
        """A fan over GPUs up to the most that any job may have, of the jobs whose number of GPUs may change.

        as_requested (n,): run times in seconds on what jobs asked for. guess: how much counts of the rise that is
        expected beyond what was seen. rigid: whether of all managed jobs, also those whose number of GPUs may not
        change.

        Jobs of the same speeds share a row of it. The same object as in the cycle before where nothing changed.
        """
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        self._paces.begin(snapshot)
        wanted = jobs.managed if rigid else elastic(jobs)
        rows = np.flatnonzero(wanted & (jobs.gpus_max > 0) & (jobs.gpus > 0)).tolist()
        if not rows:
            return Fan.unknown(n)
        self._most, counts = {}, self._paces.counts
        request = requests(jobs, as_requested)
        kinds, keys, counted = self._paces.kinds(jobs), jobs.keys, counts.tolist()
        users = jobs.user.tolist()
        shared: dict[_Scaled, int] = {}
        index = [-1] * n
        for row in rows:
            key, whose = keys[row], kinds[row]
            asked = request(row)
            most = max(self._most_gpus(whose), asked.gpus)
            steps = self._seen.of_job(whose, key)
            scaled = (
                self._by_steps(whose, key, steps, most)
                if steps
                else self._by_request(whose, asked, most, self._paces.expected(whose, users[row], key, asked.gpus))
            )
            if scaled is not None:
                scaled = scaled._replace(seen_to=bisect_left(counted, scaled.seen_to))
                index[row] = shared.setdefault(scaled, len(shared))
        return self._fan(counts, index, list(shared), guess)

    def _by_steps(self, whose: Whose, key: JobKey, steps: Steps, most: int) -> _Scaled:
        """The speeds of a job that was seen on some placements, or may be believed up to the most GPUs."""
        most = max(most, *(place.gpus for place in steps))
        pace = 1.0 / next(reversed(steps.values()))
        return _Scaled(self._tables.of_job(whose, key, steps), pace, most, "measured speed")

    def _by_request(self, whose: Whose, asked: Request, most: int, others: Sequence[Pace]) -> _Scaled | None:
        """The speeds of another, by what is expected where it asked for GPUs, also by `others`; None where nothing
        is."""
        pace = asked.pace
        for other in others:
            pace = other.with_other(pace)
        if pace is None:
            return None
        table = self._tables.by_placement(whose, self._tables.tight(asked.gpus), pace.spread)
        return _Scaled(table, exp(-pace.log_step), most, "run time and scaling" if asked.pace else "kind and scaling")

    def _fan(self, counts: Floats, index: list[int], scaled: list[_Scaled], guess: float) -> Fan:
        """A fan of these scaled tables; index (n,): which of them each job has, -1 for none."""
        tables = [self._tables[each.table] for each in scaled]
        before_index, before_scaled, before_tables, before_guess, fan = self._latest
        same = (index, scaled, guess) == (before_index, before_scaled, before_guess)
        if same and all(map(operator.is_, tables, before_tables)):
            return fan
        if scaled:
            alike: dict[tuple[Table, int], int] = {}
            place = [alike.setdefault((each.table, each.seen_to), len(alike)) for each in scaled]
            made = np.stack([_hardly_beyond(self._tables[table], last, guess) for table, last in alike])[place]
            made *= np.array([each.factor for each in scaled])[:, None, None]
            x = np.tile(counts, (len(scaled), 1))
            fan = Fan(np.array(index), x, made, np.array([each.source for each in scaled]))
        else:
            fan = Fan.unknown(len(index))
        self._latest = index, scaled, tables, guess, fan
        return fan

    def _most_gpus(self, whose: Whose) -> int:
        if whose not in self._most:
            self._most[whose] = self._seen.most_gpus(whose)
        return self._most[whose]


def _hardly_beyond(table: Floats, last: int, guess: float) -> Floats:
    """The speeds (k, levels) of a table, of whose rise beyond the column `last` only so much counts."""
    seen = table[np.minimum(np.arange(len(table)), last)]
    rise = np.divide(table[:, _MEDIAN], seen[:, _MEDIAN], out=np.ones(len(table)), where=seen[:, _MEDIAN] > 0)
    return seen * (1.0 + guess * np.maximum(rise - 1.0, 0.0))[:, None]

"""Iterations per second by GPUs: how a job scales by its kind, at its own pace or that of its forecast run time."""

import operator
from collections.abc import Callable, Sequence
from math import log, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Fan, Forecast
from predictors.influence import pooled
from slurmplug.forecasting.seen_speeds import MAX_KINDS, SeenSpeeds, Whose, kind_of
from slurmplug.forecasting.speed_tables import SpeedTables, Table

UNLIKE = 0.7
"""Standard deviation of the logarithm of the pace of jobs of a kind of which one was seen: as of those drawn tenfold
apart."""
LEAST_SPREAD = 0.02
"""The same of the pace that follows from a forecast run time, at the least."""
_DEVIATIONS = 3.29
"""standard deviations of a normal distribution between its quantiles .05 and .95"""
_ROBUST = 1.4826
"""standard deviations of a normal distribution in its median absolute deviation"""


class Pace(NamedTuple):
    """The logarithm of seconds an iteration, and its standard deviation."""

    log_step: float
    spread: float

    def with_other(self, other: "Pace | None") -> "Pace":
        """The mean of two forecasts of one pace, weighted by their precision."""
        if other is None:
            return self
        mine, others = self.spread**-2, other.spread**-2
        mean = (mine * self.log_step + others * other.log_step) / (mine + others)
        return Pace(mean, (mine + others) ** -0.5)


class _Request(NamedTuple):
    """The GPUs that a job asked for, and its pace on them by its forecast run time, as far as that is known."""

    gpus: int
    pace: Pace | None


class _Scaled(NamedTuple):
    """The speeds of a job: a table times a factor, and flat from one of its columns on."""

    table: Table
    factor: float
    flat_from: int
    source: str


class SpeedFans:
    """The speeds of the jobs in a snapshot by GPUs, on as few nodes as hold them.

    A job that trains or has trained goes by its own step times on all its placements. Another goes by its forecast run
    time on the GPUs that it asked for, and by how fast jobs of its kind were, each weighted by how well it tells the
    pace: jobs of a kind may be of very different sizes. How it scales from there follows from the ratios within jobs of
    its kind, and before any were seen from what may be expected of any job.

    Beyond the most GPUs that it asked for, or on which it or its kind was seen, its speed is taken to rise no more:
    GPUs that are given on a guess are missed elsewhere.
    """

    def __init__(self, seen: SeenSpeeds) -> None:
        self._seen = seen
        self._tables = SpeedTables(seen)
        self._requests: dict[JobKey, _Request] = {}
        """of jobs that were seen pending, as they were first"""
        self._keys: tuple[JobKey, ...] = ()
        self._paces: dict[Whose, tuple[int, Pace | None]] = {}
        """the pace of a kind's jobs on one GPU, and what had changed of the kind when it was computed"""
        self._latest: tuple[list[int], list[_Scaled], list[Floats], Fan] = [], [], [], Fan.unknown(0)
        """the latest fan, and what it was made of"""

    def speeds(self, snapshot: Snapshot, total: Forecast) -> Fan:
        """A fan over GPUs up to the most that any job may have. total (n,): forecast run times in seconds.

        Jobs of the same speeds share a row of it. The same object as in the cycle before where nothing changed.
        """
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        self._seen.note(snapshot)
        rows = np.flatnonzero((jobs.gpus_max > 0) & (jobs.gpus > 0)).tolist()
        if not rows:
            return Fan.unknown(n)
        counts = grid(int(jobs.gpus_max.max()))
        self._tables.begin(counts, max(int(snapshot.nodes.capacity[:, 0].max(initial=0.0)), 1))
        request, pending = _requests(jobs, total), jobs.pending.tolist()
        self._note_requests(jobs, rows, request)
        kinds = self._kinds(jobs)
        shared: dict[_Scaled, int] = {}
        index = [-1] * n
        for row in rows:
            key, whose = jobs.keys[row], kinds[row]
            first = self._requests.get(key) or request(row)
            asked = request(row) if pending[row] else first
            steps = self._seen.of_job(whose, key)
            most = max(self._seen.most_gpus(whose), first.gpus, *(place.gpus for place in steps))
            flat_from = int(np.searchsorted(counts, most))
            if steps:
                table, step = self._tables.of_job(whose, key, steps), next(reversed(steps.values()))
                scaled = _Scaled(table, 1.0 / step, flat_from, "measured speed")
            elif (expected := self._expected(whose, asked)) is not None:
                table = self._tables.by_placement(whose, self._tables.tight(asked.gpus), expected.spread)
                source = "run time and scaling" if asked.pace else "measured speed"
                scaled = _Scaled(table, float(np.exp(-expected.log_step)), flat_from, source)
            else:
                continue
            index[row] = shared.setdefault(scaled, len(shared))
        return self._fan(counts, index, list(shared))

    def _fan(self, counts: Floats, index: list[int], scaled: list[_Scaled]) -> Fan:
        """A fan of these scaled tables; index (n,): which of them each job has, -1 for none."""
        tables = [self._tables[each.table] for each in scaled]
        before_index, before_scaled, before_tables, fan = self._latest
        if index == before_index and scaled == before_scaled and all(map(operator.is_, tables, before_tables)):
            return fan
        if scaled:
            x = np.tile(counts, (len(scaled), 1))
            factors = np.array([each.factor for each in scaled])[:, None, None]
            column = np.minimum(np.arange(len(counts)), np.array([each.flat_from for each in scaled])[:, None])
            table = np.take_along_axis(np.stack(tables), column[:, :, None], axis=1) * factors
            fan = Fan(np.array(index), x, table, np.array([each.source for each in scaled]))
        else:
            fan = Fan.unknown(len(index))
        self._latest = index, scaled, tables, fan
        return fan

    def _kinds(self, jobs: Jobs) -> list[Whose]:
        """(n,) the kind of each job, and by whose jobs of it the job goes."""
        users = jobs.user.tolist()
        kinds = map(kind_of, jobs.kind.tolist(), users, jobs.name.tolist())
        return list(map(self._seen.whose, kinds, users))

    def _note_requests(self, jobs: Jobs, rows: Sequence[int], request: Callable[[int], _Request]) -> None:
        """Remember what pending jobs ask for, as long as they are there: once they train they may have other GPUs."""
        if jobs.keys is self._keys:
            return
        self._keys = jobs.keys
        known, pending = self._requests, jobs.pending.tolist()
        self._requests = {key: known[key] for key in jobs.keys if key in known}
        for row in rows:
            if pending[row] and jobs.keys[row] not in known:
                self._requests[jobs.keys[row]] = request(row)

    def _expected(self, whose: Whose, asked: _Request) -> Pace | None:
        """The pace on the GPUs that a job asked for; None where nothing tells."""
        of_kind = self._pace_of_kind(whose)
        if of_kind is None:
            return asked.pace
        there = of_kind.log_step - log(self._tables.relative_speed(whose, asked.gpus))
        return Pace(there, of_kind.spread).with_other(asked.pace)

    def _pace_of_kind(self, whose: Whose) -> Pace | None:
        """The pace of the kind's jobs on one GPU; None where none was seen whose pace counts."""
        changes, _ = self._seen.events(whose.kind)
        before = self._paces.get(whose)
        if before is None or before[0] != changes:
            if len(self._paces) > MAX_KINDS:
                self._paces.clear()
            by_user = {
                user: [log(step * self._tables.relative_speed(whose, place.gpus)) for place, step in jobs]
                for user, jobs in self._seen.latest(whose).items()
            }
            paces = pooled(whose.user, by_user)
            before = self._paces[whose] = changes, _pooled_pace(paces) if paces else None
        return before[1]


def _pooled_pace(paces: Sequence[float]) -> Pace:
    """The pace of a further job, by logarithms of those of others: the less certain, the fewer and the less alike."""
    middle, n = median(paces), len(paces)
    scatter = _ROBUST * median(abs(pace - middle) for pace in paces)
    variance = (UNLIKE**2 + (n - 1) * scatter**2) / n
    return Pace(middle, sqrt(variance * (1.0 + 1.0 / n)))


def _requests(jobs: Jobs, total: Forecast) -> Callable[[int], _Request]:
    """What the job of a row asks for, by its forecast run time (n,) in seconds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_step = np.log(total.median / jobs.max_iterations)
        early, late = total.quantile([0.05, 0.95]).T
        spread = np.fmax(np.log(late / early) / _DEVIATIONS, LEAST_SPREAD)
    known = np.isfinite(log_step) & np.isfinite(spread)
    columns = [column.tolist() for column in (jobs.gpus, known, log_step, spread)]

    def of_row(row: int) -> _Request:
        gpus, knows, at, wide = (column[row] for column in columns)
        return _Request(gpus, Pace(at, wide) if knows else None)

    return of_row


def grid(most: int) -> Floats:
    """Counts of GPUs up to `most`, about a third apart: 1, 2, 3, 4, 6, 8, 12, ..."""
    powers = 2 ** np.arange(most.bit_length() + 1)
    counts = np.unique(np.concatenate([[1, most], powers, 3 * powers]))
    return counts[counts <= most].astype(np.float64)

"""New reports of a job: merged into the points of its record, thinned as the ledger stores them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from predictors.arrays import Ints
from slurmplug.intake.job_record import JobRecord, Point, carried_over, join_runs
from slurmplug.spool import report_lines
from slurmplug.spool.report_files import MERGE_COST
from slurmplug.spool.values import Points, RunId, SpoolFault

MUCH = 1.2
"""A run that costs so many times as much as usual is counted by itself."""
POINTS_PER_READING = 60
"""How many points of one quantity of a job are kept from one reading; more are thinned to these."""


class Merged(NamedTuple):
    """What the ledger has to store after a merge: new points, faults, and whether the job's own row changes, which has
    the last value of each quantity."""

    points: Sequence[Point]
    faults: Sequence[SpoolFault]
    changes_job: bool


class MergeCosts:
    """What it costs to merge another line into the points of a run, for the runs where that exceeds `MERGE_COST`."""

    def __init__(self, records: Mapping[int, JobRecord]) -> None:
        """`records`: by job id; the live mapping of the intake, looked up whenever costs are asked for."""
        self._records = records
        self._costly: set[int] = set()
        for record in records.values():
            self.note(record)

    def note(self, record: JobRecord) -> None:
        """Compute the cost of a job again, after its points have changed."""
        if cost(record.points) > MUCH * MERGE_COST:
            self._costly.add(record.facts.job_id)
        else:
            self._costly.discard(record.facts.job_id)

    def by_run(self) -> Mapping[RunId, float]:
        """The costs in microseconds of CPU time, for `ReportReader.read`."""
        self._costly &= self._records.keys()
        costly = [self._records[job_id] for job_id in self._costly]
        return {RunId(each.facts.job_id, each.points_run): cost(each.points) for each in costly}


def merge(record: JobRecord, chunk: bytes, now: float) -> Merged:
    """Merge new lines of the job's present run into its points. `now`: seconds since the epoch."""
    run = record.facts.restarts
    if run != record.points_run:
        record.earlier, record.points = join_runs(record.earlier, record.points), carried_over(record.points)
        record.points_run = run
    before = record.points
    started = record.facts.submit if record.facts.start is None else record.facts.start
    after, faults = report_lines.fold(before, chunk, now=now, started=started)
    changes_job = _of_job(after) != _of_job(before)
    new = _changed(before, after)
    added = _thinned(after, new)
    points = []
    for row in added.tolist():
        values = {name: float(column[row]) for name, column in after.quantities.items()}
        place = int(after.trial_of[row]), float(after.iterations[row])
        points.append(Point(record.key, run, *place, float(after.times[row]), values))
    if "thinned" in faults or len(added) < len(new):
        after = _rows(after, np.setdiff1d(np.arange(len(after)), np.setdiff1d(new, added)))
        dropped = np.setdiff1d(before.keys, after.keys).tolist()
        points += [Point(record.key, run, int(at.real), at.imag, np.nan, None) for at in dropped]
    record.points = after
    found = [SpoolFault(record.facts.job_id, rule, "", count) for rule, count in faults.items()]
    return Merged(points, found, changes_job or bool(points))


def cost(points: Points) -> float:
    """About how many microseconds of the processor it takes to merge another line into these points, and to write it.

    Measured: 1.4 for each trial, as the job's own row has all of them, 0.04 for each point, 8 for each quantity.
    """
    quantities = len(points.quantities)
    return MERGE_COST + 1.4 * len(points.trials) + (0.04 + 0.005 * quantities) * len(points) + 8.0 * quantities


def _of_job(points: Points) -> tuple[object, ...]:
    """What the ledger stores of the points in the job's own row, in a form that compares NaN as equal."""
    numbers = points.checkpoint, points.checkpoint_time, points.first
    return (points.trials, points.trial, points.gpu_use, *map(str, numbers))


def _changed(before: Points, after: Points) -> Ints:
    """The rows of `after` that are new, or were reported again with other values."""
    old_keys, keys = before.keys, after.keys
    at = np.searchsorted(old_keys, keys)
    nothing = np.full(len(before), np.nan)
    same = np.append(old_keys, np.nan)[at] == keys
    same &= np.append(before.times, np.nan)[at] == after.times
    for name, values in after.quantities.items():
        old = np.append(before.quantities.get(name, nothing), np.nan)[at]
        same &= (old == values) | (np.isnan(old) & np.isnan(values))
    return np.flatnonzero(~same)


def _thinned(points: Points, rows: Ints) -> Ints:
    """The rows to keep of these, chosen evenly for each quantity, so that a rare one is not lost among others, and the
    last of each trial."""
    if len(rows) <= POINTS_PER_READING:
        return rows
    by_quantity = [rows[~np.isnan(values[rows])] for values in points.quantities.values()] or [rows]
    ends = rows[np.append(np.diff(points.trial_of[rows]) > 0, True)]
    return np.unique(np.concatenate([ends, *map(_evenly, by_quantity)]))


def _evenly(rows: Ints) -> Ints:
    return rows[np.linspace(0, len(rows) - 1, min(len(rows), POINTS_PER_READING)).round().astype(np.int64)]


def _rows(points: Points, rows: Ints) -> Points:
    """Only these points, and the quantities that were reported at any of them."""
    kept = points.rows(rows)
    reported = {name: column for name, column in kept.quantities.items() if not np.isnan(column).all()}
    return replace(kept, quantities=reported)

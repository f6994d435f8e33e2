"""From readings to snapshots: which row is which job, what it asks for, and what it has reported.

The only place where readings are folded. It holds the jobs that live, and says with every snapshot what the ledger
does not have yet; a daemon that restarts begins with what the ledger kept.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

import numpy as np

from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Ints
from slurmplug import columns, directives, progress
from slurmplug.cluster.port import Ending, JobRows, Reading
from slurmplug.eligibility import fits, nodes_of
from slurmplug.progress import Fault, Points
from slurmplug.record import Changes, JobFacts, JobRecord, Point, below

POINTS_A_READING = 60
"""How many points of one job a reading adds to the ledger; a job that reports every step is thinned to these."""
PATIENCE = 3_600.0
"""Seconds that an ending is waited for, of a job that Slurm lists no more."""


class Intake:
    """The jobs known to be alive, and how a reading changes them."""

    def __init__(self, records: Iterable[JobRecord] = (), zone: tzinfo | None = None) -> None:
        """`zone`: the cluster's time zone, for deadlines told as a time of day; None for this machine's."""
        self._records = {record.key.job_id: record for record in records}
        self._zone = zone
        self._last_listed: dict[int, float] = {}

    @property
    def known(self) -> Collection[int]:
        """The job ids whose script need not be read."""
        return {
            job_id
            for job_id, record in self._records.items()
            if record.directives is not None or not record.facts.batch
        }

    @property
    def alive(self) -> Collection[int]:
        """The job ids that had not ended when last seen."""
        return {job_id for job_id, record in self._records.items() if record.facts.live}

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """Fold a reading into what is known."""
        fold = _Fold(reading)
        listed = self._match(reading, fold)
        self._end(reading, fold)
        for record in fold.unread:
            self._direct(record, reading, fold)
        for job_id, chunk in reading.reports.items():
            if job_id in self._records:
                _take_reports(self._records[job_id], chunk, fold)
        rows = np.flatnonzero([record.facts.live for record in listed])
        records = [listed[row] for row in rows]
        jobs, classes = columns.jobs_of(records, reading.jobs.priority[rows], reading.now)
        snapshot = Snapshot(
            cycle=cycle,
            now=reading.now,
            seed=cycle,
            jobs=jobs,
            nodes=nodes_of(reading.nodes),
            fits=fits(classes, reading.nodes, reading.reservations, reading.now),
            runs_on=columns.runs_on(records, reading.nodes.name),
        )
        return snapshot, fold.changes()

    def set_labels(self, labels: Mapping[JobKey, float]) -> None:
        """Note the SiteFactors now in place."""
        for key, label in labels.items():
            self._records[key.job_id].label = label

    # --- which job is it --------------------------------------------------------------------------------------------

    def _match(self, reading: Reading, fold: "_Fold") -> list[JobRecord]:
        """The record of each row of the reading, in their order; new ones are made."""
        listed = []
        for facts in map(JobFacts._make, zip(*_fact_columns(reading.jobs), strict=True)):
            record = self._records.get(facts.job_id)
            if record is None or _another(record.facts, facts):
                key = JobKey(reading.site.cluster, facts.job_id, int(facts.submit))
                record = self._records[facts.job_id] = JobRecord(key, facts)
                fold.touch(record)
            elif record.facts != facts:
                if facts.restarts > record.facts.restarts:
                    _close_run(record, facts)
                record.facts = facts
                fold.touch(record)
            if record.directives is None:
                fold.unread.append(record)
            listed.append(record)
            self._last_listed[facts.job_id] = reading.now
        return listed

    def _end(self, reading: Reading, fold: "_Fold") -> None:
        endings = {ending.job_id: ending for ending in reading.endings}
        present = set(reading.jobs.job_id.tolist())
        for job_id in [job_id for job_id in self._records if job_id not in present]:
            record = self._records[job_id]
            last = self._last_listed.setdefault(job_id, reading.now)
            if record.facts.live and job_id in endings:
                record.facts = _ended(record.facts, endings[job_id])
            elif record.facts.live and reading.now - last > PATIENCE:
                record.facts = record.facts._replace(state="UNKNOWN", end=last)
            if not record.facts.live:
                fold.touch(record)
                del self._records[job_id], self._last_listed[job_id]

    # --- what it asks for -------------------------------------------------------------------------------------------

    def _direct(self, record: JobRecord, reading: Reading, fold: "_Fold") -> None:
        facts = record.facts
        whole = self._records.get(facts.array_id or facts.het_id)
        if whole is not None and whole is not record and whole.directives is not None:
            record.directives = whole.directives
        elif not facts.batch or facts.job_id in reading.scripts:
            record.directives = directives.parse(
                reading.scripts.get(facts.job_id, b""),
                facts.comment,
                submitted=record.key.first_submit,
                zone=self._zone,
            )
        else:
            return
        fold.touch(record)


@dataclass
class _Fold:
    """What one reading brings, gathered on the way."""

    reading: Reading
    touched: dict[int, JobRecord] = field(default_factory=dict)
    unread: list[JobRecord] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def touch(self, record: JobRecord) -> None:
        self.touched[record.key.job_id] = record

    def changes(self) -> Changes:
        return Changes(
            now=self.reading.now,
            records=tuple(self.touched.values()),
            points=tuple(self.points),
            faults=(*self.reading.faults, *self.faults),
        )


def _fact_columns(rows: JobRows) -> list[list[object]]:
    told = [getattr(rows, name) for name in JobFacts._fields]
    return [
        [None if value != value else value for value in column.tolist()]
        if column.dtype.kind == "f"
        else column.tolist()
        for column in told
    ]


def _another(old: JobFacts, new: JobFacts) -> bool:
    """Whether a job id was used again: a requeue counts restarts up, so fewer, or life after an end, is another."""
    if new.uid != old.uid or new.restarts < old.restarts:
        return True
    return new.restarts == old.restarts and new.live and not old.live and new.submit != old.submit


def _close_run(record: JobRecord, new: JobFacts) -> None:
    """Add up what the run before a requeue waited and attained."""
    old = record.facts
    began = old.start if old.start is not None and old.state != "PENDING" else new.submit
    if old.eligible is not None:
        record.waited_before += max(0.0, began - old.eligible)
    record.attained_before += max(0.0, new.submit - began) * old.gpus


def _ended(facts: JobFacts, ending: Ending) -> JobFacts:
    start = None if ending.start != ending.start else ending.start
    end = None if ending.end != ending.end else ending.end
    return facts._replace(state=ending.state, start=start, end=end, exit_code=ending.exit_code)


def _take_reports(record: JobRecord, chunk: bytes, fold: _Fold) -> None:
    now, run = fold.reading.now, record.facts.restarts
    if run != record.points_of:
        first, _ = progress.fold(Points(), chunk, now=now)
        record.points = below(record.points, first.iterations[0] if len(first) else np.inf)
        record.points_of = run
    before = record.points
    record.points, doubts = progress.fold(before, chunk, now=now)
    fold.faults += [Fault(record.facts.job_id, rule, "", count) for rule, count in doubts.items()]
    if record.points.checkpoint_time != before.checkpoint_time:
        fold.touch(record)
    for row in _thinned(_changed(before, record.points)):
        told = {name: float(column[row]) for name, column in record.points.quantities.items()}
        fold.points.append(
            Point(record.key, run, float(record.points.iterations[row]), float(record.points.times[row]), told)
        )


def _changed(before: Points, after: Points) -> Ints:
    """The rows of `after` that are new, or told anew."""
    at = np.searchsorted(before.iterations, after.iterations)
    same = np.append(before.iterations, np.nan)[at] == after.iterations
    return np.flatnonzero(~(same & (np.append(before.times, np.nan)[at] == after.times)))


def _thinned(rows: Ints) -> list[int]:
    evenly = np.linspace(0, len(rows) - 1, min(len(rows), POINTS_A_READING)).round().astype(np.int64)
    return [int(row) for row in rows[evenly]]

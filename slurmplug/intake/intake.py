"""From readings to snapshots: which row is which job, its directives, and its reports.

The intake keeps a record of each live job and updates it from every reading. With each snapshot it returns the changes
that the ledger has to store; a daemon that restarts begins with the records of its ledger.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo

import numpy as np

from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools, Ints
from slurmplug.cluster.port import Ending, JobRows, Reading, Submission
from slurmplug.directives import parser
from slurmplug.directives.changes import Change
from slurmplug.intake import columns, report_points
from slurmplug.intake.comparison import compare_site_factors
from slurmplug.intake.eligibility import current_reasons, fits, nodes_of, types_of_classes, with_only_type
from slurmplug.intake.fold import Fold
from slurmplug.intake.identity import digest_of, identify, of_present_run
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import Admission, Changes, JobRecord, next_admission
from slurmplug.intake.site_factor import SiteFactor, after_write, surplus_of_change
from slurmplug.spool import json_lines
from slurmplug.spool.values import RunId

PARTIAL_SECONDS = 300.0
"""Seconds for which a job may be missing because squeue's answer was incomplete, rather than because it is gone."""
ENDING_TIMEOUT = 3_600.0
"""Seconds that the accounting may take to show how a job ended that Slurm does not list any more."""


class Intake:
    """The records of the live jobs, updated from readings."""

    def __init__(self, records: Iterable[JobRecord] = (), zone: tzinfo | None = None) -> None:
        """Start from the records of the ledger.

        Args:
            records: of the live jobs.
            zone: the cluster's time zone, for deadlines given as a time of day; None for this machine's.
        """
        self._records = {record.key.job_id: record for record in records}
        self._zone = zone
        self._columns = columns.ColumnCache()
        self._before: tuple[float, JobRows] | None = None
        self._changes: Collection[tuple[JobKey, Change]] = ()
        """of directives, which the next reading puts in force"""
        self._booted = np.nan
        """`Site.booted` of the last reading"""
        self._own_priority: dict[int, float] = {}
        """by job id, of the waiting jobs with a SiteFactor, the priority without it at the last reading"""
        self._updated: frozenset[JobKey] = frozenset()
        """the jobs whose request slurmplug has changed since the last reading"""
        self._last_listed: dict[int, float] = {}
        """by job id, of the jobs that the last reading did not list: when one did"""
        self.stored_until = {
            RunId(job_id, record.points_run): float(record.points.times.max())
            for job_id, record in self._records.items()
            if len(record.points)
        }
        """by run, the time of its latest report in the ledger, until something newer is read"""
        self.merge_costs = report_points.MergeCosts(self._records)

    @property
    def known(self) -> Container[Submission]:
        """The submissions whose script need not be read.

        Left out are those whose script would settle whether a job is the one recorded, also by the id of its array or
        heterogeneous job.
        """
        records = self._records.values()
        read = {
            submission
            for record in records
            if record.directives is not None or not record.facts.batch
            for submission in record.submissions
        }
        return read - {
            (job_id, submit)
            for record in records
            if record.in_doubt
            for _, submit in record.submissions
            for job_id in (record.facts.job_id, record.facts.array_id, record.facts.het_id)
        }

    @property
    def alive(self) -> Mapping[int, int]:
        """The jobs that had not ended at the last reading, with the uid of each one's user."""
        return {job_id: record.facts.uid for job_id, record in self._records.items() if record.facts.live}

    @property
    def runs(self) -> Collection[RunId]:
        """The present runs of the live jobs."""
        return {RunId(job_id, each.facts.restarts) for job_id, each in self._records.items() if each.facts.live}

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """Update the records from a reading.

        Returns:
            The snapshot of the live jobs and the nodes, and what the ledger has to store of it.
        """
        fold = Fold(reading)
        listed = self._match(reading, fold)
        self._booted = reading.site.booted
        for record in compare_site_factors(listed, reading):
            fold.touch(record)
        missing = self._note_ended(reading, fold)
        self._change_directives(fold)
        for record in sorted(fold.unread, key=_is_part):
            self._parse_directives(record, reading, fold)
        self._merge_reports(reading, fold)
        return self._snapshot(reading, listed, cycle, missing), fold.changes()

    def _merge_reports(self, reading: Reading, fold: Fold) -> None:
        for job_id, chunk in reading.reports.items():
            if job_id in self._records:
                record = self._records[job_id]
                merged = report_points.merge(record, self._without_stored(record, chunk), reading.now)
                self.merge_costs.note(record)
                fold.points += merged.points
                fold.faults += merged.faults
                if merged.changes_job:
                    fold.touch(record)

    def _snapshot(self, reading: Reading, listed: Sequence[JobRecord], cycle: int, missing: int) -> Snapshot:
        """The snapshot of the nodes and the live ones of these records. listed: by row of the reading."""
        rows = [row for row, record in enumerate(listed) if record.facts.live]
        records = [listed[row] for row in rows]
        priority, expected = reading.jobs.priority[rows], reading.jobs.expected[rows]
        nice = reading.jobs.nice[rows]
        jobs, classes = self._columns.jobs_of(records, priority, expected, nice, reading.now)
        nodes, allowed = nodes_of(reading.nodes), fits(classes, reading.nodes, reading.reservations, reading.now)
        exchanged = np.flatnonzero(jobs.pending & (np.nan_to_num(jobs.site_factor) != 0) & (priority > 0))
        ids, own = (column[exchanged].tolist() for column in (reading.jobs.job_id[rows], priority - jobs.site_factor))
        self._own_priority = dict(zip(ids, own, strict=True))
        return Snapshot(
            cycle=cycle,
            now=reading.now,
            seed=cycle,
            jobs=replace(
                jobs, gpu_type=with_only_type(jobs, allowed, nodes), reason=current_reasons(jobs.reason, nodes)
            ),
            nodes=nodes,
            fits=allowed,
            runs_on=columns.runs_on(records, reading.nodes.name),
            type_of_class=types_of_classes(classes, nodes),
            missing=missing,
        )

    def set_site_factors(self, site_factors: Mapping[JobKey, float], *, elsewhere: bool = False) -> None:
        """Note the SiteFactors that slurmplug wrote (NaN: not known); `elsewhere`: those that are new to this process
        were written by another one, so that no slurmctld is known to have confirmed them."""
        for key, value in site_factors.items():
            record = self._records.get(key.job_id)
            if record is None or record.key != key or (elsewhere and _same(value, record.site_factor)):
                continue
            record.placed = after_write(record.placed, value, np.nan if elsewhere else self._booted)
            record.surplus = 0.0

    def set_changed_requests(self, jobs: Collection[JobKey]) -> None:
        """Note the jobs whose request slurmplug has changed: what that adds to their priority is no surplus."""
        self._updated = frozenset(jobs)

    def set_directive_changes(self, changes: Collection[tuple[JobKey, Change]]) -> None:
        """Note the changes of directives that the ledger has and no cycle has written yet, the earliest first."""
        self._changes = changes

    @property
    def waiting(self) -> Collection[int]:
        """The job ids that wait for admission under an administrator's hold."""
        return {job_id for job_id, each in self._records.items() if each.awaits and each.admission == "held"}

    def set_admissions(self, admissions: Mapping[JobKey, Admission]) -> None:
        """Note the state of admission of jobs: one that was released and is held again does not wait for it."""
        for key, admission in admissions.items():
            record = self._records.get(key.job_id)
            if record is not None and record.key == key:
                record.admission = admission

    def _without_stored(self, record: JobRecord, chunk: bytes) -> bytes:
        """The lines without those in the ledger: a daemon that restarts reads the files from their beginning."""
        run = RunId(record.facts.job_id, record.facts.restarts)
        if run not in self.stored_until:
            return chunk
        rest = json_lines.lines_since(chunk, self.stored_until[run])
        if rest:
            del self.stored_until[run]
        return rest

    # --- which job is it --------------------------------------------------------------------------------------------

    def _match(self, reading: Reading, fold: Fold) -> list[JobRecord]:
        """The record of each row of the reading, in their order, updated or new."""
        jobs, records = reading.jobs, self._records
        listed = [records.get(job_id) for job_id in jobs.job_id.tolist()]
        settled = np.array([each is not None and each.settled for each in listed], bool)
        for row, facts in self._changed_rows(jobs, settled):
            found, priority = listed[row], float(jobs.priority[row])
            before = found.facts if found is not None else None
            record = listed[row] = self._updated_record(found, facts, fold) or self._new_record(found, facts, fold)
            if record is found and before is not None:
                self._note_changed_request(record, before, priority)
            admission = next_admission(record.admission, record.facts, priority)
            if admission != record.admission:
                record.admission = admission
                fold.touch(record)
            self._last_listed.pop(facts.job_id, None)
        matched = [record for record in listed if record is not None]
        fold.unread += [record for record in matched if record.directives is None]
        return matched

    def _updated_record(self, record: JobRecord | None, row: JobFacts, fold: Fold) -> JobRecord | None:
        """The record, updated to the row's facts; None if there is none or the row is of another job."""
        if record is None:
            return None
        digest = digest_of(fold.reading.scripts[row.job_id]) if row.job_id in fold.reading.scripts else None
        identity = identify(record, row, digest)
        if identity == "another":
            return None
        facts, in_doubt = of_present_run(record.facts, row), identity == "in doubt"
        digest = record.digest if digest is None or in_doubt else digest
        if (facts, in_doubt, digest) != (record.facts, record.in_doubt, record.digest):
            if facts.restarts > record.facts.restarts:
                _close_run(record, facts, fold.reading.now)
            record.facts, record.in_doubt, record.digest = facts, in_doubt, digest
            fold.touch(record)
        return record

    def _note_changed_request(self, record: JobRecord, before: JobFacts, priority: float) -> None:
        """Note that the user of a waiting job changed its request, and what that adds to its priority beside the
        SiteFactor."""
        facts = record.facts
        waits = before.state == facts.state == "PENDING"
        if not waits or record.key in self._updated or _prioritised_request(before) == _prioritised_request(facts):
            return
        if before.resources != facts.resources:
            record.requested = facts.resources
        elsewhere = (before.partition, before.qos) != (facts.partition, facts.qos)
        own = priority - record.site_factor if priority else np.nan
        own_before = self._own_priority.get(facts.job_id, np.nan)
        record.surplus += surplus_of_change(record.site_factor, own_before, own, elsewhere=elsewhere)

    def _new_record(self, before: JobRecord | None, facts: JobFacts, fold: Fold) -> JobRecord:
        """A record for a job that was not seen before. before: of the job that had its id, which is closed."""
        if before is not None:
            self._close(before, fold)
            run = RunId(facts.job_id, facts.restarts)
            if run in self.stored_until:  # what was read of that job's files is not this one's
                self.stored_until[run] = float(np.nextafter(self.stored_until[run], np.inf))
        key = JobKey(fold.reading.site.cluster, facts.job_id, int(facts.submit))
        record = self._records[facts.job_id] = JobRecord(
            key, facts, placed=self._first_site_factor(facts, fold), requested=facts.resources
        )
        fold.touch(record)
        return record

    def _changed_rows(self, jobs: JobRows, settled: Bools) -> Iterable[tuple[int, JobFacts]]:
        """The rows that differ from the last reading or are not settled (n,), and their facts."""
        same = settled.copy()
        if self._before is None or not len(self._before[1]):
            same[:] = False
        else:
            before = self._before[1]
            order = np.argsort(before.job_id)
            at = order[np.searchsorted(before.job_id, jobs.job_id, sorter=order).clip(max=len(order) - 1)]
            for name in JobFacts._fields:
                now, then = getattr(jobs, name), getattr(before, name)[at]
                same &= (now == then) | ((now != now) & (then != then))  # NaN is not itself
        rows = np.flatnonzero(~same)
        return zip(rows.tolist(), map(JobFacts._make, zip(*_fact_columns(jobs, rows), strict=True)), strict=True)

    def _last_listed_at(self, job_id: int, now: float) -> float:
        """When a reading last listed the job, in seconds since the epoch; `now` if none of this daemon's did."""
        if job_id not in self._last_listed:
            seen = self._before is not None and bool(np.any(self._before[1].job_id == job_id))
            self._last_listed[job_id] = self._before[0] if self._before and seen else now
        self._last_listed[job_id] = min(self._last_listed[job_id], now)  # of a clock that was ahead
        return self._last_listed[job_id]

    def _first_site_factor(self, facts: JobFacts, fold: Fold) -> SiteFactor:
        """The SiteFactor of a new record: that of the array for an element that leaves it, else 0.

        For a job that was there before this daemon's first reading, no slurmctld has confirmed that it is 0.
        """
        array = self._whole_job(facts) if facts.array_id else None
        if array is not None:
            return array.placed
        return SiteFactor(0.0, booted=np.nan if np.isnan(self._booted) else fold.reading.site.booted)

    def _whole_job(self, facts: JobFacts) -> JobRecord | None:
        """The record of the array or heterogeneous job of which the job is a part, if that has another id."""
        job_id = facts.array_id or facts.het_id
        whole = self._records.get(job_id) if job_id != facts.job_id else None
        if whole is None or whole.in_doubt or whole.facts.uid != facts.uid:
            return None
        return whole if (job_id, int(facts.submit)) in whole.submissions else None

    def _note_ended(self, reading: Reading, fold: Fold) -> int:
        """Note how the jobs ended that are not listed; returns how many were listed lately and have not ended.

        What squeue has not listed for `PARTIAL_SECONDS` is gone, also where slurmdbd does not tell how it ended.
        """
        endings = {ending.job_id: ending for ending in reading.endings}
        present = set(reading.jobs.job_id.tolist())
        for job_id in [job_id for job_id in self._records if job_id not in present]:
            record = self._records[job_id]
            last = self._last_listed_at(job_id, reading.now)
            if record.facts.live and job_id in endings and endings[job_id].end >= record.facts.submit:
                record.facts = _ended(record.facts, endings[job_id])
            if not record.facts.live or reading.now - last > ENDING_TIMEOUT:
                self._close(record, fold)
                del self._records[job_id]
        self._before = reading.now, reading.jobs
        lately = reading.now - PARTIAL_SECONDS
        return sum(self._last_listed_at(job_id, reading.now) > lately for job_id in self._records.keys() - present)

    def _close(self, record: JobRecord, fold: Fold) -> None:
        """Note that Slurm does not list the job any more; how it ended is unknown if no ending came."""
        last = self._last_listed_at(record.facts.job_id, fold.reading.now)
        del self._last_listed[record.facts.job_id]
        if record.facts.live:
            record.facts = record.facts._replace(state="UNKNOWN", end=last)
        record.listed = False
        fold.touch(record)

    # --- its directives ---------------------------------------------------------------------------------------------

    def _change_directives(self, fold: Fold) -> None:
        for key, change in self._changes:
            record = self._records.get(key.job_id)
            if record is not None and record.key == key and record.change_directives(change):
                fold.touch(record)

    def _parse_directives(self, record: JobRecord, reading: Reading, fold: Fold) -> None:
        facts, whole = record.facts, self._whole_job(record.facts)
        if whole is not None and whole.directives is not None:
            record.directives, record.digest = whole.directives, whole.digest
            record.submitted_directives, record.changes = whole.submitted_directives, whole.changes
        elif not facts.batch or facts.job_id in reading.scripts:
            script = reading.scripts.get(facts.job_id, b"")
            record.digest = digest_of(script)
            record.directives = parser.parse(
                script,
                facts.comment,
                submitted=record.key.first_submit,
                zone=self._zone,
            )
        else:
            return
        fold.touch(record)


def _fact_columns(jobs: JobRows, rows: Ints) -> list[list[object]]:
    columns = [getattr(jobs, name)[rows] for name in JobFacts._fields]
    return [
        [None if value != value else value for value in column.tolist()]
        if column.dtype.kind == "f"
        else column.tolist()
        for column in columns
    ]


def _close_run(record: JobRecord, new: JobFacts, now: float) -> None:
    """Add the waiting time and the GPU seconds of the run before a requeue; the new submit time is the requeue's."""
    old = record.facts
    over = old.end if old.end is not None and not old.live else new.submit if new.submit > old.submit else now
    began = old.start if old.start is not None and old.state != "PENDING" else over
    if old.eligible is not None:
        record.waited_before += max(0.0, began - old.eligible)
    record.attained_before += max(0.0, over - began - old.suspended) * old.of_gpus.whole


def _prioritised_request(facts: JobFacts) -> tuple[object, ...]:
    """The part of a job's request on which its priority depends, and which its user may change."""
    return (
        facts.account, facts.qos, facts.partition, facts.nodes, facts.cpus, facts.memory, facts.gpus, facts.time_limit,
    )  # fmt: skip


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


def _is_part(record: JobRecord) -> bool:
    """Whether it is an element of an array or a component of a heterogeneous job, but not the one with its job id."""
    whole = record.facts.array_id or record.facts.het_id
    return whole not in (0, record.facts.job_id)


def _ended(facts: JobFacts, ending: Ending) -> JobFacts:
    start = None if ending.start != ending.start else ending.start
    end = None if ending.end != ending.end else ending.end
    return facts._replace(
        state=ending.state, start=start, end=end, exit_code=ending.exit_code, suspended=ending.suspended
    )

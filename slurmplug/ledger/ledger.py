"""The daemon's ledger: one SQLite file in WAL mode, one writer, any number of readers.

A cycle is written in one transaction before any of its effects, and the outcomes of these in a second one, with the
inputs of the decision. A database that is locked, full or corrupt raises `LedgerError`, and the cycle ends there:
Slurm is left alone.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from policies.plan import Memory
from policies.snapshot import JobKey
from slurmplug.cluster.port import Outcome
from slurmplug.cycle.record import CycleRecord
from slurmplug.directives.changes import Change
from slurmplug.intake.job_record import Changes, JobRecord
from slurmplug.ledger import budgets, codec, cycle_queries, job_rows, overloads, rows, throttled_arrays
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.inputs import Base, Encoded, KeptSnapshot, encode
from slurmplug.operations import Operation
from slurmplug.processes.threads import ThreadPool
from slurmplug.rules import precedence
from slurmplug.rules.guardrails import Past

DAY = 86_400.0


class Forgotten(NamedTuple):
    """The ids of the jobs that were forgotten, whose they were, and how many jobs of that user Slurm still lists."""

    jobs: frozenset[int]
    uids: frozenset[int]
    listed: int


class Ledger(LedgerFile):
    """All writing to the ledger, and what the daemon reads from it."""

    def __init__(self, path: Path | None, *, readonly: bool = False) -> None:
        """Open the file, or make it; None keeps the ledger in memory.

        Raises:
            LedgerError: it cannot be opened, is not a ledger, is corrupt, or is of a newer release.
        """
        self._ids: dict[JobKey, int] = {}
        self._seen = -1
        self._encoder = ThreadPool(1, thread_name_prefix="ledger")
        self._inputs: tuple[int, Future[Encoded]] | None = None
        """the number of the last cycle whose inputs are kept, and these, encoded while its commands are carried out"""
        self.kept = KeptSnapshot()
        self._base = Base()
        super().__init__(path, readonly=readonly)

    def close(self) -> None:
        """Close the file."""
        self._encoder.shutdown()
        super().close()

    # --- a cycle ----------------------------------------------------------------------------------------------------

    def next_cycle(self) -> int:
        """The number of the next cycle, after a look whether the ledger's files are in place. Raises LedgerLost too."""
        self.require_in_place()
        return cycle_queries.next_cycle(self)

    def begin(self, record: CycleRecord) -> None:
        """Write a cycle, whole or not at all, before any of its effects."""
        with self._transaction():
            self._write_changes(record.changes)
            self._put("cycles", [rows.cycle_row(record)])
            overloads.write(self, record)
            jobs = [self._id(key) for key in record.snapshot.jobs.keys]
            throttled_arrays.write(self, record, jobs)
            self._write_rankings(record, jobs)
            self._write_decisions(record)
            self._write_operations(record)
            memories = {record.policy: record.plan.memory}
            if record.precedence is not None:
                memories[precedence.MEMORY] = record.precedence
            states = [{"policy": name, "state": codec.dumps(memory)} for name, memory in memories.items()]
            self._put("memory", states, key=["policy"])
        if record.commands or self.kept.is_old_beside(record.snapshot):
            self.kept = KeptSnapshot.of(record.snapshot)
            self._inputs = record.snapshot.cycle, self._encoder.submit(encode, record, self._base)

    def record_failed_read(self, policy: str, error: str, now: float) -> None:
        """Write a cycle that could not read the cluster."""
        with self._transaction():
            row = {"id": self.next_cycle(), "started": now, "finished": now, "policy": policy, "error": error}
            self._put("cycles", [row])

    def finish(
        self,
        cycle: int,
        outcomes: Sequence[Outcome],
        site_factors: Mapping[JobKey, float],
        now: float,
        seconds: Mapping[str, float],
    ) -> None:
        """Write the outcomes of a cycle's commands, the SiteFactors in place (NaN: not known), the stages' times."""
        inputs = self._inputs[1].result() if self._inputs and self._inputs[0] == cycle else None
        with self._transaction():
            answers = [(o.status, o.message, o.command) for o in outcomes]
            self._run("UPDATE commands SET status = ?, message = ? WHERE id = ?", answers)
            self._run(_SET_LAST_STATUS, [(outcome.status, outcome.command) for outcome in outcomes])
            self._run(
                _SET_SITE_FACTOR,
                [(job_rows.nan_to_null(site_factor), self._id(key)) for key, site_factor in site_factors.items()],
            )
            inputs = self._with_base(inputs) if inputs else None
            data, base = (inputs.data, inputs.base) if inputs else (None, None)
            sql = "UPDATE cycles SET finished = ?, inputs = ?, inputs_base = ?, seconds = ? WHERE id = ?"
            self.db.execute(sql, [now, data, base, json.dumps(dict(seconds)), cycle])
        self._inputs = None
        if inputs:
            self._base = self._base.after(cycle, inputs)

    # --- what the daemon reads --------------------------------------------------------------------------------------

    def live_records(self) -> list[JobRecord]:
        """The jobs that live or that Slurm still listed when last seen, with their directives and progress."""
        return cycle_queries.live_records(self)

    def site_factors_set_elsewhere(self) -> dict[JobKey, float]:
        """The SiteFactors of the live jobs, if another process wrote to the ledger since the last call; else empty."""
        version = cycle_queries.data_version(self)
        if version == self._seen:
            return {}
        self._seen = version
        return self.site_factors()

    def site_factors(self) -> dict[JobKey, float]:
        """The SiteFactor in place of each live job, NaN where not known; without jobs whose SiteFactor others set."""
        return cycle_queries.site_factors(self)

    def directive_changes(self) -> list[tuple[JobKey, Change]]:
        """The changes of directives of jobs that no cycle has put in force yet, the earliest first."""
        return cycle_queries.directive_changes(self)

    def paused(self) -> bool:
        """Whether an operator paused slurmplug."""
        return self.control("paused") is not None

    def open_operations(self) -> list[Operation]:
        """The operations under way; a command that was never answered counts as unknown."""
        return cycle_queries.open_operations(self)

    def recall(self, policy: str) -> Memory:
        """What the policy keeps from cycle to cycle."""
        return cycle_queries.policy_memory(self, policy)

    def past(self, now: float, first_seen: float = 0.0, jobs: Collection[JobKey] = ()) -> Past:
        """What the guardrails need of the cycles before, about these jobs and all others.

        `first_seen`: seconds for which a job of `jobs` counts as new.
        """
        return cycle_queries.past(self, now, first_seen, jobs)

    # --- models, switches, upkeep -----------------------------------------------------------------------------------

    def save_model(self, name: str, version: str, state: Mapping[str, Any], trained_at: float) -> None:
        """Store a predictor's state, without pickle, with the predictor's version."""
        row = {"name": name, "version": version, "trained_at": trained_at, "state": codec.dumps(state)}
        with self._transaction():
            self._put("models", [row], key=["name"])

    def model(self, name: str) -> tuple[str, float, Any] | None:
        """A predictor's version, when it was trained (seconds since the epoch), and its state."""
        return cycle_queries.model(self, name)

    def control(self, name: str) -> str | None:
        """A switch that an operator set."""
        return cycle_queries.control(self, name)

    def set_control(self, name: str, value: str | None) -> None:
        """Set a switch; None clears it."""
        with self._transaction():
            self.db.execute("DELETE FROM controls WHERE name = ?", [name])
            if value is not None:
                self._put("controls", [{"name": name, "value": value}])

    def give_back(self, job_ids: Iterable[int]) -> None:
        """Exclude jobs from slurmplug for good."""
        with self._transaction():
            self._run("UPDATE jobs SET given_back = 1 WHERE job_id = ? AND ended = 0", [(job,) for job in job_ids])

    def change_directives(self, decide: Callable[[], Iterable[tuple[int, Change]]]) -> None:
        """Store changes of directives for the next cycle, by the rows of their jobs.

        `decide` returns them, by what it reads of the ledger in the same transaction.
        """
        with self._transaction():
            self._put("directive_changes", [job_rows.change_row(job, change) for job, change in decide()])

    def reset(
        self,
        site_factors: Mapping[JobKey, float],
        withdrawn: Iterable[str],
        let_go: Iterable[JobKey],
        now: float,
        as_submitted: Iterable[JobKey] = (),
    ) -> None:
        """Write that an operator took back SiteFactors (NaN: not known), ended operations, released held jobs, and gave
        jobs back what they asked for."""
        with self._transaction():
            written = [(job_rows.nan_to_null(site_factor), self._id(key)) for key, site_factor in site_factors.items()]
            self._run(_SET_SITE_FACTOR, written)
            self._run(_RECORD_RESET, [(job, now, now) for site_factor, job in written if site_factor == 0])
            self._run("UPDATE jobs SET admission = 'gone' WHERE id = ?", [(self._id(key),) for key in let_go])
            self._run(_WITHDRAW, [(now, now, operation) for operation in withdrawn])
            self._run(_FORGET_SIZE, [(self._id(key),) for key in as_submitted])

    def rank_again(self, job_id: int) -> bool:
        """Let slurmplug rank a live job again whose SiteFactor others set; False if there is no such job.

        The SiteFactor counts as not known, so that the next cycle writes it.
        """
        with self._transaction():
            taken = self.db.execute(_TAKE_BACK, [job_id])
        return bool(taken.rowcount)

    def mark_unknown(self) -> None:
        """Mark as not known what an older copy cannot know: SiteFactors of live jobs, and outcomes of open steps."""
        with self._transaction():
            self.db.execute("UPDATE jobs SET label = NULL WHERE ended = 0 AND factor_by_others = 0")
            self.db.execute("UPDATE operations SET told = 'unknown' WHERE step != 'ended'")

    def thin(self, now: float) -> None:
        """Delete what is beyond the budgets of jobs, users and tables (`slurmplug.ledger.budgets`)."""
        with self._transaction():
            budgets.thin(self, now)
        self._ids.clear()

    def forget(self, user: str) -> Forgotten:
        """Delete, and overwrite, the jobs of a user that Slurm does not list any more, with all that hangs on them and
        all that was made of them: the inputs of cycles, which hold all users' jobs, and the predictors' models."""
        self.db.execute("PRAGMA secure_delete = ON")
        with self._transaction():
            found = self.query("SELECT job_id, uid, ended = 1 AND listed = 0 AS gone FROM jobs WHERE user = ?", user)
            gone = [row for row in found if row["gone"]]
            if gone:
                self.db.execute("DELETE FROM jobs WHERE user = ? AND ended = 1 AND listed = 0", [user])
                ids = [(row["job_id"],) for row in gone]
                self._run("DELETE FROM faults WHERE job_id = ? AND job_id NOT IN (SELECT job_id FROM jobs)", ids)
                self.db.execute("UPDATE cycles SET inputs = NULL, inputs_base = NULL WHERE inputs IS NOT NULL")
                self.db.execute("DELETE FROM models")
                self.db.execute("DELETE FROM queue_forecast")
        with self.errors():
            self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        jobs, uids = (frozenset(row[name] for row in gone) for name in ("job_id", "uid"))
        return Forgotten(jobs, uids, len(found) - len(gone))

    def delete_old(self, now: float, keep_days: float, keep_inputs_days: float) -> None:
        """Delete what is older than the retention, in days."""
        old = now - keep_days * DAY
        with self._transaction():
            self.db.execute(
                "UPDATE cycles SET inputs = NULL, inputs_base = NULL WHERE inputs IS NOT NULL AND started < ?",
                [now - keep_inputs_days * DAY],
            )
            self.db.execute("DELETE FROM jobs WHERE ended = 1 AND last_seen < ?", [old])
            overloads.delete(self, old)
            # The last one stays: cycles are numbered on from it.
            self.db.execute("DELETE FROM cycles WHERE started < ? AND id < (SELECT max(id) FROM cycles)", [old])
            self.db.execute("DELETE FROM faults WHERE last < ?", [old])
            self.db.execute(_FORGET_INPUTS_WITHOUT_BASE)
        self._ids.clear()

    # --- the parts of a cycle -----------------------------------------------------------------------------------------

    def _write_changes(self, changes: Changes) -> None:
        """The jobs that changed, their new points, and the reports that were not believed."""
        records = (job_rows.record_row(record, changes.now) for record in changes.records)
        self._put("jobs", records, key=["cluster", "job_id", "first_submit"])
        made = [(change.id,) for record in changes.records for change in record.changes]
        self._run(_FORGET_VALUE_OF_OTHER_QUANTITY, made)
        self._run("DELETE FROM directive_changes WHERE id = ?", made)
        points = ({"job": self._id(key), **row} for key, row in job_rows.point_rows(changes.points))
        self._put("progress", points, key=["job", "restarts", "trial", "iteration"])
        for key in {point.key for point in changes.points}:
            budgets.keep_job_within(self, self._id(key))
        deleted = [(self._id(p.key), p.restarts, p.trial, p.iteration) for p in changes.points if p.quantities is None]
        self._run("DELETE FROM progress WHERE job = ? AND restarts = ? AND trial = ? AND iteration = ?", deleted)
        faults = [(f.job, f.rule, f.detail, f.count, changes.now, changes.now) for f in changes.faults]
        self._run(_COUNT_FAULT, faults)

    def _write_rankings(self, record: CycleRecord, jobs: list[int]) -> None:
        """The rank of each job and its forecasts; for good the first run time forecast, and that of the final value at
        half of the iterations. jobs: the rows of the snapshot's."""
        self._put("standing", [rows.rankings_row(record, jobs)], key=["id"])
        ids = np.array(jobs, dtype=np.int64)
        seen, total, final = record.snapshot.jobs, record.forecasts.total, record.forecasts.final
        if total.known.any():
            new = np.flatnonzero(total.known & np.isin(ids, cycle_queries.unpredicted(self)))
            self._run(_FIRST_PREDICTION, rows.prediction_rows(total, new, total.source, ids))
        done = seen.iteration / seen.max_iterations
        running = np.flatnonzero(final.known & (done < 1.0))
        self._run(_PREDICTION_AT_HALF, rows.prediction_rows(final, running, seen.iteration, ids, done))

    def _write_decisions(self, record: CycleRecord) -> None:
        """What the policy wanted and the guardrails said, and which jobs are admitted."""
        cycle, now = record.snapshot.cycle, record.snapshot.now
        decisions = [(self._id(key), *row, cycle, cycle, now, now) for key, row in rows.decision_rows(record)]
        self._run(_RECORD_DECISION, decisions)
        admissions = [(admission, self._id(key)) for key, admission in record.admissions.items()]
        self._run("UPDATE jobs SET admission = ? WHERE id = ?", admissions)

    def _write_operations(self, record: CycleRecord) -> None:
        """The operations that moved on, their steps, and the commands of the cycle."""
        cycle, now = record.snapshot.cycle, record.snapshot.now
        operations = ({"job": self._id(o.job), **rows.operation_row(o)} for o in record.operations)
        self._put("operations", operations, key=["id"])
        steps = [(o.id, o.step, now, cycle) for o in record.operations]
        self._run("INSERT OR IGNORE INTO steps (operation, step, at, cycle) VALUES (?, ?, ?, ?)", steps)
        commands = ({"job": self._id(c.job), "cycle": cycle, **rows.command_row(c)} for c in record.commands)
        self._put("commands", commands)

    def _with_base(self, given: Encoded) -> Encoded:
        """Inputs that can be restored: stored whole where their base is not kept any more, as after `forget`."""
        if given.base is None or self.query("SELECT 1 FROM cycles WHERE id = ? AND inputs IS NOT NULL", given.base):
            return given
        return given.whole()

    def _run(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each of the parameters."""
        self.db.executemany(sql, parameters)

    def _id(self, key: JobKey) -> int:
        """The row of a job."""
        if key not in self._ids:
            self._ids[key] = cycle_queries.row_id(self, key)
        return self._ids[key]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with super()._transaction():
                yield
        except BaseException:
            self._ids.clear()  # some may be of rows that were rolled back
            raise


_RECORD_DECISION = """
INSERT INTO decisions (job, kind, verdict, rule, veto, facts, veto_facts, first_cycle, last_cycle, first, last)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET facts = CASE kind WHEN 'stop' THEN facts ELSE excluded.facts END,
    veto_facts = excluded.veto_facts, last_cycle = excluded.last_cycle, last = excluded.last
"""
"""A stop keeps the facts of when it was first decided, so that it can be judged by what the job did after that."""
_RECORD_RESET = """
INSERT INTO decisions (job, kind, verdict, rule, veto, facts, veto_facts, first_cycle, last_cycle, first, last)
VALUES (?, 'reset', 'done', 'operator', '', '{}', '{}', 0, 0, ?, ?)
ON CONFLICT DO UPDATE SET last = excluded.last
"""
_FORGET_VALUE_OF_OTHER_QUANTITY = """
UPDATE jobs SET foreseen = NULL, foreseen_low = NULL, foreseen_high = NULL, foreseen_at = NULL WHERE id = (
    SELECT job FROM directive_changes
    WHERE id = ? AND (coalesce(json_extract(given, '$.target'), json_extract(given, '$.stop')) IS NOT NULL
        OR EXISTS (SELECT 1 FROM json_each(taken_back) WHERE value IN ('target', 'stop')))
)
"""
"""The final value that was predicted may be one of another quantity."""
_FORGET_INPUTS_WITHOUT_BASE = """
UPDATE cycles SET inputs = NULL, inputs_base = NULL
WHERE inputs_base IS NOT NULL AND inputs_base NOT IN (SELECT id FROM cycles WHERE inputs IS NOT NULL)
"""
_SET_SITE_FACTOR = "UPDATE jobs SET label = ? WHERE id = ?"
_TAKE_BACK = """
UPDATE jobs SET factor_by_others = 0, label = NULL WHERE job_id = ? AND ended = 0 AND factor_by_others = 1
"""
_WITHDRAW = """
UPDATE operations SET step = 'ended', outcome = 'withdrawn', result = 'withdrawn by an operator',
    since = ?, until = ?, told = '' WHERE id = ? AND step != 'ended'
"""
_FORGET_SIZE = "UPDATE operations SET noted = json_remove(noted, '$.size') WHERE job = ?"
_SET_LAST_STATUS = """
UPDATE operations SET told = ?1 WHERE step != 'ended' AND id = (SELECT operation FROM commands WHERE id = ?2)
"""
_FIRST_PREDICTION = """
UPDATE jobs SET predicted_low = ?, predicted_high = ?, predicted = ?, predicted_by = ? WHERE id = ?
"""
"""The run time, when the job was first seen."""
_PREDICTION_AT_HALF = """
UPDATE jobs SET foreseen_low = ?, foreseen_high = ?, foreseen = ?, foreseen_at = ?
WHERE id = ? AND ? < CASE WHEN foreseen IS NULL THEN 1.0 ELSE 0.5000001 END
"""
"""The final value: the last one made until half of the iterations were done, else the first one after that."""
_COUNT_FAULT = """
INSERT INTO faults (job_id, rule, detail, count, first, last) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, last = excluded.last
"""

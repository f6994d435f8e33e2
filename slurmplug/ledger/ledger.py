"""The daemon's memory: one SQLite file in WAL mode, one writer, any number of readers.

A cycle is written in one transaction before any of its effects, and what came of them in a second one, with what it
was decided from. A database that is locked, full or corrupt raises `LedgerError`, and the cycle ends there: Slurm is
left alone.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from policies.plan import Memory
from policies.snapshot import JobKey
from predictors.arrays import Ints
from slurmplug.cluster.port import Outcome
from slurmplug.cycle_record import CycleRecord
from slurmplug.guardrails import Past
from slurmplug.ledger import codec, cycle_queries
from slurmplug.ledger import rows as ledger_rows
from slurmplug.ledger.database import LedgerFile
from slurmplug.operations import Operation
from slurmplug.record import Changes, JobRecord

DAY = 86_400.0


class Ledger(LedgerFile):
    """What the daemon keeps, and what is asked of it."""

    def __init__(self, path: Path | None, *, readonly: bool = False) -> None:
        """Open it, or make it; None keeps it in memory.

        Raises:
            LedgerError: it cannot be opened, is not a ledger, is corrupt, or is of a newer release.
        """
        self._ids: dict[JobKey, int] = {}
        self._seen = -1
        self._encoder = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._inputs: tuple[int, Future[bytes]] | None = None
        """of the last cycle that commanded something, made while its commands are carried out"""
        super().__init__(path, readonly=readonly)

    def close(self) -> None:
        """Let go of the file."""
        self._encoder.shutdown()
        super().close()

    # --- a cycle ----------------------------------------------------------------------------------------------------

    def next_cycle(self) -> int:
        """The number of the cycle to come."""
        return cycle_queries.next_cycle(self)

    def begin(self, record: CycleRecord) -> None:
        """Write a cycle, whole or not at all, before any of its effects."""
        cycle, now = record.snapshot.cycle, record.snapshot.now
        with self._transaction():
            self._write_changes(record.changes)
            self._put("cycles", [ledger_rows.of_cycle(record)])
            jobs = [self._id(key) for key in record.snapshot.jobs.keys]
            self._put("standing", [ledger_rows.of_standing(record, jobs)], key=["id"])
            self._keep_predictions(record, np.array(jobs, dtype=np.int64))
            self.db.conn.executemany(
                _DECIDE,
                [(self._id(key), *row, cycle, cycle, now, now) for key, row in ledger_rows.of_decisions(record)],
            )
            operations = ({"job": self._id(o.job), **ledger_rows.of_operation(o)} for o in record.operations)
            self._put("operations", operations, key=["id"])
            steps = [(o.id, o.step, now, cycle) for o in record.operations]
            self.db.conn.executemany(
                "INSERT OR IGNORE INTO steps (operation, step, at, cycle) VALUES (?, ?, ?, ?)", steps
            )
            self.db.conn.executemany(
                "UPDATE jobs SET admission = ? WHERE id = ?",
                [(admission, self._id(key)) for key, admission in record.admissions.items()],
            )
            commands = ({"job": self._id(c.job), "cycle": cycle, **ledger_rows.of_command(c)} for c in record.commands)
            self._put("commands", commands)
            memory = {"policy": record.policy, "state": codec.dumps(record.plan.memory)}
            self._put("memory", [memory], key=["policy"])
        if record.commands:
            self._inputs = cycle, self._encoder.submit(ledger_rows.inputs_of, record)

    def failed(self, policy: str, error: str, now: float) -> None:
        """Note a cycle that could not read."""
        with self._transaction():
            row = {"id": self.next_cycle(), "started": now, "finished": now, "policy": policy, "error": error}
            self._put("cycles", [row])

    def finish(self, cycle: int, outcomes: Sequence[Outcome], labels: Mapping[JobKey, float], now: float) -> None:
        """Write what came of a cycle's commands, and the labels now in place (NaN: not known)."""
        inputs = self._inputs[1].result() if self._inputs and self._inputs[0] == cycle else None
        with self._transaction():
            run = self.db.conn.executemany
            run(
                "UPDATE commands SET status = ?, message = ? WHERE id = ?",
                [(o.status, o.message, o.command) for o in outcomes],
            )
            run(_TELL, [(outcome.status, outcome.command) for outcome in outcomes])
            run(
                "UPDATE jobs SET label = ? WHERE id = ?",
                [(ledger_rows.null(v), self._id(k)) for k, v in labels.items()],
            )
            self.db.execute("UPDATE cycles SET finished = ?, inputs = ? WHERE id = ?", [now, inputs, cycle])
        self._inputs = None

    # --- what a daemon starts from ----------------------------------------------------------------------------------

    def live_records(self) -> list[JobRecord]:
        """The jobs that live or that Slurm still listed when last seen, with their directives and progress."""
        return cycle_queries.live_records(self)

    def labels_set_elsewhere(self) -> dict[JobKey, float]:
        """The labels of the live jobs, where another process wrote to the ledger since the last call; else none."""
        version = cycle_queries.data_version(self)
        if version == self._seen:
            return {}
        self._seen = version
        return self.labels()

    def labels(self) -> dict[JobKey, float]:
        """The SiteFactor in place of each live job, NaN where not known."""
        return cycle_queries.labels(self)

    def open_operations(self) -> list[Operation]:
        """The operations under way; a command that was never answered counts as unknown."""
        return cycle_queries.open_operations(self)

    def recall(self, policy: str) -> Memory:
        """What the policy keeps from cycle to cycle."""
        return cycle_queries.policy_memory(self, policy)

    def past(self, now: float, first_seen: float = 0.0, jobs: Collection[JobKey] = ()) -> Past:
        """What the guardrails must know of the cycles before, about these jobs and all others.

        `first_seen`: seconds for which a job of `jobs` counts as just seen.
        """
        return cycle_queries.past(self, now, first_seen, jobs)

    # --- models, switches, upkeep -----------------------------------------------------------------------------------

    def save_model(self, name: str, version: str, state: Mapping[str, Any], trained_at: float) -> None:
        """Keep a predictor's state, without pickle, with the version of what made it."""
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
        """Take jobs out of slurmplug's hands for good."""
        with self._transaction():
            self.db.conn.executemany(
                "UPDATE jobs SET given_back = 1 WHERE job_id = ? AND ended = 0", [(j,) for j in job_ids]
            )

    def reset(
        self, labels: Mapping[JobKey, float], withdrawn: Iterable[str], let_go: Iterable[JobKey], now: float
    ) -> None:
        """Note that an operator gave labels back (NaN: not known), ended operations, let go who waited."""
        with self._transaction():
            run = self.db.conn.executemany
            rows = [(ledger_rows.null(label), self._id(key)) for key, label in labels.items()]
            run("UPDATE jobs SET label = ? WHERE id = ?", rows)
            run(_RESET, [(job, now, now) for label, job in rows if label == 0])
            run("UPDATE jobs SET admission = 'gone' WHERE id = ?", [(self._id(key),) for key in let_go])
            run(_WITHDRAW, [(now, now, operation) for operation in withdrawn])

    def distrust(self) -> None:
        """After an older copy was put in place: no label of a live job, and no answer to an open step, is known."""
        with self._transaction():
            self.db.execute("UPDATE jobs SET label = NULL WHERE ended = 0")
            self.db.execute("UPDATE operations SET told = 'unknown' WHERE step != 'ended'")

    def forget(self, now: float, keep_days: float, keep_inputs_days: float) -> None:
        """Drop what is older than the retention."""
        old = now - keep_days * DAY
        with self._transaction():
            self.db.execute(
                "UPDATE cycles SET inputs = NULL WHERE inputs IS NOT NULL AND started < ?",
                [now - keep_inputs_days * DAY],
            )
            self.db.execute("DELETE FROM jobs WHERE ended = 1 AND last_seen < ?", [old])
            # The last one stays: cycles are numbered on from it.
            self.db.execute("DELETE FROM cycles WHERE started < ? AND id < (SELECT max(id) FROM cycles)", [old])
            self.db.execute("DELETE FROM faults WHERE last < ?", [old])
        self._ids.clear()

    # --- within -----------------------------------------------------------------------------------------------------

    def _write_changes(self, changes: Changes) -> None:
        records = (ledger_rows.of_record(record, changes.now) for record in changes.records)
        self._put("jobs", records, key=["cluster", "job_id", "first_submit"])
        points = ({"job": self._id(key), **row} for key, row in ledger_rows.of_points(changes.points))
        self._put("progress", points, key=["job", "restarts", "iteration"])
        self.db.conn.executemany(
            "DELETE FROM progress WHERE job = ? AND restarts = ? AND iteration = ?",
            [(self._id(p.key), p.restarts, p.iteration) for p in changes.points if p.quantities is None],
        )
        self.db.conn.executemany(
            _COUNT_FAULT, [(f.job, f.rule, f.detail, f.count, changes.now, changes.now) for f in changes.faults]
        )

    def _keep_predictions(self, record: CycleRecord, jobs: Ints) -> None:
        """Of the jobs in these rows (n,): the first prediction of a run time, and that of the final value at half."""
        seen, total, final = record.snapshot.jobs, record.forecasts.total, record.forecasts.final
        run = self.db.conn.executemany
        if total.known.any():
            rows = np.flatnonzero(total.known & np.isin(jobs, cycle_queries.unpredicted(self)))
            run(_FIRST_PREDICTION, ledger_rows.of_predictions(total, rows, total.source, jobs))
        done = seen.iteration / seen.max_iterations
        rows = np.flatnonzero(final.known & (done < 1.0))
        run(_PREDICTION_AT_HALF, ledger_rows.of_predictions(final, rows, seen.iteration, jobs, done))

    def _id(self, key: JobKey) -> int:
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


_DECIDE = """
INSERT INTO decisions (job, kind, verdict, rule, veto, facts, veto_facts, first_cycle, last_cycle, first, last)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET facts = excluded.facts, veto_facts = excluded.veto_facts,
    last_cycle = excluded.last_cycle, last = excluded.last
"""
_RESET = """
INSERT INTO decisions (job, kind, verdict, rule, veto, facts, veto_facts, first_cycle, last_cycle, first, last)
VALUES (?, 'reset', 'done', 'operator', '', '{}', '{}', 0, 0, ?, ?)
ON CONFLICT DO UPDATE SET last = excluded.last
"""
_WITHDRAW = """
UPDATE operations SET step = 'ended', result = 'withdrawn by an operator', since = ?, until = ?, told = ''
WHERE id = ? AND step != 'ended'
"""
_TELL = """
UPDATE operations SET told = ?1 WHERE step != 'ended' AND id = (SELECT operation FROM commands WHERE id = ?2)
"""
_FIRST_PREDICTION = """
UPDATE jobs SET predicted_low = ?, predicted_high = ?, predicted = ?, predicted_by = ? WHERE id = ?
"""
"""Of the run time, when the job was first seen."""
_PREDICTION_AT_HALF = """
UPDATE jobs SET foreseen_low = ?, foreseen_high = ?, foreseen = ?, foreseen_at = ?
WHERE id = ? AND ? < CASE WHEN foreseen IS NULL THEN 1.0 ELSE 0.5000001 END
"""
"""Of the final value: the last one made until half of the iterations were done, else the first one after that."""
_COUNT_FAULT = """
INSERT INTO faults (job_id, rule, detail, count, first, last) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count, last = excluded.last
"""

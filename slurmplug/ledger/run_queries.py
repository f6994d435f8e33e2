"""What predictors learn from: the finished runs of the ledger, and what they reported.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slurmplug.cluster.tres import JobGPUs
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.rows import Row


class FinishedRun(NamedTuple):
    """A job that completed by itself. Times in seconds; `runtime` is that of its last run."""

    id: int
    cluster: str
    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    name: str
    gpus: int
    gpu_type: str
    gpu_type_held: str
    shards: int
    nodes: int
    cpus: int
    memory: float
    time_limit: float | None
    first_submit: float
    submit: float
    end: float
    runtime: float
    restarts: int
    directives: Mapping[str, Any]
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    predicted_by: str | None

    @property
    def of_gpus(self) -> JobGPUs:
        """Its GPUs, and of which types they were."""
        return JobGPUs(self.gpus, self.gpu_type, self.gpu_type_held, self.shards)


class Report(NamedTuple):
    """What a job reported of an iteration, in its run number `restarts`: the finite values."""

    iteration: float
    time: float
    quantities: Mapping[str, float]
    restarts: int


def finished_runs(ledger: LedgerFile) -> list[FinishedRun]:
    """All finished runs, in the order of their submission."""
    return _finished(ledger.query(f"{_FINISHED_RUNS} ORDER BY submit"))


def latest_finished_runs(ledger: LedgerFile, most: int, of_kind: int, of_user: int) -> list[FinishedRun]:
    """At most `most` finished runs, the last to end first.

    Of each user the latest `of_kind` of the same type, or name if they declare none, and `of_user` in all.
    """
    return _finished(ledger.query(_LATEST_RUNS.format(runs="history"), of_kind, of_user, most))


def latest_run_times(ledger: LedgerFile, most: int, of_kind: int, of_user: int) -> list[FinishedRun]:
    """The same, and with them the runs that lasted longer than was predicted and then ended in another way: however
    they ended, they show that runs like them may last as long."""
    return _finished(ledger.query(_LATEST_RUNS.format(runs=_LONG_RUNS), of_kind, of_user, most))


def _finished(found: Iterable[Row]) -> list[FinishedRun]:
    return [FinishedRun(**{**row, "directives": json.loads(row["directives"] or "null") or {}}) for row in found]


def finished_run_counts(ledger: LedgerFile, since: float) -> tuple[int, int]:
    """How many runs ended after that time, and how many there are in all."""
    [row] = ledger.query("SELECT coalesce(sum(end > ?), 0) AS fresh, count(*) AS runs FROM history", since)
    return int(row["fresh"]), int(row["runs"])


def reports(ledger: LedgerFile, job: int) -> list[Report]:
    """The last report of each iteration of the job's last trial. `job`: its row."""
    return [Report(**{**row, "quantities": _finite(row["quantities"])}) for row in ledger.query(_REPORTS, job)]


def _finite(quantities: str) -> dict[str, float]:
    """Those that are finite numbers; others are texts."""
    return {name: value for name, value in json.loads(quantities).items() if not isinstance(value, str)}


_LONG_RUNS = """(
    SELECT * FROM history UNION ALL SELECT *, end - start AS runtime FROM jobs
    WHERE ended = 1 AND state != 'COMPLETED' AND start IS NOT NULL AND end - start > predicted_high
    AND id NOT IN (SELECT job FROM stops)
)"""
_LATEST_RUNS = f"""
WITH typed AS (
    SELECT *, CASE WHEN json_valid(directives) THEN json_extract(directives, '$.type') END AS type FROM {{runs}}
), kinds AS (
    SELECT *, row_number() OVER (
        PARTITION BY uid, type, CASE WHEN type IS NULL THEN name END ORDER BY end DESC
    ) AS of_kind FROM typed
), users AS (
    SELECT *, row_number() OVER (PARTITION BY uid ORDER BY end DESC) AS of_user FROM kinds WHERE of_kind <= ?
)
SELECT {", ".join(FinishedRun._fields)} FROM users WHERE of_user <= ? ORDER BY end DESC LIMIT ?
"""
_FINISHED_RUNS = f"SELECT {', '.join(FinishedRun._fields)} FROM history"
_REPORTS = """
SELECT iteration, time, quantities, max(restarts) AS restarts FROM progress
WHERE job = ?1 AND trial = (SELECT trial FROM jobs WHERE id = ?1) GROUP BY iteration
"""
"""The values are those of the row with the maximum: SQLite's bare columns."""

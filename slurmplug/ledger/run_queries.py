"""What predictors learn from: the finished runs of the ledger, and what they reported.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from policies.snapshot import JobKey
from slurmplug.cluster.tres import JobGPUs
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import BEGAN
from slurmplug.ledger.sqlite import Row

LONGEST_RUN = 1e9
"""Seconds; what a stopped run would have taken beyond this is learned from no more."""


class FinishedRun(NamedTuple):
    """A job that ended. Times in seconds; `runtime` is that of its last run, without suspensions, of one that was
    stopped what it would have been. queued: when it was submitted, or eligible later than that."""

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
    queued: float
    end: float
    suspended: float
    runtime: float
    restarts: int
    directives: Mapping[str, Any]
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    predicted_by: str | None
    state: str
    batch: int

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
    """The runs that completed by themselves, in the order of their submission."""
    return _finished(ledger.query(f"SELECT {_COLUMNS} FROM history ORDER BY submit"))


def ended_runs(ledger: LedgerFile) -> list[FinishedRun]:
    """The same, and the last runs of jobs that ended in another way, but not those that slurmplug stopped."""
    return _finished(ledger.query(_ENDED_RUNS))


def stopped_jobs(ledger: LedgerFile) -> int:
    """The number of jobs that slurmplug stopped."""
    return int(ledger.value("SELECT count(DISTINCT job) FROM stops"))


def latest_finished_runs(ledger: LedgerFile, most: int, of_kind: int, of_user: int) -> list[FinishedRun]:
    """At most `most` finished runs, the last to end first.

    Of each user the latest `of_kind` of the same type, or name if they declare none, and `of_user` in all.
    """
    return _finished(ledger.query(_LATEST_RUNS.format(runs="history"), of_kind, of_user, most))


def latest_run_times(ledger: LedgerFile, most: int, of_kind: int, of_user: int) -> list[FinishedRun]:
    """The same, and with them two kinds of runs of which is known how long they would have lasted, or at least.

    Those that slurmplug stopped, if they were never restarted: as long as their pace gives for all iterations, within
    their time limit; were they left out, only short runs would be learned from where long ones are stopped. And those
    that lasted longer than was predicted and then ended in another way: however they ended, they show that runs like
    them may last as long.
    """
    return _finished(ledger.query(_LATEST_RUNS.format(runs=_RUN_TIMES), of_kind, of_user, most))


def _finished(found: Iterable[Row]) -> list[FinishedRun]:
    return [FinishedRun(**{**row, "directives": json.loads(row["directives"] or "null") or {}}) for row in found]


def first_starts(ledger: LedgerFile, jobs: Iterable[JobKey]) -> dict[JobKey, float]:
    """When each of these jobs began, of those that have run and were never requeued, in seconds since the epoch."""
    found = {job: ledger.query(_FIRST_START, *job) for job in jobs}
    return {job: float(rows[0]["start"]) for job, rows in found.items() if rows}


def ended_while_waiting(ledger: LedgerFile) -> dict[JobKey, int]:
    """The jobs that were cancelled, or ended in another way, while they waited, and how often each was requeued."""
    return {JobKey(*key): int(restarts) for *key, restarts in ledger.tuples(_ENDED_WHILE_WAITING)}


class QueuedJob(NamedTuple):
    """A job that waits, has started or was cancelled: since when it could start, when it did and when it ended, in
    seconds since the epoch, None for not yet.

    demand: GPUs, CPUs and MiB of memory, of all elements of an array that wait together. predicted: its run time.
    single: it is no element of an array, and was never requeued.
    """

    key: JobKey
    partition: str
    user: str
    queued: float
    started: float | None
    ended: float | None
    time_limit: float | None
    demand: tuple[float, float, float]
    predicted: float | None
    single: bool


def queued_jobs(ledger: LedgerFile, latest: int) -> list[QueuedJob]:
    """So many jobs that the ledger saw last, and all that have not ended."""
    return [
        QueuedJob._make((JobKey(cluster, job, first), *others, (gpus, cpus, memory), predicted, bool(single)))
        for cluster, job, first, gpus, cpus, memory, predicted, single, *others in ledger.tuples(_QUEUED_JOBS, latest)
    ]


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


_COLUMNS = ", ".join(
    "coalesce(max(submit, eligible), submit) AS queued" if name == "queued" else name for name in FinishedRun._fields
)
_RUN_TIMES = f"""(
    SELECT * FROM history UNION ALL SELECT *, end - start - suspended AS runtime FROM jobs
    WHERE ended = 1 AND state != 'COMPLETED' AND start IS NOT NULL AND end - start - suspended > predicted_high
    AND id NOT IN (SELECT job FROM stops)
    UNION ALL SELECT * FROM (
        SELECT jobs.*, min(
            coalesce(time_limit, 9e999),
            end - start - suspended + to_come * min(seconds, end - start - suspended) / iterations
        ) AS runtime
        FROM jobs JOIN (
            SELECT job, max(time) - min(time) AS seconds, max(iteration) - min(iteration) AS iterations,
                json_extract(directives, '$.max_iterations') - max(iteration) AS to_come
            FROM progress JOIN jobs ON jobs.id = job WHERE job IN (SELECT job FROM stops) GROUP BY job
        ) ON job = jobs.id
        WHERE ended = 1 AND jobs.restarts = 0 AND json_array_length(trials) <= 1
        AND start IS NOT NULL AND end - start > suspended AND iterations > 0 AND to_come >= 0
    ) WHERE runtime < {LONGEST_RUN}
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
SELECT {_COLUMNS} FROM users WHERE of_user <= ? ORDER BY end DESC LIMIT ?
"""
_ENDED_RUNS = f"""
SELECT {_COLUMNS} FROM (
    SELECT * FROM history UNION ALL SELECT *, end - start - suspended AS runtime FROM jobs
    WHERE ended = 1 AND state != 'COMPLETED' AND start IS NOT NULL AND end - start > suspended
    AND id NOT IN (SELECT job FROM stops)
) ORDER BY submit
"""
_REPORTS = """
SELECT iteration, time, quantities, max(restarts) AS restarts FROM progress
WHERE job = ?1 AND trial = (SELECT trial FROM jobs WHERE id = ?1) GROUP BY iteration
"""
"""The values are those of the row with the maximum: SQLite's bare columns."""
_QUEUED_JOBS = f"""
SELECT cluster, job_id, first_submit,
    coalesce(gpus, 0) * max(1, coalesce(elements, 1)), coalesce(cpus, 0) * max(1, coalesce(elements, 1)),
    coalesce(memory, 0) * max(1, coalesce(elements, 1)), predicted, restarts = 0 AND coalesce(array_id, 0) = 0,
    coalesce(partition, ''), coalesce(user, ''), coalesce(max(submit, eligible), submit), {BEGAN},
    CASE WHEN ended = 1 THEN coalesce(end, last_seen) END, time_limit
FROM jobs WHERE submit IS NOT NULL AND (ended = 0 OR id > (SELECT max(id) FROM jobs) - ?)
"""
_ENDED_WHILE_WAITING = f"""
SELECT cluster, job_id, first_submit, coalesce(restarts, 0) FROM jobs WHERE ended = 1 AND {BEGAN} IS NULL
"""
_FIRST_START = """
SELECT start FROM jobs
WHERE cluster = ? AND job_id = ? AND first_submit = ? AND start IS NOT NULL AND node_list != '' AND restarts = 0
"""

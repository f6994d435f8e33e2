"""What the daemon reads from the ledger: at its start, and in each cycle about the cycles before it.

All functions raise `LedgerError` where the ledger cannot be read.
"""

from collections.abc import Collection
from contextlib import closing
from typing import Any

import numpy as np

from policies.plan import NOTHING_REMEMBERED, Memory
from policies.snapshot import JobKey
from slurmplug.directives.changes import Change
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import job_rows, rows
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.sqlite import Row
from slurmplug.ledger.sqlite import rows as dict_rows
from slurmplug.operations import Operation, OperationOutcome
from slurmplug.operations.history import move_history
from slurmplug.rules.guardrails import HOUR, Past, lately
from slurmplug.rules.idle_gpus import ToldIdle


def next_cycle(ledger: LedgerFile) -> int:
    """The number of the next cycle."""
    return int(ledger.value("SELECT coalesce(max(id), 0) + 1 FROM cycles"))


def data_version(ledger: LedgerFile) -> int:
    """A number that changes when another process writes to the ledger."""
    return int(ledger.value("PRAGMA data_version"))


def row_id(ledger: LedgerFile, key: JobKey) -> int:
    """The row of a job that the ledger has."""
    return int(ledger.value("SELECT id FROM jobs WHERE cluster = ? AND job_id = ? AND first_submit = ?", *key))


def unpredicted(ledger: LedgerFile) -> list[int]:
    """The rows of live jobs without a first prediction of their run time."""
    return [row["id"] for row in ledger.query("SELECT id FROM jobs WHERE predicted IS NULL AND ended = 0")]


def live_records(ledger: LedgerFile) -> list[JobRecord]:
    """The jobs that live or that Slurm still listed when last seen, with their directives and progress."""
    doubtful = _site_factors_in_doubt(ledger)
    return [
        job_rows.record_from_row(
            row | ({"label": None} if row["id"] in doubtful else {}),
            points(ledger, row["id"]),
        )
        for row in ledger.query("SELECT * FROM jobs WHERE ended = 0 OR listed = 1 ORDER BY id")
    ]


def points(ledger: LedgerFile, job: int) -> list[Row]:
    """The points of a job's runs, as `job_rows.record_from_row` needs them. `job`: its row."""
    return ledger.query("SELECT * FROM progress WHERE job = ? ORDER BY restarts, trial, iteration", job)


def site_factors(ledger: LedgerFile) -> dict[JobKey, float]:
    """The SiteFactor in place of each live job, NaN where not known; without jobs whose SiteFactor others set."""
    doubtful = _site_factors_in_doubt(ledger)
    return {
        _key(row): np.nan if row["id"] in doubtful else job_rows.null_to_nan(row["label"])
        for row in ledger.query(_SITE_FACTORS)
    }


def _site_factors_in_doubt(ledger: LedgerFile) -> set[int]:
    """The rows of jobs whose SiteFactor was written without an answer: the ledger still has the one before it."""
    return {row["job"] for row in ledger.query(_SITE_FACTORS_IN_DOUBT)}


def directive_changes(ledger: LedgerFile) -> list[tuple[JobKey, Change]]:
    """The changes of directives that no cycle has put in force yet, the earliest first."""
    return [(_key(row), job_rows.change_from_row(row)) for row in ledger.query(_DIRECTIVE_CHANGES)]


def open_operations(ledger: LedgerFile) -> list[Operation]:
    """The operations under way; a command that was never answered counts as unknown."""
    return [_operation(ledger, row) for row in ledger.query(_OPEN_OPERATIONS)]


def _operation(ledger: LedgerFile, row: Row) -> Operation:
    try:
        return rows.operation_from_row(row)
    except ValueError as error:
        raise ledger.damaged(f"operation {row['id']} cannot be read") from error


def policy_memory(ledger: LedgerFile, policy: str) -> Memory:
    """What the policy keeps from cycle to cycle."""
    found = ledger.query("SELECT state FROM memory WHERE policy = ?", policy)
    return ledger.decoded(found[0]["state"]) if found else NOTHING_REMEMBERED


def model(ledger: LedgerFile, name: str) -> tuple[str, float, Any] | None:
    """A predictor's version, when it was trained (seconds since the epoch), and its state."""
    found = ledger.query("SELECT version, trained_at, state FROM models WHERE name = ?", name)
    return (found[0]["version"], found[0]["trained_at"], ledger.decoded(found[0]["state"])) if found else None


def control(ledger: LedgerFile, name: str) -> str | None:
    """A switch that an operator set."""
    found = ledger.query("SELECT value FROM controls WHERE name = ?", name)
    return str(found[0]["value"]) if found else None


def past(ledger: LedgerFile, now: float, first_seen: float, jobs: Collection[JobKey]) -> Past:
    """What the guardrails need of the cycles before; `first_seen`: seconds for which a job of `jobs` counts as new."""
    failures = _failed_cycles(ledger)
    moves = ((_operation(ledger, row), row["user"]) for row in ledger.query(_MOVES, now - HOUR))
    return Past(
        now=now,
        paused=control(ledger, "paused") is not None,
        stops_last_hour=_begun_by_user(ledger, "kind = 'stop'", now),
        admissions_last_hour=_begun_by_user(ledger, "kind = 'release'", now),
        admitting=frozenset(map(_key, ledger.query(f"{_JOBS_OF_OPERATIONS} kind = 'release' AND step != 'ended'"))),
        stopping=_stops_of(ledger, "step != 'ended'"),
        gave_up=_stops_of(
            ledger, "outcome = ? AND since > ? AND since < ?", OperationOutcome.GAVE_UP.value, now - HOUR, now + HOUR
        ),
        ignored=_stops_of(ledger, "outcome = ? AND ended = 0", OperationOutcome.IGNORED.value),
        **vars(move_history(moves, now)),
        fresh=frozenset(job for job in jobs if lately(_first_seen(ledger, job, now), now, first_seen)),
        **ledger.query(_LAST_SEEN)[0],
        failures_in_a_row=len(failures),
        last_failure=failures[0] if failures else -np.inf,
        given_back=given_back(ledger),
        told_idle={_key(row): ToldIdle(row["at"], row["announced"]) for row in ledger.query(_TOLD_IDLE)},
    )


def given_back(ledger: LedgerFile) -> frozenset[int]:
    """The ids of live jobs that an operator excluded."""
    return frozenset(row["job_id"] for row in ledger.query(_GIVEN_BACK))


def _failed_cycles(ledger: LedgerFile) -> list[float]:
    """When the latest cycles began whose commands all failed, latest first; ends at a cycle in which one succeeded."""
    found = []
    with ledger.errors(), closing(ledger.db.execute(_COMMANDING_CYCLES)) as cycles:
        for cycle in dict_rows(cycles):
            if not cycle["failed"]:
                break
            found.append(cycle["started"])
    return found


def _first_seen(ledger: LedgerFile, job: JobKey, now: float) -> float:
    """When the job was first seen; now, for a job that the ledger does not have yet."""
    seen = ledger.query(_FIRST_SEEN, *job)
    return float(seen[0]["at"]) if seen else now


def _stops_of(ledger: LedgerFile, where: str, *parameters: object) -> frozenset[JobKey]:
    return frozenset(map(_key, ledger.query(f"{_JOBS_OF_OPERATIONS} kind = 'stop' AND {where}", *parameters)))


def _begun_by_user(ledger: LedgerFile, which: str, now: float) -> dict[str, int]:
    """By user, how many of these operations began in the last hour (as `guardrails.lately`)."""
    which = f"{which} AND opened > ? AND opened < ?"
    sql = f"SELECT coalesce(user, '') AS user, count(*) AS n FROM {_WITH_JOBS} WHERE {which} GROUP BY user"
    return {row["user"]: row["n"] for row in ledger.query(sql, now - HOUR, now + HOUR)}


def _key(row: Row) -> JobKey:
    return JobKey(row["cluster"], row["job_id"], row["first_submit"])


_FIRST_SEEN = """
SELECT coalesce(first_seen, -9e999) AS at FROM jobs WHERE cluster = ? AND job_id = ? AND first_submit = ?
"""
_LAST_SEEN = """
SELECT coalesce((SELECT started FROM cycles ORDER BY id DESC LIMIT 1), -9e999) AS latest,
    (SELECT count(*) FROM jobs WHERE ended = 0) AS alive
"""
_SITE_FACTORS = """
SELECT id, cluster, job_id, first_submit, label FROM jobs WHERE ended = 0 AND factor_by_others = 0
"""
_SITE_FACTORS_IN_DOUBT = """
SELECT job FROM (
    SELECT job, status, max(cycle) FROM commands JOIN jobs ON jobs.id = commands.job
    WHERE ended = 0 AND factor_by_others = 0 AND status != 'refused' AND fields LIKE '%SiteFactor%' GROUP BY job
) WHERE status IN ('unknown', 'put off')
"""
"""Jobs whose last written SiteFactor has no outcome, or was put off: it is not known until the next comparison."""
_DIRECTIVE_CHANGES = """
SELECT directive_changes.*, cluster, job_id, first_submit
FROM directive_changes JOIN jobs ON jobs.id = directive_changes.job WHERE ended = 0 OR listed = 1
ORDER BY directive_changes.id
"""
_OPEN_OPERATIONS = """
SELECT operations.*, jobs.cluster, jobs.job_id, jobs.first_submit
FROM operations JOIN jobs ON jobs.id = operations.job WHERE step != 'ended' ORDER BY opened
"""
_MOVES = """
SELECT operations.*, jobs.cluster, jobs.job_id, jobs.first_submit, jobs.user
FROM operations JOIN jobs ON jobs.id = operations.job
WHERE kind IN ('resize', 'migrate', 'preempt')
    AND (operations.job IN (SELECT id FROM jobs WHERE ended = 0) OR operations.since > ?)
"""
_WITH_JOBS = "operations JOIN jobs ON jobs.id = operations.job"
_JOBS_OF_OPERATIONS = f"SELECT cluster, job_id, first_submit FROM {_WITH_JOBS} WHERE"
_TOLD_IDLE = """
SELECT cluster, job_id, first_submit, at, announced FROM notifications JOIN jobs ON jobs.id = job
WHERE kind = 'idle GPUs' AND result = 'sent' AND ended = 0
"""
_GIVEN_BACK = """
SELECT job_id FROM jobs WHERE ended = 0 AND given_back = 1
UNION SELECT part.job_id FROM jobs AS whole JOIN jobs AS part
    ON part.ended = 0 AND part.array_id = whole.job_id AND part.uid = whole.uid AND part.cluster = whole.cluster
WHERE whole.given_back = 1 AND whole.array_id = whole.job_id
"""
"""With the elements of an array, also those that started since."""
_COMMANDING_CYCLES = """
SELECT (SELECT started FROM cycles WHERE id = cycle) AS started, sum(status = 'done') = 0 AS failed
FROM commands WHERE status != 'put off' GROUP BY cycle ORDER BY cycle DESC LIMIT 100
"""
"""What slurmdbd has not recorded yet, Slurm puts off: that is no failure."""

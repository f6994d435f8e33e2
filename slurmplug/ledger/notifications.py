"""What users are told of their jobs: which kinds of it they were, and what there is to tell.

All functions raise `LedgerError` where the ledger cannot be read or written.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policies.plan import Reason
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.facts import facts_from
from slurmplug.ledger.ledger import Ledger
from slurmplug.spool.report_lines import GPUUse

NOT_KNOWN = "unknown"
"""The result of a delivery until it is known; it stays so where the daemon ended meanwhile."""


class Told(NamedTuple):
    """What a user is told of a job, each kind of it once. job: its row."""

    job: int
    kind: str


@dataclass(frozen=True)
class EndedOperation:
    """An operation that did something to a job. job: its row. facts of other jobs are `OtherJob` values."""

    job: int
    kind: str
    reason: Reason
    outcome: str
    gpus_before: int
    gpus: int


def ended_operations(ledger: LedgerFile, since: float) -> list[EndedOperation]:
    """Those that ended after that time, the latest last: stops that ended their job, and runs that were ended for a
    move, a resize or another job."""
    return [
        EndedOperation(
            row["job"],
            row["kind"],
            Reason(row["rule"], facts_from(json.loads(row["facts"]))),
            row["outcome"],
            row["gpus_before"] or 0,
            row["gpus"] or 0,
        )
        for row in ledger.query(_ENDED, since)
    ]


def living(ledger: LedgerFile) -> dict[int, GPUUse]:
    """How much their GPUs were in use, of the jobs with directives that live, by row."""
    return {row: GPUUse(*json.loads(use)) for row, use in ledger.tuples(_LIVING)}


def told(ledger: LedgerFile, jobs: Iterable[int]) -> set[Told]:
    """What was told of these jobs, given by their rows."""
    return {Told(*row) for row in ledger.tuples(_TOLD, json.dumps(list(jobs)))}


def record(ledger: Ledger, due: Sequence[Told], at: float) -> list[Told]:
    """Record, before it is sent, what users are told; returns what was new, and may be sent."""
    with ledger._transaction():
        return [each for each in due if ledger.db.execute(_RECORD, [*each, at, NOT_KNOWN]).rowcount]


def record_result(ledger: Ledger, results: Sequence[tuple[Told, str]]) -> None:
    """Record how the delivery of each ended: `sent`, or what failed."""
    with ledger._transaction():
        ledger._run(_RESULT, [(result, *each) for each, result in results])


_ENDED = """
SELECT job, kind, rule, facts, outcome,
    json_extract(noted, '$.gpus_before') AS gpus_before, json_extract(noted, '$.gpus') AS gpus
FROM operations WHERE since > ? AND (
    (kind = 'stop' AND step = 'ended' AND job IN (SELECT job FROM stops))
    OR (outcome IN ('done', 'progress lost') AND json_extract(noted, '$.type') = 'restart'))
ORDER BY since
"""
"""A move is done before its operation has ended, which may leave the job bound to nodes."""
_LIVING = "SELECT id, gpu_use FROM jobs WHERE ended = 0 AND directives != 'null' ORDER BY id"
_TOLD = "SELECT job, kind FROM notifications WHERE job IN (SELECT value FROM json_each(?))"
_RECORD = "INSERT OR IGNORE INTO notifications (job, kind, at, result) VALUES (?, ?, ?, ?)"
_RESULT = "UPDATE notifications SET result = ? WHERE job = ? AND kind = ?"

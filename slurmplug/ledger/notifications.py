"""What users are told of their jobs: which kinds of it they were, and what there is to tell.

All functions raise `LedgerError` where the ledger cannot be read or written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from policies.plan import Reason
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.facts import facts_from
from slurmplug.ledger.ledger import Ledger
from slurmplug.spool.values import GPUUse

SENT = "sent"
"""The result of a delivery in each way that was wanted."""
NOT_KNOWN = "unknown"
"""The result of a delivery until it is known; it stays so where the daemon ended meanwhile."""


class Told(NamedTuple):
    """What a user is told of a job, each kind of it once. job: its row."""

    job: int
    kind: str


class Delivery(NamedTuple):
    """How the delivery of a notification ended, or that it is under way.

    result: `SENT`, `NOT_KNOWN`, or what failed. again: the ways, of `mail` and `webhook`, by which it was certainly not
    delivered and is to be tried again. tries: how many there were. at: when it was tried last.
    """

    about: Told
    result: str
    again: frozenset[str] = frozenset()
    tries: int = 1
    at: float = 0.0


@dataclass(frozen=True)
class EndedOperation:
    """An operation that did something to a job. job: its row. facts of other jobs are `OtherJob` values.

    unsaved: seconds from the checkpoint to the requeue of a job that was moved, resized or preempted; None where the
    time of the checkpoint is not known.
    """

    job: int
    kind: str
    reason: Reason
    outcome: str
    gpus_before: int
    gpus: int
    unsaved: float | None


def ended_operations(ledger: LedgerFile, since: float) -> list[EndedOperation]:
    """The operations that ended after that time and ended a run: stops, and moves, resizes and preemptions. Latest
    last."""
    return [
        EndedOperation(
            row["job"],
            row["kind"],
            Reason(row["rule"], facts_from(json.loads(row["facts"]))),
            row["outcome"],
            row["gpus_before"] or 0,
            row["gpus"] or 0,
            row["unsaved"],
        )
        for row in ledger.query(_ENDED, since)
    ]


def living(ledger: LedgerFile) -> dict[int, GPUUse]:
    """How much their GPUs were in use, of the jobs with directives that live, by row."""
    return {row: GPUUse(*json.loads(use)) for row, use in ledger.tuples(_LIVING)}


def told(ledger: LedgerFile, jobs: Iterable[int]) -> dict[Told, Delivery]:
    """What was told of these jobs, given by their rows."""
    rows = ledger.tuples(_TOLD, json.dumps(list(jobs)))
    found = ((Told(job, kind), result, again, tries, at) for job, kind, result, again, tries, at in rows)
    return {
        about: Delivery(about, result, frozenset(filter(None, again.split(","))), tries, at)
        for about, result, again, tries, at in found
    }


def record(
    ledger: Ledger, due: Sequence[Told], at: float, announced: Mapping[Told, float] = MappingProxyType({})
) -> list[Told]:
    """Record, before it is sent, what users are told; returns what was new or is tried again, and may be sent.

    announced: by what of it, the seconds of idle GPUs after which it says that the job is stopped.
    """
    with ledger._transaction():
        rows = ((each, [*each, at, NOT_KNOWN, announced.get(each)]) for each in due)
        return [each for each, row in rows if ledger.db.execute(_RECORD, row).rowcount]


def record_results(ledger: Ledger, results: Sequence[Delivery]) -> None:
    """Record how the delivery of each ended."""
    with ledger._transaction():
        ledger._run(_RESULT, [(each.result, ",".join(sorted(each.again)), *each.about) for each in results])


_ENDED = """
SELECT job, kind, rule, facts, outcome,
    json_extract(noted, '$.gpus_before') AS gpus_before, json_extract(noted, '$.gpus') AS gpus,
    requeued - json_extract(noted, '$.checkpoint_time') AS unsaved
FROM operations WHERE since > ? AND (
    (kind = 'stop' AND step = 'ended' AND job IN (SELECT job FROM stops))
    OR (outcome IN ('done', 'progress lost') AND json_extract(noted, '$.type') = 'restart'))
ORDER BY since
"""
"""A move is done before its operation has ended, which may leave the job bound to nodes."""
_LIVING = "SELECT id, gpu_use FROM jobs WHERE ended = 0 AND directives != 'null' ORDER BY id"
_TOLD = "SELECT job, kind, result, again, tries, at FROM notifications WHERE job IN (SELECT value FROM json_each(?))"
_RECORD = """
INSERT INTO notifications (job, kind, at, result, announced) VALUES (?, ?, ?, ?, ?) ON CONFLICT (job, kind) DO UPDATE
SET at = excluded.at, result = excluded.result, announced = excluded.announced, again = '', tries = tries + 1
WHERE again != ''
"""
_RESULT = "UPDATE notifications SET result = ?, again = ? WHERE job = ? AND kind = ?"

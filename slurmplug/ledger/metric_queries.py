"""What metrics are counted from: what came into the ledger from one look at it to the next, and the live jobs.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import WAITING


class CountedCycle(NamedTuple):
    """A cycle that is over: what each stage took in seconds, its error, and the rule that forbade all commands.

    read: whether the cluster could be read.
    """

    id: int
    started: float
    seconds: Mapping[str, float]
    error: str
    frozen: str
    read: bool


class EndedOperation(NamedTuple):
    """An operation that is over. `job`: the row of its job."""

    job: int
    kind: str
    rule: str
    outcome: str


class HeldGPUs(NamedTuple):
    """The jobs and GPUs of a user in an account. state: running, or pending."""

    state: str
    user: str
    account: str
    jobs: int
    gpus: int


def last_finished(ledger: LedgerFile) -> tuple[int, float]:
    """The last cycle that is finished, and when it began; zeros before the first one."""
    found = ledger.tuples("SELECT id, started FROM cycles WHERE finished IS NOT NULL ORDER BY id DESC LIMIT 1")
    return found[0] if found else (0, 0.0)


def cycles_between(ledger: LedgerFile, after: int, until: int) -> list[CountedCycle]:
    """The cycles after one, until another one."""
    rows = ledger.query(_CYCLES, after, until)
    return [CountedCycle(**{**row, "seconds": json.loads(row["seconds"] or "{}")}) for row in rows]


def command_counts(ledger: LedgerFile, after: int, until: int) -> dict[tuple[str, str], int]:
    """How many commands these cycles had, by verb and status."""
    return {(verb, status): count for verb, status, count in ledger.tuples(_COMMANDS, after, until)}


def ended_operations(ledger: LedgerFile, began: float, after: int, until: int) -> list[EndedOperation]:
    """The operations that ended in these cycles. began: when cycle `after` did."""
    return [EndedOperation(*row) for row in ledger.tuples(_ENDED_OPERATIONS, began, after, until)]


def fault_totals(ledger: LedgerFile) -> dict[str, int]:
    """How many reports and scripts were doubted, by rule, of those that the ledger keeps."""
    return dict(ledger.tuples("SELECT rule, sum(count) FROM faults GROUP BY rule"))


def vetoed_counts(ledger: LedgerFile, cycle: int) -> list[tuple[str, str, int]]:
    """Kind of action, the rule that forbade it, and how many of live jobs were so in this cycle."""
    return ledger.tuples(_VETOED, cycle)


def live_rows(ledger: LedgerFile) -> frozenset[int]:
    """The rows of the jobs that have not ended."""
    return frozenset(row for (row,) in ledger.tuples("SELECT id FROM jobs WHERE ended = 0"))


def last_row(ledger: LedgerFile) -> int:
    """The row of the job that came last."""
    return int(ledger.value("SELECT coalesce(max(id), 0) FROM jobs"))


def rows_after(ledger: LedgerFile, row: int) -> frozenset[int]:
    """The rows of the jobs that came after one."""
    return frozenset(later for (later,) in ledger.tuples("SELECT id FROM jobs WHERE id > ?", row))


def held_gpus(ledger: LedgerFile) -> list[HeldGPUs]:
    """The GPUs that live jobs hold or request; of an array that waits, of each element."""
    return [HeldGPUs(*row) for row in ledger.tuples(_GPUS, json.dumps(sorted(WAITING)))]


_CYCLES = """
SELECT id, started, seconds, error, coalesce(frozen, '') AS frozen, jobs IS NOT NULL AS read
FROM cycles WHERE id > ? AND id <= ? ORDER BY id
"""
_COMMANDS = "SELECT verb, status, count(*) FROM commands WHERE cycle > ? AND cycle <= ? GROUP BY verb, status"
_ENDED_OPERATIONS = """
SELECT job, kind, rule, coalesce(outcome, '') FROM operations JOIN steps ON operation = operations.id
WHERE operations.since >= ? AND operations.step = 'ended' AND steps.step = 'ended' AND cycle > ? AND cycle <= ?
"""
"""The time comes first, as it has an index."""
_VETOED = """
SELECT kind, veto, count(*) FROM jobs CROSS JOIN decisions ON job = jobs.id
WHERE ended = 0 AND last_cycle = ? AND verdict IN ('vetoed', 'notice') AND veto != 'placement'
GROUP BY kind, veto
"""
_GPUS = """
SELECT CASE WHEN state IN (SELECT value FROM json_each(?)) THEN 'pending' ELSE 'running' END AS phase,
    coalesce(user, ''), coalesce(account, ''), sum(max(1, elements)), sum(coalesce(gpus, 0) * max(1, elements))
FROM jobs WHERE ended = 0 GROUP BY phase, user, account
"""

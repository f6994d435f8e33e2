"""For how long arrays waited for their throttle alone, and what idled meanwhile that their elements could have used."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from slurmplug.cycle.record import CycleRecord
from slurmplug.forecasting.starts.array_throttles import throttled_arrays
from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection

LONGEST = 600.0
"""Seconds: a longer time from one cycle to the next is not counted, as what was in between is not known."""


class Throttled(NamedTuple):
    """An array that waited for its throttle alone: in how many cycles, for how many seconds, how many more elements the
    idle nodes could have run on average, and the GPU seconds that idled of which its elements could have made use."""

    cycles: int
    seconds: float
    more: float
    gpu_seconds: float


def write(ledger: LedgerFile, record: CycleRecord, row_of: Sequence[int]) -> None:
    """Add a cycle, within a transaction. row_of: the ledger's row of each of the snapshot's jobs."""
    jobs, now = record.snapshot.jobs, record.started
    found = list(throttled_arrays(record.snapshot))
    if not found:
        return
    before = ledger.tuples(_BEFORE, record.snapshot.cycle)
    previous = before[0][0] if before else now
    span = now - previous if now - previous <= LONGEST else 0.0
    for row, more in found:
        used = min(more, int(jobs.elements[row])) * int(jobs.gpus[row])
        amounts = span, more * span, used * span
        if not ledger.db.execute(_ADD, [now, *amounts, row_of[row], previous]).rowcount:
            ledger.db.execute(_BEGIN, [row_of[row], now])


def of_arrays(ledger: LedgerFile, which: Selection) -> dict[int, Throttled]:
    """By the array's id, of the arrays of which these jobs are elements. Raises LedgerError, and UsageError where the
    jobs are too many."""
    rows = json.dumps(queries.job_rows(ledger, which))
    return {array: Throttled(*found) for array, *found in ledger.tuples(_OF_ARRAYS, rows)}


_BEFORE = "SELECT started FROM cycles WHERE id < ? ORDER BY id DESC LIMIT 1"
_ADD = """
UPDATE throttled_arrays SET last = ?, cycles = cycles + 1,
    seconds = seconds + ?, more_seconds = more_seconds + ?, gpu_seconds = gpu_seconds + ?
WHERE job = ? AND last = ?
"""
"""What a cycle finds held since the one before, if it was so in that one, too."""
_BEGIN = """
INSERT INTO throttled_arrays VALUES (?, ?, 1, 0.0, 0.0, 0.0)
ON CONFLICT DO UPDATE SET last = excluded.last, cycles = cycles + 1
"""
_OF_ARRAYS = """
WITH arrays AS (
    SELECT DISTINCT cluster, array_id, uid FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND array_id != 0
)
SELECT array_id, sum(cycles), sum(seconds), sum(more_seconds) / sum(seconds), sum(gpu_seconds)
FROM throttled_arrays JOIN jobs ON jobs.id = job JOIN arrays USING (cluster, array_id, uid)
GROUP BY array_id HAVING sum(seconds) > 0
"""

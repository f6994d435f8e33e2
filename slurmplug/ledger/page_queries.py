"""What the web pages read from the ledger, beside the reports: jobs by node and time, the load, who waits,
the stops.

`owner` is the uid of whose jobs are read, None for everybody's. All functions raise `LedgerError` where the ledger
cannot be read.
"""

import json
from typing import NamedTuple

from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import WAITING


class Load(NamedTuple):
    """The load in a part of the time: how many jobs were pending and running in its cycles, on average."""

    start: float
    pending: float
    running: float


class Stop(NamedTuple):
    """A stop. done: whether it ended the job; else it was only decided. overload: whether the cluster's overload had it
    apply."""

    at: float
    rule: str
    done: bool
    overload: bool


class Waiting(NamedTuple):
    """The waiting jobs of a user in an account, the elements of arrays among them, and the GPUs that they request.

    since: when the one that waits the longest became eligible; None where none is eligible.
    """

    user: str
    account: str
    jobs: int
    gpus: int
    since: float | None


def waiting(ledger: LedgerFile, now: float, owner: int | None) -> list[Waiting]:
    """Who waits, the user who requests the most GPUs first."""
    return [Waiting(*row) for row in ledger.tuples(_WAITING, now, json.dumps(sorted(WAITING)), owner, owner)]


def loads(ledger: LedgerFile, start: float, end: float, parts: int) -> list[Load]:
    """The load in a time that is divided into so many parts; of parts without a cycle none."""
    seconds = (end - start) / parts
    found = ledger.tuples(_LOADS, start, seconds, start, end)
    return [Load(start + part * seconds, pending, running) for part, pending, running in found]


def runs(ledger: LedgerFile, start: float, end: float, owner: int | None, most: int) -> list[int]:
    """The rows of the jobs that have run on nodes in a time, the latest to begin first, and no more than `most`."""
    return [row for (row,) in ledger.tuples(_RUNS, end, start, owner, owner, end, owner, owner, most)]


def stops(ledger: LedgerFile, start: float, end: float, owner: int | None) -> list[Stop]:
    """The stops in a time: of each job the one that ended it, else the first that the mode or a pause prevented."""
    found = ledger.tuples(_STOPS, start, end, owner, owner, start, end, owner, owner)
    return [Stop(at, rule, bool(done), overload == "yes") for at, rule, done, overload in found]


def predicted(ledger: LedgerFile, owner: int | None, most: int) -> list[int]:
    """The rows of the jobs that ended by themselves and whose run time was predicted, the last ones, at most `most`."""
    return [row for (row,) in ledger.tuples(_PREDICTED, owner, owner, most)]


_WAITING = """
SELECT coalesce(user, ''), coalesce(account, ''),
    sum(max(1, elements)), sum(coalesce(gpus, 0) * max(1, elements)) AS wanted,
    min(CASE WHEN eligible <= ? THEN max(submit, eligible) END)
FROM jobs WHERE ended = 0 AND state IN (SELECT value FROM json_each(?)) AND (? IS NULL OR uid = ?)
GROUP BY user, account ORDER BY wanted DESC, user, account
"""
_LOADS = """
SELECT CAST((started - ?) / ? AS INTEGER) AS part, avg(pending), avg(running) FROM cycles
WHERE started >= ? AND started < ? AND jobs IS NOT NULL GROUP BY part ORDER BY part
"""
_RUNS = """
SELECT id FROM (
    SELECT id, start FROM jobs INDEXED BY jobs_end
    WHERE ended = 1 AND start < ? AND end > ? AND node_list != '' AND (? IS NULL OR uid = ?)
    UNION ALL
    SELECT id, start FROM jobs WHERE ended = 0 AND start < ? AND node_list != '' AND (? IS NULL OR uid = ?)
) ORDER BY start DESC LIMIT ?
"""
_STOPS = """
SELECT at, rule, done, overload FROM (
    SELECT coalesce(jobs.end, since) AS at, rule, 1 AS done, json_extract(facts, '$.overload') AS overload, max(since)
    FROM operations JOIN jobs ON jobs.id = operations.job JOIN stops ON stops.job = jobs.id AND stops.stop = rule
    WHERE kind = 'stop' AND step = 'ended' AND since >= ? AND since <= ? AND (? IS NULL OR jobs.uid = ?)
    GROUP BY jobs.id
    UNION ALL
    SELECT min(first) AS at, rule, 0 AS done, json_extract(facts, '$.overload') AS overload, 0
    FROM decisions JOIN jobs ON jobs.id = decisions.job
    WHERE kind = 'stop' AND veto IN ('mode', 'paused') AND first >= ? AND first <= ? AND (? IS NULL OR jobs.uid = ?)
        AND job NOT IN (SELECT job FROM operations WHERE kind = 'stop')
    GROUP BY jobs.id
) ORDER BY at
"""
"""The rule and the facts are those of the row with the maximum or minimum: SQLite's bare columns."""
_PREDICTED = """
SELECT id FROM jobs INDEXED BY jobs_end
WHERE ended = 1 AND end IS NOT NULL AND state = 'COMPLETED' AND predicted IS NOT NULL AND end > start
    AND (? IS NULL OR uid = ?) AND NOT EXISTS (SELECT 1 FROM stops WHERE stops.job = jobs.id)
ORDER BY end DESC LIMIT ?
"""
"""A job that was stopped says nothing of its prediction."""

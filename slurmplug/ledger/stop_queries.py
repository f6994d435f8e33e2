"""What `slurmplug savings` reads from the ledger: the stops that ended a job, and those that were only decided.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from policies.plan import Reason
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import job_rows, run_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.facts import facts_from
from slurmplug.ledger.run_queries import Report
from slurmplug.ledger.sqlite import Row


@dataclass(frozen=True)
class DecidedStop:
    """A stop that was decided, and the job's progress before and after it. Times in seconds since the epoch.

    at: when the job was ended by it, or when it was first decided. done: whether it ended the job. reason: as it was
    decided first. predicted: the job's run time in seconds as first predicted, with the ends of its 90% interval, or
    None. seen: when the job was last seen.
    """

    record: JobRecord
    done: bool
    at: float
    reason: Reason
    predicted: tuple[float, float, float] | None
    seen: float
    reports: Sequence[Report]


def decided_stops(ledger: LedgerFile, start: float, end: float) -> list[DecidedStop]:
    """One stop of each job in that time: the one that ended it, else the first that the mode or a pause prevented."""
    found = [(True, row) for row in ledger.query(_STOPPED, start, end)]
    found += [(False, row) for row in ledger.query(_PREVENTED, start, end)]
    return [_decided(ledger, row, done=done) for done, row in found]


def stops_of(ledger: LedgerFile, jobs: Iterable[int]) -> list[DecidedStop]:
    """The stops that ended these jobs, of those that were ended by one. `jobs`: their rows."""
    return [_decided(ledger, row, done=True) for row in ledger.query(_STOPS_OF, json.dumps(list(jobs)))]


def _decided(ledger: LedgerFile, row: Row, *, done: bool) -> DecidedStop:
    predicted = row["predicted_low"], row["predicted"], row["predicted_high"]
    return DecidedStop(
        record=job_rows.record_from_row(row, ()),
        done=done,
        at=row["stop_at"],
        reason=Reason(row["stop_rule"], facts_from(json.loads(row["stop_facts"]))),
        predicted=None if None in predicted else predicted,
        seen=row["seen"],
        reports=run_queries.reports(ledger, row["id"]),
    )


_SEEN = "CASE ended WHEN 0 THEN max(last_seen, (SELECT max(started) FROM cycles)) ELSE last_seen END AS seen"
_ENDED = f"""
SELECT jobs.*, {_SEEN}, rule AS stop_rule, facts AS stop_facts, coalesce(jobs.end, since) AS stop_at, max(since)
FROM operations JOIN jobs ON jobs.id = operations.job JOIN stops ON stops.job = jobs.id AND stops.stop = rule
WHERE kind = 'stop' AND step = 'ended'
"""
_STOPPED = f"{_ENDED} GROUP BY jobs.id HAVING stop_at BETWEEN ? AND ? ORDER BY stop_at"
_STOPS_OF = f"{_ENDED} AND operations.job IN (SELECT value FROM json_each(?)) GROUP BY jobs.id"
_PREVENTED = f"""
SELECT jobs.*, {_SEEN}, rule AS stop_rule, facts AS stop_facts, min(first) AS stop_at
FROM decisions JOIN jobs ON jobs.id = decisions.job
WHERE kind = 'stop' AND veto IN ('mode', 'paused') AND job NOT IN (SELECT job FROM operations WHERE kind = 'stop')
GROUP BY jobs.id HAVING stop_at BETWEEN ? AND ? ORDER BY stop_at
"""
"""The rule and the facts are those of the row with the minimum: SQLite's bare columns."""

"""What `slurmplug usage` reads from the ledger: the jobs that ran in a time."""

from slurmplug.intake.job_record import JobFacts
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection, condition
from slurmplug.ledger.sqlite import Row


def jobs_that_ran(ledger: LedgerFile, which: Selection, start: float, end: float) -> list[Row]:
    """The columns of the jobs that ran between these times, or were requeued then after they ran, in seconds since the
    epoch. `which`: users and accounts. `seen` is when the job was last seen. Raises LedgerError."""
    where, values = condition(which, ())
    return ledger.query(_JOBS.format(where=where), *values, end, start, start, end)


_COLUMNS = ("id", "directives", "submitted_directives", "changes", "attained_before", *JobFacts._fields)
_JOBS = f"""
SELECT {", ".join(f"jobs.{name}" for name in _COLUMNS)}, NULL AS first_iteration,
    CASE ended WHEN 0 THEN max(last_seen, (SELECT max(started) FROM cycles)) ELSE last_seen END AS seen
FROM jobs WHERE {{where}} AND gpus > 0 AND (
    (jobs.start < ? AND (ended = 0 OR jobs.end > ?)) OR (attained_before > 0 AND submit BETWEEN ? AND ?)
)
"""

"""What `slurmplug usage` reads from the ledger: the jobs that ran in a time."""

from slurmplug.intake.job_facts import JobFacts
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.job_rows import row_with_facts
from slurmplug.ledger.selection import Selection, condition
from slurmplug.ledger.sqlite import Row


def jobs_that_ran(ledger: LedgerFile, which: Selection, start: float, end: float) -> list[Row]:
    """The columns of the jobs that ran between these times, or were requeued then after they ran, in seconds since the
    epoch; those of `JobFacts` as `facts`. `which`: users and accounts. `seen` is when the job was last seen.

    Raises:
        LedgerError
    """
    where, values = condition(which, ())
    found = ledger.tuples(_JOBS.format(where=where), *values, end, start, start, end)
    return [{"first_iteration": None, **row_with_facts(_COLUMNS, job)} for job in found]


_COLUMNS = ("seen", "id", "directives", "submitted_directives", "changes", "attained_before")
_JOBS = f"""
SELECT CASE ended WHEN 0 THEN max(last_seen, (SELECT max(started) FROM cycles)) ELSE last_seen END,
    {", ".join(f"jobs.{name}" for name in (*_COLUMNS[1:], *JobFacts._fields))}
FROM jobs WHERE {{where}} AND gpus > 0 AND (
    (jobs.start < ? AND (ended = 0 OR jobs.end > ?)) OR (attained_before > 0 AND submit BETWEEN ? AND ?)
)
"""

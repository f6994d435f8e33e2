"""What `slurmplug suggest` reads from the ledger: how jobs ended, beside what they had asked for.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from dataclasses import dataclass

from slurmplug.intake.job_facts import JobFacts
from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection
from slurmplug.ledger.sqlite import Row
from slurmplug.ledger.stored_directives import directives_from
from slurmplug.spool.values import GPUUse


@dataclass(frozen=True)
class EndedJob:
    """A job that ran and has ended. Times in seconds.

    type: its `--type`, empty without one. seconds: of its last run. stopped: slurmplug ended it. longest: the upper end
    of the 90% interval of its run time, as forecast from earlier runs when it was first seen; None where it was not.
    pace: seconds an iteration of its last run, None where fewer than four reports of it are kept.
    """

    facts: JobFacts
    type: str
    seconds: float
    stopped: bool
    longest: float | None
    gpu_use: GPUUse
    pace: float | None

    @property
    def kind(self) -> str:
        """The kind of the job: its type, else its name."""
        return self.type or self.facts.name

    @property
    def gpus(self) -> int:
        """Whole GPUs."""
        return self.facts.of_gpus.whole

    @property
    def gpu_hours(self) -> float:
        """GPU hours of its last run."""
        return self.gpus * self.seconds / 3_600.0


def ended_jobs(ledger: LedgerFile, which: Selection) -> list[EndedJob]:
    """The ended ones of the selected jobs, the earliest submission first. Raises UsageError if too many."""
    rows = json.dumps(queries.job_rows(ledger, which))
    return [_ended(row) for row in ledger.query(_ENDED, rows)]


def _ended(row: Row) -> EndedJob:
    directives = directives_from(row["directives"])
    by_runs = row["predicted_by"] not in _NOT_BY_RUNS
    facts = JobFacts(**{name: row[name] for name in JobFacts._fields})._replace(batch=bool(row["batch"]))
    return EndedJob(
        facts=facts,
        type=(directives.type if directives else "") or "",
        seconds=row["end"] - row["start"] - row["suspended"],
        stopped=bool(row["stopped"]),
        longest=row["predicted_high"] if by_runs else None,
        gpu_use=GPUUse(*json.loads(row["gpu_use"])),
        pace=row["pace"],
    )


_NOT_BY_RUNS = (None, "", "time limit")
_ENDED = """
WITH paces AS (
    SELECT job, min(max(time) - min(time), end - start - suspended) / (max(iteration) - min(iteration)) AS pace
    FROM progress JOIN jobs ON jobs.id = job
    WHERE progress.trial = jobs.trial AND progress.restarts = jobs.restarts AND job IN (SELECT value FROM json_each(?1))
    GROUP BY job HAVING count(*) > 3 AND max(iteration) > min(iteration) AND max(time) > min(time)
)
SELECT jobs.*, paces.pace AS pace, jobs.id IN (SELECT job FROM stops) AS stopped
FROM jobs LEFT JOIN paces ON paces.job = jobs.id
WHERE jobs.id IN (SELECT value FROM json_each(?1)) AND ended = 1 AND start IS NOT NULL AND end - start > suspended
ORDER BY submit, jobs.id
"""

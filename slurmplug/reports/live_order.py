"""The order of the live queue: by a few columns, as a report may show a few of thousands of jobs, or of whole jobs."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import WAITING
from slurmplug.reports.job_view import Job, leaving_rule


class Placed(NamedTuple):
    """A live job's place in the queue. `rank`: among the ranked pending jobs, from 1; `priority`: Slurm's own."""

    row: int
    rank: int | None
    priority: float


def live_order(ledger: LedgerFile) -> list[Placed]:
    """The live jobs in the order of the queue: those that run, those that are ranked in order, and the rest by id.

    Raises:
        LedgerError
    """
    rankings = queries.cycle_rankings(ledger)
    if rankings is None:
        return []
    found = []
    for job in queries.live_jobs(ledger):
        row, job_id, submitted, state, given_back, unread = job
        left_to_slurm = leaving_rule(bool(given_back), rankings.column("spared", row), bool(unread))
        score = None if left_to_slurm else rankings.column("rank", row)
        found.append((state in WAITING, score, submitted, job_id, row))
    scored = ((score, *rest) for waits, score, *rest in found if waits and score is not None)
    waiting = sorted((-score, *rest) for score, *rest in scored)
    ranks = {row: rank for rank, (*_, row) in enumerate(waiting, start=1)}

    def place(job: tuple[bool, float | None, float, int, int]) -> tuple[bool, float, float, int]:
        waits, score, _, job_id, row = job
        return waits, ranks.get(row, math.inf), math.inf if score is None else -score, job_id

    return [
        Placed(row, ranks.get(row), rankings.column("priority", row) or 0.0) for *_, row in sorted(found, key=place)
    ]


def ranked(queue: Iterable[Job]) -> list[Job]:
    """The pending jobs that slurmplug ranks, the first to go first."""
    waiting = [job for job in queue if job.waits and job.score is not None]
    return sorted(waiting, key=lambda job: (-(job.score or 0.0), job.key.first_submit, job.key.job_id))

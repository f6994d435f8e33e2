"""The order of the live queue: by a few columns, as a report may show a few of thousands of jobs, or of whole jobs."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import WAITING
from slurmplug.reports.job_view import Job


class Placed(NamedTuple):
    """A live job's place in the queue. `rank`: among the ranked pending jobs, from 1; `priority`: Slurm's own."""

    row: int
    rank: int | None
    priority: float
    waits: bool


def live_order(ledger: LedgerFile) -> list[Placed]:
    """The live jobs in the order of the queue: those that run, those that are ranked in order, and the rest by id.

    Raises:
        LedgerError
    """
    rankings = queries.cycle_rankings(ledger)
    if rankings is None:
        return []
    spared, scores, priorities = (rankings.columns[name] for name in ("spared", "rank", "priority"))
    order = []
    for row, job_id, submitted, state, given_back in queries.live_jobs(ledger):
        score = None if given_back or spared[row] else scores[row]
        waits = state in WAITING
        before = (-score, submitted if waits else 0.0) if score is not None else ()
        order.append((waits, score is None, before, job_id, row))
    order.sort()
    ranks = itertools.count(1)
    return [
        Placed(row, next(ranks) if waits and not unscored else None, priorities[row] or 0.0, waits)
        for waits, unscored, _, _, row in order
    ]


def ranked(queue: Iterable[Job]) -> list[Job]:
    """The pending jobs that slurmplug ranks, the first to go first."""
    waiting = [job for job in queue if job.waits and job.score is not None]
    return sorted(waiting, key=lambda job: (-(job.score or 0.0), job.key.first_submit, job.key.job_id))

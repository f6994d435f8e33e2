"""The live queue: its jobs in order, and what is being done to each."""

from dataclasses import replace
from typing import NamedTuple

from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection
from slurmplug.reports import explain, job_view
from slurmplug.reports.job_view import Job
from slurmplug.reports.live_order import live_order

EVERYTHING = slice(None)


class QueueEntry(NamedTuple):
    """A job in the queue. `rank`: its place among the ranked pending jobs, from 1. `action`: what is being done to it,
    or would be; empty for nothing."""

    job: Job
    rank: int | None
    action: str

    @property
    def doing(self) -> str:
        """That, or why nothing is done."""
        if self.action:
            return self.action
        job, ranking = self.job, self.job.ranking
        note = ranking.note if ranking and not job.given_back else None
        return explain.left_to_slurm(job.left_to_slurm_by, note)


def queue_view(ledger: LedgerFile, which: Selection, page: slice = EVERYTHING) -> list[QueueEntry]:
    """The live jobs of this selection: those that run, those that are ranked in order, and the rest by id.

    page: which of them, by their place in that order.
    """
    order = live_order(ledger)
    if replace(which, most=0) != Selection(live=True):
        wanted = set(queries.job_rows(ledger, which))
        order = [placed for placed in order if placed.row in wanted]
    order = order[page]
    shown = {job.row: job for job in job_view.jobs_in_rows(ledger, [placed.row for placed in order])}
    doing = {action.job: explain.forbidden(action) for action in queries.forbidden_actions(ledger)}
    doing |= {step.job: explain.open_step(step) for step in queries.open_steps(ledger)}
    return [
        QueueEntry(shown[placed.row], placed.rank, doing.get(placed.row, "")) for placed in order if placed.row in shown
    ]

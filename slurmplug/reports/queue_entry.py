"""A job in the live queue, with its place there and what is done to it."""

from typing import NamedTuple

from slurmplug.reports import explain
from slurmplug.reports.job_view import Job


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

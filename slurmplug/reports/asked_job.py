"""What a job id that somebody asks about stands for: a job, an array, a component of a heterogeneous job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.interface import JobExplanation, Reports, Table

NOT_KNOWN = (
    "it was submitted after the last cycle, never existed, is older than the retention, or Slurm does not show it to "
    "you"
)
"""Why slurmplug knows no job with an id."""


@dataclass(frozen=True)
class AskedJob:
    """What is known of it.

    ids, values: of each job that has this id, its id, and of the fields that were asked for a list each. explained: the
    job that is meant; of an array only where each was to be explained. together: the elements of an array that wait
    together, where the id is of an element that has not started. component: the id, where it is of a component of a
    heterogeneous job, and `explained` of another one, its leader.
    """

    ids: Sequence[str]
    values: Table
    explained: Sequence[JobExplanation]
    together: Sequence[JobExplanation]
    component: str | None

    @property
    def several(self) -> bool:
        """Whether it is an array of which no element is explained."""
        return not self.explained and not self.together


def asked_job(
    reports: Reports, wanted: JobId, fields: Sequence[str], *, curves: bool, each: bool = False
) -> AskedJob | None:
    """What an id stands for; None where no such job is known.

    fields: by their names in JSON. curves: with learning curves. each: explain every job that has this id, without
    regard to who leads it.
    """
    ids, leaders, *values = reports.jobs(Selection(jobs=(wanted,)), ["jobid", "hetjobid", *fields])
    shown = [str(job) for job in ids]
    leader = _leader(leaders)
    if not shown:
        together = [] if wanted.task is None else _waiting(reports.explain_job(JobId(wanted.number)))
        return AskedJob((), values, (), together, None) if together else None
    if each:
        return AskedJob(shown, values, reports.explain_job(wanted, curves=curves), (), None)
    if leader is None:
        explained = reports.explain_job(wanted, curves=curves) if len(shown) == 1 else []
        return AskedJob(shown, values, explained, (), None)
    explained = reports.explain_job(JobId(leader), curves=curves)
    first = [job for job in explained if job.job["jobidraw"] == leader]
    component = shown[0] if first and shown[0] != first[0].job["jobid"] else None
    return AskedJob(shown, values, first or explained, (), component)


def _leader(leaders: Sequence[Any]) -> int | None:
    """The id of the first component, where all that was found is of one heterogeneous job."""
    jobs = set(leaders)
    return jobs.pop() if len(jobs) == 1 else None


def _waiting(array: Iterable[JobExplanation]) -> list[JobExplanation]:
    """The entry for the elements of an array that are pending as one job."""
    return [each for each in array if each.waits_in_array]

"""Whether a job can meet its deadline, by the run time that is predicted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from slurmplug.reports.job_view import Job

Chance: TypeAlias = Literal["can be met", "may be missed", "will be missed", "cannot be met", "passed"]
MARKS: dict[str, str] = {"may be missed": "?", "will be missed": "!", "cannot be met": "!!", "passed": "!!"}
"""What `queue` puts behind a deadline: ? where less than 95 % of the predicted ends are in time, ! where less than
half, !! where less than 5 %, or where it has passed."""


class PredictedEnd(NamedTuple):
    """When a job that lives is predicted to end, in seconds since the epoch, and the ends of the 90 % interval.

    One that waits begins when Slurm expects to start it, or now where that is not known.
    """

    median: float
    low: float
    high: float


def predicted_end(job: Job) -> PredictedEnd | None:
    """When it ends; None where its run time is not predicted."""
    left = job.remaining
    if left.value is None:
        return None
    begins = job.seen if job.expected is None else job.expected
    low, high = (left.value if end is None else end for end in (left.low, left.high))
    return PredictedEnd(begins + left.value, begins + low, begins + high)


def chance(job: Job) -> Chance | None:
    """Whether a live job can meet its deadline; None if it has no deadline, or its end is not predicted."""
    deadline = job.directives.deadline if job.directives else None
    if deadline is None or not job.live:
        return None
    if job.seen > deadline:
        return "passed"
    if (share := in_time(job)) is not None:
        return next(name for least, name in _SHARES if share >= least)
    end = predicted_end(job)
    if end is None:
        return None
    if end.median <= deadline:
        return "can be met" if end.high <= deadline else "may be missed"
    return "cannot be met" if end.low > deadline else "will be missed"


def in_time(job: Job) -> float | None:
    """By the forecast of the queue, the share in which it ends by its deadline; None where that does not tell, as of a
    job that runs and of which the last cycle has predicted what is left, and where the deadline has passed."""
    outlook, deadline = job.outlook, job.directives.deadline if job.directives else None
    if outlook is None or deadline is None or outlook.deadline != deadline or job.seen > deadline:
        return None
    return outlook.in_time if ends_by_queue(job) else None


def expected_end(job: Job) -> float | None:
    """When a job that lives is expected to end, in seconds since the epoch; None where that is not known.

    Of one that waits by the forecast of the queue, else from when Slurm expects to start it.
    """
    outlook = job.outlook
    if outlook is not None and outlook.end is not None and ends_by_queue(job):
        return max(outlook.end, job.seen)
    end = None if job.waits and job.expected is None else predicted_end(job)
    return None if end is None else end.median


def ends_by_queue(job: Job) -> bool:
    """Whether the forecast of the queue tells of its end: nothing newer does."""
    return job.waits or job.remaining.value is None


_SHARES: tuple[tuple[float, Chance], ...] = (
    (0.95, "can be met"),
    (0.5, "may be missed"),
    (0.05, "will be missed"),
    (0.0, "cannot be met"),
)

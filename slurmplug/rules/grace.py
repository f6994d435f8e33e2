"""How long a job may take to save or to end, from a request to the next step. Pure."""

import math

from policies.snapshot import Snapshot

GRACE_REPORTS = 2
"""A job that declared no grace has at least the time between this many of its reports."""
MAX_GRACE = 86_400.0
"""Seconds; the most that a job can declare. Its reports, which are claims, never give it more."""


def grace_seconds(snapshot: Snapshot, row: int, least: float) -> float:
    """Seconds that the job may take: as declared, else the site's `least`, or twice the time between its reports.

    A job that trains for an hour between two reports checks for requests once an hour.
    """
    jobs = snapshot.jobs
    declared = float(jobs.grace[row])
    if not math.isnan(declared):
        return declared
    reported = max(jobs.losses.row(row)[0], jobs.accuracies.row(row)[0], key=len)
    iterations = float(reported[-1] - reported[-2]) if len(reported) > 1 else 1.0
    interval = iterations * float(jobs.iteration_time[row])
    return max(least, min(GRACE_REPORTS * interval, MAX_GRACE)) if math.isfinite(interval) else least

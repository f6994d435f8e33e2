"""What jobs report of the load of their nodes.

Each figure stays with the job that reported it: it is a claim, which may bear on that job alone. What Slurm measures of
a node is in `Nodes.load`.
"""

from collections.abc import Sequence

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.intake.job_record import JobRecord

LOAD_MAX_AGE = 300.0
"""Seconds after which a reported load is ignored."""


def reported_load(records: Sequence[JobRecord], name: str, reporting: Ints, now: float) -> Floats:
    """(n,) a figure that each job reports of its first node, NaN where not reported.

    Args:
        records: (n,) of the jobs.
        name: sent, the bytes per second that leave the node, or network, the share of its bandwidth in use.
        reporting: the rows of the jobs that ever reported a load.
        now: seconds since the epoch.
    """
    found = np.full(len(records), np.nan)
    found[reporting] = [_recent(records[row], name, now) for row in reporting.tolist()]
    return found


def gpus_used(records: Sequence[JobRecord], reporting: Ints, now: float) -> Floats:
    """(n,) as `policies.snapshot.Jobs.gpus_used`; the arguments as of `reported_load`."""
    last = np.array([record.points.gpu_use.used_at for record in records], dtype=np.float64)
    return np.where(np.isnan(reported_load(records, "gpu", reporting, now)), np.nan, last)


def _recent(record: JobRecord, name: str, now: float) -> float:
    """The figure that the present run reported last, NaN if it is too old or an earlier run's, on other nodes."""
    if record.points_run != record.facts.restarts or not now - record.points.load_time <= LOAD_MAX_AGE:
        return np.nan
    return record.points.load.get(name, np.nan)

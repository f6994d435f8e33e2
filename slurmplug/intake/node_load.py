"""The load of the GPUs and network of each node, from the reports of the jobs on it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.snapshot import RESOURCES, Nodes
from predictors.arrays import Floats, Ints
from slurmplug.intake.job_record import JobRecord

LOAD_MAX_AGE = 300.0
"""Seconds after which a reported load is ignored."""


def traffic(records: Sequence[JobRecord], reporting: Ints, now: float) -> Floats:
    """(n,) bytes per second that leave each job's first node, NaN where not reported.

    `reporting`: the rows of the jobs that ever reported a load.
    """
    found = np.full(len(records), np.nan)
    found[reporting] = [_recent(records[row], "sent", now) for row in reporting.tolist()]
    return found


def with_reported_load(nodes: Nodes, records: Sequence[JobRecord], runs_on: Ints, now: float) -> Nodes:
    """The nodes with the load of their GPUs and network as the jobs on them report it, and the oldest figure's age.

    A job's first process reports its own node; the job's other nodes are assumed to have the same load, as in
    synchronous training. A node's GPUs in use are the sum over its jobs, its network share the largest reported.

    Args:
        nodes: as Slurm reports them.
        records: (n,) of the jobs.
        runs_on: (allocations, 3) job row, node row, GPUs.
        now: seconds since the epoch.
    """
    if not len(runs_on):
        return nodes
    rows, at, held = runs_on.T
    those = [records[row] for row in rows.tolist()]
    gpu, network = (np.array([_recent(record, name, now) for record in those]) for name in ("gpu", "network"))
    ages = np.array([now - record.points.load_time for record in those])
    busy = np.bincount(at, weights=np.nan_to_num(gpu * held), minlength=len(nodes.names))
    reported = np.bincount(at, weights=~np.isnan(gpu), minlength=len(nodes.names)) > 0
    load, age, share = nodes.load.copy(), nodes.load_age.copy(), nodes.network.copy()
    column = RESOURCES.index("gpus")
    load[reported, column] = busy[reported]
    np.fmax.at(share, at, network)
    known = ~np.isnan(gpu) | ~np.isnan(network)
    np.maximum.at(age, at[known], np.maximum(ages[known], 0.0))
    return replace(nodes, load=load, load_age=age, network=share)


def _recent(record: JobRecord, name: str, now: float) -> float:
    """The figure that the present run reported last, NaN if it is too old or an earlier run's, on other nodes."""
    if record.points_run != record.facts.restarts or not now - record.points.load_time <= LOAD_MAX_AGE:
        return np.nan
    return record.points.load.get(name, np.nan)

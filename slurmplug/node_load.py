"""What the nodes bear beyond what is allocated: what Slurm measures, and what the jobs on them report."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.snapshot import RESOURCES, Nodes
from predictors.arrays import Floats, Ints
from slurmplug.record import JobRecord

BELIEVED_FOR = 300.0
"""Seconds after which what a job told of its node's load says nothing any more."""


def traffic(records: Sequence[JobRecord], told: Ints, now: float) -> Floats:
    """(n,) bytes a second that leave each job's first node, NaN where it does not tell. `told`: the rows of who may."""
    found = np.full(len(records), np.nan)
    found[told] = [_recent(records[row], "sent", now) for row in told.tolist()]
    return found


def with_reports(nodes: Nodes, records: Sequence[JobRecord], runs_on: Ints, now: float) -> Nodes:
    """The nodes with the load of their GPUs and network as the jobs on them tell it, and the age of the oldest figure.

    A job's first process tells of its own node; its other nodes are taken to bear the same, since training in step
    does. A node's GPUs in use are the sum over its jobs, its network share the greatest that is told.
    """
    if not len(runs_on):
        return nodes
    rows, at, held = runs_on.T
    those = [records[row] for row in rows.tolist()]
    gpu, network = (np.array([_recent(record, name, now) for record in those]) for name in ("gpu", "network"))
    ages = np.array([now - record.points.load_time for record in those])
    busy = np.bincount(at, weights=np.nan_to_num(gpu * held), minlength=len(nodes.names))
    told_gpu = np.bincount(at, weights=~np.isnan(gpu), minlength=len(nodes.names)) > 0
    load, age, share = nodes.load.copy(), nodes.load_age.copy(), nodes.network.copy()
    column = RESOURCES.index("gpus")
    load[told_gpu, column] = busy[told_gpu]
    np.fmax.at(share, at, network)
    known = ~np.isnan(gpu) | ~np.isnan(network)
    np.maximum.at(age, at[known], np.maximum(ages[known], 0.0))
    return replace(nodes, load=load, load_age=age, network=share)


def _recent(record: JobRecord, name: str, now: float) -> float:
    """The figure that the present run reported last; one of a run before it was measured on other nodes."""
    if record.points_of != record.facts.restarts or not now - record.points.load_time <= BELIEVED_FOR:
        return np.nan
    return record.points.load.get(name, np.nan)

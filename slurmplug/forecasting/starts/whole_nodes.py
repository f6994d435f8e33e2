"""Waiting jobs that Slurm gives whole nodes (OverSubscribe=EXCLUSIVE), as demand for nodes on which nothing runs.

Nodes are one more resource, of which a node has 1: what runs on it holds all of it in equal shares, and only such jobs
need any. As with other resources, shares of several nodes add up.
"""

from __future__ import annotations

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limits import Limits

_SLACK = 1e-6
"""of a node: the shares of seven jobs do not add up to all of it"""
_CHARGED = 2
"""resources of which a whole node has no rest for others: GPUs and CPUs"""


def gets_whole_nodes(jobs: Jobs, limits: Limits | None) -> Bools:
    """(n,) whether a job waits for whole nodes in each of its partitions."""
    if limits is None or not limits.whole_nodes:
        return np.zeros(len(jobs), dtype=bool)
    names, rows = np.unique(jobs.partition, return_inverse=True)
    whole = np.array([limits.whole_nodes.issuperset(name.split(",")) for name in names.tolist()], dtype=bool)
    return np.asarray(whole[rows] & jobs.pending)


def demand_with_nodes(snapshot: Snapshot, whole: Bools) -> Floats:
    """(n, resources) what jobs request; if any gets whole nodes, (n, resources + 1) with these nodes, and with all
    GPUs and CPUs of as many of the smallest nodes on which it may run."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    if not whole.any():
        return jobs.demand
    found: Floats = np.column_stack([jobs.demand, np.zeros(len(jobs))])
    for kind in np.unique(jobs.placement[whole]).tolist():
        rows = np.flatnonzero(whole & (jobs.placement == kind))
        capacity = nodes.capacity[snapshot.fits[kind] & nodes.up]
        most, least = capacity.max(axis=0, initial=0.0), capacity.min(axis=0, initial=np.inf)
        parts = np.where(most > 0, found[rows, :-1] / np.where(most > 0, most, 1.0), 0.0)
        count = np.maximum(np.ceil(parts.max(axis=1)), 1.0)
        of_nodes = count[:, None] * np.where(np.isfinite(least), least, 0.0)[:_CHARGED]
        found[rows, :_CHARGED] = np.maximum(found[rows, :_CHARGED], of_nodes)
        found[rows, -1] = count - _SLACK
    return found


def with_shares_of_nodes(amounts: Floats, node: Ints, nodes: int) -> Floats:
    """(k, resources + 1) the amounts (k, resources) that jobs hold of these nodes (k,), and their shares of these."""
    on = np.bincount(node, minlength=nodes)
    return np.column_stack([amounts, 1.0 / on[node]])

"""Arrays that wait for nothing but their own throttle (`--array=0-9%2`), beside idle nodes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from policies.placement.allocation import startable
from policies.snapshot import Snapshot

REASON = "JobArrayTaskLimit"
"""Slurm's, of an array of which as many elements run as its throttle allows"""


class ThrottledArray(NamedTuple):
    """An array that waits for its throttle alone: its row, and how many more elements the idle nodes could run, however
    many wait; 0 where they could run none."""

    row: int
    more: int


def throttled_arrays(snapshot: Snapshot) -> Iterator[ThrottledArray]:
    """Those with whole GPUs. Nodes on which a job may run that waits for room do not count as idle, as Slurm may be
    keeping them for it; nor what is left of several nodes together, as an element is taken to run on one."""
    jobs, nodes = snapshot.jobs, snapshot.nodes
    rows = np.flatnonzero(jobs.pending & (jobs.reason == REASON) & ~jobs.held & (jobs.gpus > 0))
    if not len(rows):
        return
    wanted = snapshot.fits[np.unique(jobs.placement[startable(jobs)])].any(axis=0)
    free = np.where((nodes.up & ~wanted)[:, None], np.maximum(nodes.capacity - nodes.used, 0.0), 0.0)
    for row in rows.tolist():
        needed = np.flatnonzero(jobs.demand[row] > 0)
        there = free[snapshot.fits[jobs.placement[row]]]
        yield ThrottledArray(row, int((there[:, needed] // jobs.demand[row, needed]).min(axis=1).sum()))

"""What the simulated Slurm promises a waiting job by EASY backfill."""

import math

import numpy as np

from slurmplug.sim.slurm.easy import Easy
from slurmplug.sim.slurm.partitions import JobPartitions, one_for_all
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass
from slurmplug.sim.slurm.settings import LauncherSettings


def earliest_start(
    pending: Pending,
    row: int,
    held: HeldResources,
    room: NodeResources,
    now: float,
    *,
    partitions: JobPartitions | None = None,
) -> float:
    """When the job could start at the latest, if nothing else started: by the time limits; infinite where never."""
    nodes = np.flatnonzero((room.reservation == pending.reservation[row]) & room.up)
    partitions = partitions or one_for_all(len(pending), len(room.free))
    one = SchedulingPass(pending, held, room, nodes, partitions, now=now, settings=LauncherSettings())
    promised = Easy(one).promise(row)
    return promised.time if promised else math.inf

"""Which pending jobs Slurm would start now, and where: priority order and backfill on time limits.

As Slurm's job_scheduler.c and sched/backfill do it, without what a simulation of training does not need: jobs start in
order of their partitions' PriorityTier and then of priority. Where one does not fit, no later job of its partition, nor
of another on nodes of that partition, starts in that order any more, but only by backfill. A job that would be above a
limit of its QOS or associations is passed over, whether there is room for it or not, and is promised nothing. Pure:
clock and queue are the caller's.
"""

from itertools import islice

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.sim.slurm.backfill import Backfill
from slurmplug.sim.slurm.easy import Easy
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.multifactor import priority, size_factor
from slurmplug.sim.slurm.partitions import JobPartitions, one_for_all
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending, Start
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass
from slurmplug.sim.slurm.settings import LauncherSettings


def priorities(
    pending: Pending, room: NodeResources, fairshare: Floats, now: float, settings: LauncherSettings
) -> Ints:
    """The priority of each pending job (n,). fairshare: (n,) from 0 to 1.

    A job requests as few nodes as can hold it.
    """
    least = np.ceil(pending.gpus / max(room.total[:, 0].max(initial=0.0), 1.0))
    nodes, units = np.maximum(np.maximum(least, pending.nodes), 1.0), pending.units
    weights, limit = settings.weights, np.where(pending.time_limit > 0, pending.time_limit, settings.default_limit)
    of_nodes, of_cpus = nodes / max(len(room.total), 1), pending.demand[:, 1] * units / max(room.total[:, 1].sum(), 1.0)
    return priority(
        weights,
        waited=now - np.maximum(pending.eligible, pending.begin),
        fairshare=fairshare,
        size=size_factor(weights, of_nodes, of_cpus, limit),
        qos=pending.qos,
        partition=pending.partition,
        nice=pending.nice,
        site_factor=pending.site_factor,
        requested=np.column_stack([pending.demand[:, :3] * units[:, None], nodes]) if weights.tres else None,
        assoc=pending.assoc,
    )


def jobs_to_start(
    pending: Pending,
    held: HeldResources,
    room: NodeResources,
    of_priority: Ints,
    *,
    now: float,
    settings: LauncherSettings | None = None,
    limited: Limited | None = None,
    partitions: JobPartitions | None = None,
) -> tuple[Start, ...]:
    """The jobs to start now, in that order. held: only backfill uses it. of_priority: (n,) of `priorities`.
    limited: what the limits of QOS and associations leave to each (n,); what starts is added to it. partitions: of each
    (n,), None for one with all nodes.

    Nodes with a reservation are for the jobs that name it, and these run nowhere else; so each reservation is a queue
    of its own. The same priority: first submitted, first started.
    """
    settings = settings or LauncherSettings()
    if not len(pending):
        return ()
    partitions = partitions or one_for_all(len(pending), len(room.free))
    ranked = np.lexsort((-of_priority, -partitions.tier))
    ranked = ranked[pending.begin[ranked] <= now]
    if limited is not None:
        ranked = ranked[~limited.held_back()[ranked]]
    started: list[Start] = []
    names = np.unique(pending.reservation[ranked]).tolist() if (pending.reservation != "").any() else [""]
    for name in names:
        rows = ranked[pending.reservation[ranked] == name] if len(names) > 1 or name else ranked
        nodes = np.flatnonzero((room.reservation == name) & room.up)
        if len(nodes):
            one = SchedulingPass(pending, held, room, nodes, partitions, now=now, settings=settings, limited=limited)
            started += one.in_order(rows)
            if settings.backfill:
                backfill = Backfill(one, settings.reservations) if settings.reservations else Easy(one)
                tried = settings.bf_limits.tried(pending, one.left, settings.bf_max_job_test)
                started += islice(backfill.run(tried), settings.bf_limits.starts or None)
    if len(names) == 1:
        return tuple(started)
    order = {int(row): place for place, row in enumerate(ranked)}
    return tuple(sorted(started, key=lambda start: order[start.row]))

"""Plans from a queue order: the scores, and the actions that give each job its GPUs."""

import numpy as np

from policies.placement.allocation import allocate, gang_gpus, held_gpus, score_from_order, startable
from policies.placement.space import Packing
from policies.plan import NOTHING_REMEMBERED, Action, Memory, Plan, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Ints


def plan_in_order(
    snapshot: Snapshot,
    order: Ints,
    *,
    preempt: bool = False,
    strict: bool = False,
    packing: Packing = "tight",
    memory: Memory = NOTHING_REMEMBERED,
) -> Plan:
    """Run the jobs in this order of rows, each on the GPUs that it requested.

    preempt: running jobs are preempted for jobs before them. strict: no job starts before one that has no room yet.
    """
    if strict:
        wanted = np.where(startable(snapshot.jobs), snapshot.jobs.gpus, held_gpus(snapshot))
    else:
        wanted = gang_gpus(snapshot, order, preempt=preempt)
    return plan_allocation(snapshot, order, wanted, strict=strict, exact=True, packing=packing, memory=memory)


def plan_allocation(
    snapshot: Snapshot,
    order: Ints,
    wanted: Ints,
    *,
    strict: bool = False,
    exact: bool = False,
    packing: Packing = "tight",
    placement_order: Ints | None = None,
    memory: Memory = NOTHING_REMEMBERED,
    servers: Ints | None = None,
) -> Plan:
    """The scores by this order, and the actions that give each job its target GPUs, `wanted` (n,).

    strict, exact, packing, servers: as for `allocate`. placement_order: the order in which jobs are placed, if not
    `order`.
    """
    by_placement = order if placement_order is None else placement_order
    allocation = allocate(snapshot, by_placement, wanted, strict=strict, exact=exact, packing=packing, servers=servers)
    return Plan(
        score_from_order(snapshot.jobs, order),
        actions=allocation.actions + admission_releases(snapshot.jobs),
        memory=memory,
    )


def admission_releases(jobs: Jobs, which: Bools | None = None) -> tuple[Action, ...]:
    """Releases of all jobs that are held for admission, or of those in `which` (n,); a policy without admission uses
    all."""
    rows = jobs.awaits & jobs.managed & jobs.pending
    if which is not None:
        rows = rows & which
    return tuple(Action("release", jobs.keys[row], Reason("admitted")) for row in np.flatnonzero(rows).tolist())

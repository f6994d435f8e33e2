"""Plans from a queue order: the rank, and the actions that give each job its GPUs."""

import numpy as np

from policies.placement.allocation import allocate, gang_gpus, held_gpus, rank_from_order, startable
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
    """Those first that come first in this order of rows, each with the GPUs that it asked for.

    preempt: what runs gives way to what comes before it. strict: nothing starts past a job for which there is no room.
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
    placed: Ints | None = None,
    memory: Memory = NOTHING_REMEMBERED,
) -> Plan:
    """The rank of this order, and the actions that give each job the GPUs that it ought to have.

    strict, exact, packing: as for `allocate`. placed: in which order the places are chosen, where it is another.
    """
    first = order if placed is None else placed
    allocation = allocate(snapshot, first, wanted, strict=strict, exact=exact, packing=packing)
    return Plan(
        rank_from_order(snapshot.jobs, order),
        actions=allocation.actions + admission_releases(snapshot.jobs),
        memory=memory,
    )


def admission_releases(jobs: Jobs, which: Bools | None = None) -> tuple[Action, ...]:
    """The release of all jobs that are held for admission, or of these (n,): a policy without admission lets all in."""
    rows = jobs.awaits & jobs.managed & jobs.pending
    if which is not None:
        rows = rows & which
    return tuple(Action("release", jobs.keys[row], Reason("admitted")) for row in np.flatnonzero(rows).tolist())

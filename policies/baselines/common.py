"""What the baselines have in common: a plan out of an order, and run times with a fallback."""

import numpy as np

from policies.allocation import Packing, allocate, gangs, held_gpus, ranked, startable
from policies.plan import NOTHING_REMEMBERED, Action, Memory, Plan, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast


def ordered(
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
        wanted = gangs(snapshot, order, preempt=preempt)
    return shared(snapshot, order, wanted, strict=strict, exact=True, packing=packing, memory=memory)


def shared(
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
    return Plan(ranked(snapshot.jobs, order), actions=allocation.actions + admitted(snapshot.jobs), memory=memory)


def admitted(jobs: Jobs, which: Bools | None = None) -> tuple[Action, ...]:
    """The release of all jobs that are held for admission, or of these (n,): a policy without admission lets all in."""
    rows = jobs.awaits & jobs.managed & jobs.pending
    if which is not None:
        rows = rows & which
    return tuple(Action("release", jobs.keys[row], Reason("admitted")) for row in np.flatnonzero(rows).tolist())


def sizes(snapshot: Snapshot) -> Floats:
    """(n, resources) what each job asks for, in shares of all that the nodes have."""
    capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
    return np.asarray(snapshot.jobs.demand / np.where(capacity > 0, capacity, np.inf))


def total_seconds(jobs: Jobs, forecast: Forecast) -> Floats:
    """(n,) expected run time in all; the time limit where nothing is forecast, NaN where there is none either."""
    return np.where(forecast.known, forecast.mean, jobs.time_limit)


def remaining_seconds(snapshot: Snapshot, forecast: Forecast) -> Floats:
    """(n,) expected run time left; what the time limit leaves where nothing is forecast, NaN without one."""
    jobs = snapshot.jobs
    elapsed = np.nan_to_num(np.maximum(snapshot.now - jobs.started, 0.0))
    return np.where(forecast.known, forecast.mean, np.maximum(jobs.time_limit - elapsed, 0.0))

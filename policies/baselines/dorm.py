"""As many GPUs in use as may be, but fairly and without moving everyone: a mixed-integer programme."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from policies.allocation import elastic, gangs, held_gpus, in_order, movable, startable
from policies.baselines.common import shared, sizes
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecasts

UNFAIR = 10.0
"""what a unit of fairness loss beyond its limit costs, in all that the cluster has"""
OLDEST = 1e-3
"""by how much the first of all jobs is preferred to the last, which tells alike ones apart"""


@dataclass(frozen=True)
class DormSettings:
    """fairness: fairness loss that is allowed, theta 1, in [0, 1]. adjustment: share of the running jobs whose GPUs may
    change at once, theta 2. seconds, branches: limits of the solver. most: jobs that it sees, the first in line."""

    fairness: float = 0.2
    adjustment: float = 0.2
    seconds: float = 2.0
    branches: int = 50
    most: int = 150

    def __post_init__(self) -> None:
        for name in ("fairness", "adjustment"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is between 0 and 1, not {getattr(self, name)}")
        for name in ("seconds", "branches", "most"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is greater than 0, not {getattr(self, name)}")


class Dorm(Policy):
    """Utilisation at its greatest, within limits on unfairness and on change (Sun et al., ICDCS 2017, section III).

    Whenever a job came or ended, how many GPUs each job gets is found anew by a mixed-integer linear programme: the
    greatest sum over resources of what is in use, where the shares of all jobs differ from dominant resource fairness
    by at most theta 1 (in all, as a part of 2), and at most theta 2 of the running jobs change. All jobs are admitted,
    rigid ones with what they ask for or not at all. The paper's programme also chooses nodes; here places are chosen
    afterwards, on as few nodes as will do, since its size grows by the nodes. The limit on unfairness can be passed, at
    a price, since gangs may leave no other way. HiGHS solves it, as far as it comes within its limits; where it finds
    nothing, what runs goes on and what fits starts in order of submission.
    """

    name = "dorm"
    decides_on = "events"

    def __init__(self, settings: DormSettings | None = None) -> None:
        self.settings: DormSettings = settings or DormSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing is forecast
        """Rank by submission, and give GPUs as the programme says."""
        jobs = snapshot.jobs
        order = in_order(jobs, jobs.state != "running")
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        fallback = gangs(snapshot, order, preempt=flexible, asked=least)
        wanted = _remembered(snapshot, order, memory)
        if wanted is None:
            rows = order[(jobs.managed & (startable(jobs) | movable(jobs)))[order]][: self.settings.most]
            wanted = fallback.copy()
            found = solved(snapshot, rows, fallback, self.settings)
            if found is not None:
                wanted[rows] = found
        return shared(snapshot, order, wanted, memory=_noted(snapshot, order, wanted))


def solved(snapshot: Snapshot, rows: Ints, wanted: Ints, settings: DormSettings) -> Ints | None:
    """(k,) GPUs for each of these rows, all other jobs at what they ought to have; None where none was found.

    Variables, k each: GPUs n, whether the job runs a, how far its share is from the fair one d, whether it changes c;
    and the fairness loss s beyond its limit.
    """
    jobs, k = snapshot.jobs, len(rows)
    if not k:
        return None
    flexible = elastic(jobs)
    held = held_gpus(snapshot)[rows].astype(np.float64)
    least = np.where(flexible, jobs.gpus_min, jobs.gpus)[rows].astype(np.float64)
    most = np.where(flexible, jobs.gpus_max, jobs.gpus)[rows].astype(np.float64)
    each = (sizes(snapshot) / np.maximum(jobs.gpus, 1)[:, None])[rows]
    capacity = _left(snapshot, rows, wanted)
    share = each.max(axis=1)
    fair = fair_shares(each, most, capacity)
    runs = held > 0

    one, none, zero = np.eye(k), np.zeros((k, k)), np.zeros((k, 1))
    across, kinds = np.zeros((1, k)), np.zeros((each.shape[1], k))
    shares, reach = np.diag(share), np.diag(np.maximum(most, held))
    columns = np.block(
        [
            [one, -np.diag(least), none, none, zero],  # at least its least, if it runs
            [one, -np.diag(most), none, none, zero],  # and at most its most
            [each.T, kinds, kinds, kinds, kinds[:, :1]],  # within what there is of each resource
            [shares, none, -one, none, zero],  # its share is no further above the fair one than d
            [shares, none, one, none, zero],  # nor below
            [one, none, none, -reach, zero],  # it has what it holds, unless it changes
            [one, none, none, reach, zero],
            [across, across, across + 1.0, across, -np.ones((1, 1))],  # the fairness loss, and what of it is beyond
            [across, across, across, across + runs, np.zeros((1, 1))],  # how many change
        ]
    )
    free = np.full(k, np.inf)
    limits = [
        (np.zeros(k), free),
        (-free, np.zeros(k)),
        (np.full(len(capacity), -np.inf), capacity),
        (-free, fair),
        (fair, free),
        (-free, np.where(runs, held, np.inf)),
        (np.where(runs, held, -np.inf), free),
        (np.array([-np.inf]), np.array([2.0 * settings.fairness])),
        (np.array([-np.inf]), np.array([np.ceil(settings.adjustment * runs.sum())])),
    ]
    lower, upper = (np.concatenate([pair[side] for pair in limits]) for side in (0, 1))
    worth = each.sum(axis=1) * (1.0 + OLDEST * np.linspace(1.0, 0.0, k))
    found = milp(
        np.concatenate([-worth, np.zeros(3 * k), [UNFAIR]]),
        integrality=np.concatenate([np.ones(2 * k), np.zeros(k), np.ones(k), [0]]),
        bounds=Bounds(
            np.zeros(4 * k + 1), np.concatenate([most, np.ones(k), np.full(k, np.inf), np.ones(k), [np.inf]])
        ),
        constraints=LinearConstraint(columns, lower, upper),
        options={"time_limit": settings.seconds, "node_limit": settings.branches, "mip_rel_gap": 5e-3},
    )
    return None if found.x is None else np.rint(found.x[:k]).astype(np.int64)


def fair_shares(each: Floats, most: Floats, capacity: Floats) -> Floats:
    """(k,) the same dominant share for all, or what each can use, where GPUs can be divided.

    each: (k, resources) what a GPU of the job comes with. most: (k,) GPUs that it can use. capacity: (resources,)
    """
    dominant = each.max(axis=1)
    low, high = 0.0, 1.0
    for _ in range(40):
        level = (low + high) / 2.0
        gpus = np.minimum(most, level / np.where(dominant > 0, dominant, np.inf))
        low, high = (level, high) if np.all(gpus @ each <= capacity) else (low, level)
    return np.asarray(np.minimum(most * dominant, low))


def _left(snapshot: Snapshot, rows: Ints, wanted: Ints) -> Floats:
    """(resources,) the share of the cluster that these rows can have, all others having what they ought to."""
    jobs, nodes, on = snapshot.jobs, snapshot.nodes, snapshot.runs_on
    others = wanted / np.maximum(jobs.gpus, 1)
    others[rows] = 0.0
    ours = np.bincount(on[:, 1], on[:, 2], len(nodes.names))
    foreign = np.maximum(nodes.used[:, 0] - ours, 0.0)[nodes.up].sum() / max(nodes.capacity[nodes.up, 0].sum(), 1.0)
    left = 1.0 - others @ sizes(snapshot)
    left[0] -= foreign
    return np.maximum(left, 0.0)


def _remembered(snapshot: Snapshot, order: Ints, memory: Memory) -> Ints | None:
    """What was found last time, if no job came or ended and no node since."""
    if "wanted" not in memory or not np.array_equal(memory.get("jobs", np.zeros((0, 2))), _names(snapshot, order)):
        return None
    if int(memory["nodes"][0]) != int(snapshot.nodes.up.sum()):
        return None
    wanted = held_gpus(snapshot)
    wanted[np.sort(order)] = memory["wanted"]
    return wanted


def _noted(snapshot: Snapshot, order: Ints, wanted: Ints) -> Memory:
    return {
        "jobs": _names(snapshot, order),
        "wanted": wanted[np.sort(order)],
        "nodes": np.array([snapshot.nodes.up.sum()], dtype=np.int64),
    }


def _names(snapshot: Snapshot, order: Ints) -> Ints:
    """(jobs, 2) what tells the jobs of this order apart."""
    keys = [snapshot.jobs.keys[row] for row in np.sort(order).tolist()]
    return np.array([(key.job_id, key.first_submit) for key in keys], dtype=np.int64).reshape(-1, 2)

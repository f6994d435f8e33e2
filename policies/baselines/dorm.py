"""The highest utilisation within limits on unfairness and on changes: a mixed-integer programme."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from policies.placement.allocation import elastic, gang_gpus, held_gpus, movable, queue_order, startable
from policies.placement.demand import cluster_shares
from policies.placement.plans import plan_allocation
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecasts

UNFAIRNESS_COST = 10.0
"""the cost of a unit of fairness loss beyond its limit, in clusters' utilisation of resources"""
SUBMISSION_PREFERENCE = 1e-3
"""the preference of the first of all jobs over the last, which breaks ties"""


@dataclass(frozen=True)
class DormSettings:
    """fairness: theta 1, the fairness loss allowed, in [0, 1]. adjustment: theta 2, the share of the running jobs whose
    GPUs may change at once. seconds, branches: limits of the solver. most: jobs in the programme, the first in
    order."""

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
    """The greatest utilisation within limits on unfairness and on changes (Sun et al., ICDCS 2017, section III).

    Whenever a job is submitted or ends, a mixed-integer linear programme computes the GPUs of each job: it maximises
    the utilisation summed over resources, where the shares of all jobs differ from dominant resource fairness by at
    most theta 1 (in total, as a part of 2), and at most theta 2 of the running jobs change. All jobs are admitted,
    rigid ones with what they request or not at all. The paper's programme also chooses nodes; here nodes are chosen
    afterwards, as few as possible, since its size grows with the nodes. The limit on unfairness may be exceeded at a
    cost, since gangs can make it infeasible. HiGHS solves it within its limits; if it finds no solution, running jobs
    continue and jobs that fit start in order of submission.
    """

    name = "dorm"
    decides_on = "events"

    def __init__(self, settings: DormSettings | None = None) -> None:
        self.settings: DormSettings = settings or DormSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by submission, and allocate GPUs by the programme."""
        jobs = snapshot.jobs
        order = queue_order(jobs, jobs.state != "running")
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        fallback = gang_gpus(snapshot, order, preempt=flexible, requested=least)
        wanted = _remembered(snapshot, order, memory)
        if wanted is None:
            rows = order[(jobs.managed & (startable(jobs) | movable(jobs)))[order]][: self.settings.most]
            wanted = fallback.copy()
            found = solve(snapshot, rows, fallback, self.settings)
            if found is not None:
                wanted[rows] = found
        return plan_allocation(snapshot, order, wanted, memory=_to_memory(snapshot, order, wanted))


def solve(snapshot: Snapshot, rows: Ints, wanted: Ints, settings: DormSettings) -> Ints | None:
    """(k,) GPUs for each of these rows, with all other jobs at `wanted` (n,); None if no solution was found.

    Variables, k each: GPUs n, whether the job runs a, the distance of its share from the fair one d, whether it changes
    c; and the fairness loss s beyond its limit.
    """
    jobs, k = snapshot.jobs, len(rows)
    if not k:
        return None
    flexible = elastic(jobs)
    held = held_gpus(snapshot)[rows].astype(np.float64)
    least = np.where(flexible, jobs.gpus_min, jobs.gpus)[rows].astype(np.float64)
    most = np.where(flexible, jobs.gpus_max, jobs.gpus)[rows].astype(np.float64)
    each = (cluster_shares(snapshot) / np.maximum(jobs.gpus, 1)[:, None])[rows]
    capacity = _capacity_left(snapshot, rows, wanted)
    share = each.max(axis=1)
    fair = fair_shares(each, most, capacity)
    runs = held > 0

    one, none, zero = np.eye(k), np.zeros((k, k)), np.zeros((k, 1))
    across, kinds = np.zeros((1, k)), np.zeros((each.shape[1], k))
    shares, reach = np.diag(share), np.diag(np.maximum(most, held))
    columns = np.block(
        [
            [one, -np.diag(least), none, none, zero],  # at least its minimum, if it runs
            [one, -np.diag(most), none, none, zero],  # and at most its maximum
            [each.T, kinds, kinds, kinds, kinds[:, :1]],  # within the capacity of each resource
            [shares, none, -one, none, zero],  # its share is at most d above the fair one
            [shares, none, one, none, zero],  # and at most d below
            [one, none, none, -reach, zero],  # it keeps what it holds, unless it changes
            [one, none, none, reach, zero],
            [across, across, across + 1.0, across, -np.ones((1, 1))],  # fairness loss, less its excess
            [across, across, across, across + runs, np.zeros((1, 1))],  # the number of changes
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
    utilisation = each.sum(axis=1) * (1.0 + SUBMISSION_PREFERENCE * np.linspace(1.0, 0.0, k))
    found = milp(
        np.concatenate([-utilisation, np.zeros(3 * k), [UNFAIRNESS_COST]]),
        integrality=np.concatenate([np.ones(2 * k), np.zeros(k), np.ones(k), [0]]),
        bounds=Bounds(
            np.zeros(4 * k + 1), np.concatenate([most, np.ones(k), np.full(k, np.inf), np.ones(k), [np.inf]])
        ),
        constraints=LinearConstraint(columns, lower, upper),
        options={"time_limit": settings.seconds, "node_limit": settings.branches, "mip_rel_gap": 5e-3},
    )
    return None if found.x is None else np.rint(found.x[:k]).astype(np.int64)


def fair_shares(each: Floats, most: Floats, capacity: Floats) -> Floats:
    """(k,) an equal dominant share for all jobs, or less where a job cannot use it, with fractional GPUs.

    each: (k, resources) the job's demand per GPU. most: (k,) the most GPUs that it can use. capacity: (resources,)
    """
    dominant = each.max(axis=1)
    low, high = 0.0, 1.0
    for _ in range(40):
        level = (low + high) / 2.0
        gpus = np.minimum(most, level / np.where(dominant > 0, dominant, np.inf))
        low, high = (level, high) if np.all(gpus @ each <= capacity) else (low, level)
    return np.asarray(np.minimum(most * dominant, low))


def _capacity_left(snapshot: Snapshot, rows: Ints, wanted: Ints) -> Floats:
    """(resources,) the share of the cluster that is left for these rows, with all other jobs at `wanted`."""
    jobs, nodes, on = snapshot.jobs, snapshot.nodes, snapshot.runs_on
    others = wanted / np.maximum(jobs.gpus, 1)
    others[rows] = 0.0
    ours = np.bincount(on[:, 1], on[:, 2], len(nodes.names))
    foreign = np.maximum(nodes.used[:, 0] - ours, 0.0)[nodes.up].sum() / max(nodes.capacity[nodes.up, 0].sum(), 1.0)
    left = 1.0 - others @ cluster_shares(snapshot)
    left[0] -= foreign
    return np.maximum(left, 0.0)


def _remembered(snapshot: Snapshot, order: Ints, memory: Memory) -> Ints | None:
    """The last solution, if neither the jobs nor the nodes have changed since."""
    if "wanted" not in memory or not np.array_equal(memory.get("jobs", np.zeros((0, 2))), _job_names(snapshot, order)):
        return None
    if int(memory["nodes"][0]) != int(snapshot.nodes.up.sum()):
        return None
    wanted = held_gpus(snapshot)
    wanted[np.sort(order)] = memory["wanted"]
    return wanted


def _to_memory(snapshot: Snapshot, order: Ints, wanted: Ints) -> Memory:
    return {
        "jobs": _job_names(snapshot, order),
        "wanted": wanted[np.sort(order)],
        "nodes": np.array([snapshot.nodes.up.sum()], dtype=np.int64),
    }


def _job_names(snapshot: Snapshot, order: Ints) -> Ints:
    """(jobs, 2) job id and first submission of the jobs in this order."""
    keys = [snapshot.jobs.keys[row] for row in np.sort(order).tolist()]
    return np.array([(key.job_id, key.first_submit) for key in keys], dtype=np.int64).reshape(-1, 2)

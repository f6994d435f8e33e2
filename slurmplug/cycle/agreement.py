"""How far two plans for one snapshot agree, and whose order is forecast to be the better one. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np
from scipy.stats import spearmanr

from policies.placement.allocation import startable
from policies.placement.demand import remaining_seconds, total_seconds
from policies.plan import Plan
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts

Change: TypeAlias = tuple[str, JobKey, int | None]
"""What an action does: its kind, its job, and the number of GPUs."""


@dataclass(frozen=True)
class Decision:
    """What of a plan is compared: score (n,), and what its actions do."""

    score: Floats
    changes: frozenset[Change]

    @classmethod
    def of(cls, plan: Plan) -> "Decision":
        """Nodes are left out, as Slurm chooses those where it starts the jobs."""
        return cls(plan.score, frozenset((each.kind, each.job, each.gpus) for each in plan.actions))


@dataclass(frozen=True)
class Agreement:
    """Of two plans: the rank correlation (Spearman 1904) of the jobs that wait, the share of the changes that both have
    of those that one has, and the share by which the other's mean time to the end of these jobs is forecast to be
    shorter. NaN where there is nothing to compare."""

    ranks: float
    changes: float
    gain: float


def agreement(snapshot: Snapshot, forecasts: Forecasts, acting: Decision, other: Decision) -> Agreement:
    """Compare the acting policy's decision with another one on the same snapshot."""
    jobs = snapshot.jobs
    waiting = np.flatnonzero(startable(jobs) & np.isfinite(acting.score) & np.isfinite(other.score))
    one, two = acting.score[waiting], other.score[waiting]
    varies = len(waiting) > 1 and np.ptp(one) > 0 and np.ptp(two) > 0
    either = acting.changes | other.changes
    before, after = (
        mean_time_to_end(snapshot, forecasts, waiting[np.argsort(-each, kind="stable")]) for each in (one, two)
    )
    return Agreement(
        ranks=float(spearmanr(one, two).statistic) if varies else np.nan,
        changes=len(acting.changes & other.changes) / len(either) if either else np.nan,
        gain=1.0 - after / before if before > 0 else np.nan,
    )


def mean_time_to_end(snapshot: Snapshot, forecasts: Forecasts, order: Iterable[int]) -> float:
    """Forecast of the mean seconds to the end of the jobs of these rows, NaN where there are none.

    They start in this order, each on the GPUs that it requests, when these are free and all before it have started.
    Left out are jobs of which no run time is known, those that never fit, and on which nodes GPUs are free.
    """
    ends = list(_ends(snapshot, forecasts, order))
    return float(np.mean(ends)) if ends else np.nan


def _ends(snapshot: Snapshot, forecasts: Forecasts, order: Iterable[int]) -> Iterator[float]:
    jobs, nodes = snapshot.jobs, snapshot.nodes
    seconds, left = total_seconds(jobs, forecasts.total), remaining_seconds(snapshot, forecasts.remaining)
    running = np.flatnonzero(jobs.running & (jobs.gpus > 0) & np.isfinite(left))
    until = [(float(left[row]), float(jobs.gpus[row])) for row in running.tolist()]
    heapify(until)
    free = float((nodes.capacity - nodes.used)[nodes.up, 0].sum())
    most, now = free + sum(gpus for _, gpus in until), 0.0
    for row in order:
        gpus = float(jobs.gpus[row])
        if not (0 < gpus <= most and np.isfinite(seconds[row])):
            continue
        while free < gpus:
            now, released = heappop(until)
            free += released
        free -= gpus
        heappush(until, (now + float(seconds[row]), gpus))
        yield now + float(seconds[row])

"""Least attained service in discrete queues, and the same with the Gittins index."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.placement.allocation import queue_order
from policies.placement.plans import plan_in_order
from policies.placement.space import Packing
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast, Forecasts, Need

SECONDS_BEFORE = 1e-6
"""seconds, more than the rounding error of a time"""


@dataclass(frozen=True)
class TiresiasSettings:
    """queues: GPU seconds after which a job is demoted to the next queue, increasing. packing: on the nodes with the
    most free GPUs first (wide), as in Pollux's simulation of it, or on the fullest that suffices (tight)."""

    queues: tuple[float, ...] = (57_600.0,)
    packing: Packing = "wide"

    def __post_init__(self) -> None:
        bounds = tuple(self.queues)
        object.__setattr__(self, "queues", bounds)
        if any(not bound > 0 for bound in bounds) or any(b <= a for a, b in pairwise(bounds)):
            raise ValueError(f"queues are increasing numbers of GPU seconds, not {list(bounds)}")
        if self.packing not in ("tight", "wide"):
            raise ValueError(f"packing is tight or wide, not {self.packing!r}")


class Tiresias(Policy):
    """Discretised 2D-LAS: jobs with the least attained GPU time go first (Gu et al., NSDI 2019, section 3.2).

    Attained service is run time times GPUs. A job begins in the first queue and is demoted to the next when its service
    passes the bound between them. Within a queue jobs are first in, first out, by when they entered it. In every cycle
    the first jobs that fit, by GPU counts, run; jobs that do not fit are skipped, running jobs after them preempted.

    As Pollux (Qiao et al., OSDI 2021, section 5.3) simulates it: two queues, 16 GPU hours. Left out: the promotion of
    starving jobs (section 3.2.2), disabled there too, and placement by the skew of the model's tensors (3.3): every job
    is placed on few nodes.
    """

    name = "tiresias"

    def __init__(self, settings: TiresiasSettings | None = None) -> None:
        self.settings: TiresiasSettings = settings or TiresiasSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by queue and by entry into it, and run jobs in this order."""
        jobs = snapshot.jobs
        queue = queue_of(jobs, self.settings.queues)
        since, remembered = _queue_entries(jobs, queue, snapshot.now, memory)
        order = queue_order(jobs, queue, since)
        return plan_in_order(snapshot, order, preempt=True, packing=self.settings.packing, memory=remembered)

    def until(self, snapshot: Snapshot) -> float:
        """When the next running job falls into another queue, or a moment before; infinite where none will.

        Until then, if nothing else happens, it would decide as it did.
        """
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.running & (jobs.gpus > 0))
        bounds = np.append(self.settings.queues, np.inf)[queue_of(jobs, self.settings.queues)[rows]]
        left = (bounds - jobs.attained[rows]) / jobs.gpus[rows]
        return snapshot.now + float(left.min(initial=np.inf)) - SECONDS_BEFORE


class Gittins(Policy):
    """Discretised 2D-Gittins index: Tiresias with a distribution of the service needed (Gu et al., NSDI 2019, 3.2).

    Within a queue jobs are ranked by the probability of completion per service until then: the Gittins index, the
    greatest over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a], with a the attained service and S the total
    service that the job needs. The paper learns one distribution of all jobs; here each job has its own forecast of run
    time, times its GPUs. A job without a forecast comes after the others of its queue.
    """

    name = "gittins"
    needs: frozenset[Need] = frozenset({"total"})

    def __init__(self, settings: TiresiasSettings | None = None) -> None:
        self.settings: TiresiasSettings = settings or TiresiasSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by queue and by Gittins index, and run jobs in this order."""
        jobs = snapshot.jobs
        gpus = np.maximum(jobs.gpus, 1)
        index = gittins_index(forecasts.total, jobs.attained / gpus) / gpus
        order = queue_order(jobs, queue_of(jobs, self.settings.queues), -index)
        return plan_in_order(snapshot, order, preempt=True, packing=self.settings.packing)


def queue_of(jobs: Jobs, bounds: tuple[float, ...]) -> Ints:
    """(n,) the queue of each job by its attained service, 0 the first."""
    return np.searchsorted(np.array(bounds), jobs.attained, side="right")


def gittins_index(total: Forecast, attained: Floats) -> Floats:
    """(n,) the Gittins index, in 1/s, of jobs that have run `attained` (n,) seconds.

    0 where the whole distribution lies below `attained`, NaN where it is unknown. Exact for the tabulated
    distributions, with d at their quantiles; an infinite last quantile counts as the one before it.
    """
    alive = np.nan_to_num(total.sf(attained))[:, None]
    ends = np.where(np.isfinite(total.table), total.table, total.table[:, [-2]])
    at = np.maximum(ends, attained[:, None])
    survival = np.where(ends > attained[:, None], np.minimum(1.0 - LEVELS, alive), alive)
    pieces = np.diff(at, axis=1) * (survival[:, 1:] + survival[:, :-1]) / 2.0
    spent = np.cumsum(np.concatenate([(at[:, :1] - attained[:, None]) * alive, pieces], axis=1), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spent > 0, (alive - survival) / spent, 0.0)
    return np.where(total.known, ratio.max(axis=1), np.nan)


def _queue_entries(jobs: Jobs, queue: Ints, now: float, memory: Memory) -> tuple[Floats, Memory]:
    """(n,) when each job entered its queue, its submission or when it was first seen there; and what to remember."""
    since = jobs.submitted.copy()
    demoted = np.flatnonzero(queue > 0)
    names = ("job_id", "first_submit", "queue", "since")
    columns = [memory[name].tolist() for name in names] if all(name in memory for name in names) else [[]] * 4
    known = {(job, submit, at): when for job, submit, at, when in zip(*columns, strict=True)}
    entries = [(jobs.keys[row].job_id, jobs.keys[row].first_submit, int(queue[row])) for row in demoted.tolist()]
    since[demoted] = [known.get(entry, now) for entry in entries]
    ids = np.array(entries, dtype=np.int64).reshape(-1, 3)
    return since, dict(zip(names, (ids[:, 0], ids[:, 1], ids[:, 2], since[demoted]), strict=True))

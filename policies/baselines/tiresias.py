"""Least attained service in discrete queues, and the same with the Gittins index."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.allocation import Packing, in_order
from policies.baselines.common import ordered
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast, Forecasts, Need

A_MOMENT = 1e-6
"""seconds, more than what rounding makes of a time"""


@dataclass(frozen=True)
class TiresiasSettings:
    """queues: GPU seconds after which a job falls into the next queue, increasing. packing: on the nodes with the most
    free GPUs first (wide), as in Pollux's simulation of it, or on the fullest that will do (tight)."""

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
    """Discretised 2D-LAS: the less GPU time a job has had, the sooner it goes (Gu et al., NSDI 2019, section 3.2).

    Attained service is run time times GPUs. A job begins in the first queue and falls into the next when its service
    passes the bound between them. Within a queue first in, first out, by when a job came into it. At every cycle those
    run that come first and fit, counted in GPUs; what does not fit is skipped, what runs and comes later is preempted.

    As Pollux (Qiao et al., OSDI 2021, section 5.3) simulates it: two queues, 16 GPU hours. Left out: the promotion of
    jobs that starve (section 3.2.2), off there too, and placement by the skew of the model's tensors (3.3): every job
    is put on few nodes.
    """

    name = "tiresias"

    def __init__(self, settings: TiresiasSettings | None = None) -> None:
        self.settings: TiresiasSettings = settings or TiresiasSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it knows nothing
        """Rank by queue and by time in it, and run what comes first."""
        jobs = snapshot.jobs
        queue = queue_of(jobs, self.settings.queues)
        since, remembered = _entered(jobs, queue, snapshot.now, memory)
        order = in_order(jobs, queue, since)
        return ordered(snapshot, order, preempt=True, packing=self.settings.packing, memory=remembered)

    def until(self, snapshot: Snapshot) -> float:
        """When the next running job falls into another queue, or a moment before; infinite where none will.

        Until then, if nothing else happens, it would decide as it did.
        """
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.running & (jobs.gpus > 0))
        bounds = np.append(self.settings.queues, np.inf)[queue_of(jobs, self.settings.queues)[rows]]
        left = (bounds - jobs.attained[rows]) / jobs.gpus[rows]
        return snapshot.now + float(left.min(initial=np.inf)) - A_MOMENT


class Gittins(Policy):
    """Discretised 2D-Gittins index: as Tiresias, with a distribution of what jobs need (Gu et al., NSDI 2019, 3.2).

    Within a queue the job goes first whose chance to be done for the service that it would take until then is best:
    the Gittins index, the greatest over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a], with a the service
    attained and S what the job needs in all. The paper learns one distribution of all jobs; here each has its own
    forecast, of run time, times its GPUs. A job of which none is known comes after the others of its queue.
    """

    name = "gittins"
    needs: frozenset[Need] = frozenset({"total"})

    def __init__(self, settings: TiresiasSettings | None = None) -> None:
        self.settings: TiresiasSettings = settings or TiresiasSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by queue and by Gittins index, and run what comes first."""
        jobs = snapshot.jobs
        gpus = np.maximum(jobs.gpus, 1)
        index = gittins_index(forecasts.total, jobs.attained / gpus) / gpus
        order = in_order(jobs, queue_of(jobs, self.settings.queues), -index)
        return ordered(snapshot, order, preempt=True, packing=self.settings.packing)


def queue_of(jobs: Jobs, bounds: tuple[float, ...]) -> Ints:
    """(n,) the queue that each job is in, 0 the first."""
    return np.searchsorted(np.array(bounds), jobs.attained, side="right")


def gittins_index(total: Forecast, attained: Floats) -> Floats:
    """(n,) the Gittins index of jobs that have run `attained` (n,) seconds, in 1/s; 0 where all of the distribution is
    past, NaN where it is not known.

    Exact for the tabulated distributions, with d at their quantiles; an infinite end counts as the quantile before it.
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


def _entered(jobs: Jobs, queue: Ints, now: float, memory: Memory) -> tuple[Floats, Memory]:
    """(n,) when each job came into its queue: on its submission, or when it was first seen there; what to remember."""
    since = jobs.submitted.copy()
    fallen = np.flatnonzero(queue > 0)
    names = ("job_id", "first_submit", "queue", "since")
    columns = [memory[name].tolist() for name in names] if all(name in memory for name in names) else [[]] * 4
    known = {(job, submit, at): when for job, submit, at, when in zip(*columns, strict=True)}
    told = [(jobs.keys[row].job_id, jobs.keys[row].first_submit, int(queue[row])) for row in fallen.tolist()]
    since[fallen] = [known.get(key, now) for key in told]
    ids = np.array(told, dtype=np.int64).reshape(-1, 3)
    return since, dict(zip(names, (ids[:, 0], ids[:, 1], ids[:, 2], since[fallen]), strict=True))

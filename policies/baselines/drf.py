"""Dominant resource fairness."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from policies.placement.allocation import elastic, gang_gpus, grow_elastic, queue_order
from policies.placement.demand import cluster_shares
from policies.placement.plans import plan_allocation
from policies.placement.servers import Step, shared_out
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts

Among = Literal["user", "account", "job"]


@dataclass(frozen=True)
class DRFSettings:
    """among: whether shares are equalised between users, accounts or jobs."""

    among: Among = "user"

    def __post_init__(self) -> None:
        if self.among not in get_args(Among):
            raise ValueError(f"among is {', '.join(get_args(Among))}, not {self.among!r}")


class DRF(Policy):
    """Max-min fairness of dominant shares by progressive filling (Ghodsi et al., NSDI 2011, algorithm 1).

    A dominant share is the greatest share of any resource that a user's jobs hold. The next job is the first, by
    submission, of the user with the smallest; elastic jobs count with their minimum, and then share what is left, one
    GPU after another to the job with the smallest dominant share, as OASiS (INFOCOM 2018, section V) sets DRF up. A
    rigid job runs to its end: shares are equalised as jobs start and end. Weights are left out. A job with parameter
    servers has as many as workers, as in the comparison of DL2 (arXiv 1909.06040, section 6).
    """

    name = "drf"
    decides_on = "events"

    def __init__(self, settings: DRFSettings | None = None) -> None:
        self.settings: DRFSettings = settings or DRFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by the dominant share that the owner of each job has without it."""
        jobs = snapshot.jobs
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        size = cluster_shares(snapshot)
        each = size / np.maximum(jobs.gpus, 1)[:, None]
        needed = np.where(flexible[:, None], each * least[:, None], size)
        order = queue_order(jobs, jobs.state != "running", self._owner_share(snapshot, needed))
        wanted = gang_gpus(snapshot, order, preempt=flexible, requested=least)
        dominant = np.maximum(each.max(axis=1), 1e-12).tolist()
        if snapshot.servers is None:
            return plan_allocation(
                snapshot, order, grow_elastic(snapshot, wanted, lambda row, gpus: 1.0 / (gpus * dominant[row]))
            )
        has = snapshot.servers.most > 0
        wanted, servers = shared_out(
            snapshot,
            snapshot.servers,
            order,
            least=least,
            least_servers=np.where(has, least, 0),
            preempt=flexible,
            steps=lambda row, gpus, _: [Step(1.0 / (gpus * dominant[row]), 1, int(has[row]))],
        )
        return plan_allocation(snapshot, order, wanted, servers=servers)

    def _owner_share(self, snapshot: Snapshot, needed: Floats) -> Floats:
        """(n,) the dominant share of each job's owner, counting its running jobs and its earlier pending ones."""
        jobs = snapshot.jobs
        if self.settings.among == "job":
            return np.where(jobs.running, needed.max(axis=1), 0.0)
        owner = np.unique(jobs.user if self.settings.among == "user" else jobs.account, return_inverse=True)[1].ravel()
        order = np.lexsort((jobs.submitted, jobs.state != "running", owner))
        so_far = np.cumsum(needed[order], axis=0)
        first = np.searchsorted(owner[order], owner[order])
        start = np.concatenate([np.zeros((1, needed.shape[1])), so_far])
        share = np.empty(len(jobs))
        share[order] = (start[:-1] - start[first]).max(axis=1)
        return share

"""Dominant resource fairness."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from policies.allocation import elastic, gangs, grown, in_order
from policies.baselines.common import shared, sizes
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts

Among = Literal["user", "account", "job"]


@dataclass(frozen=True)
class DRFSettings:
    """among: whose shares are evened out, those of users, of accounts or of jobs."""

    among: Among = "user"

    def __post_init__(self) -> None:
        if self.among not in get_args(Among):
            raise ValueError(f"among is {', '.join(get_args(Among))}, not {self.among!r}")


class DRF(Policy):
    """Max-min fairness of dominant shares by progressive filling (Ghodsi et al., NSDI 2011, algorithm 1).

    A dominant share is the greatest share of any resource that a user's jobs hold. The next job is the first, by
    submission, of the user with the least; elastic jobs are counted with their least, and then share what is left, one
    GPU after another to the job with the least dominant share, as OASiS (INFOCOM 2018, section V) sets DRF up. A rigid
    job runs to its end: shares are evened out as jobs come and go. Weights are left out.
    """

    name = "drf"
    decides_on = "events"

    def __init__(self, settings: DRFSettings | None = None) -> None:
        self.settings: DRFSettings = settings or DRFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it needs neither
        """Rank by the dominant share that each job's user has before it starts."""
        jobs = snapshot.jobs
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        size = sizes(snapshot)
        each = size / np.maximum(jobs.gpus, 1)[:, None]
        needed = np.where(flexible[:, None], each * least[:, None], size)
        order = in_order(jobs, jobs.state != "running", self._before(snapshot, needed))
        wanted = gangs(snapshot, order, preempt=flexible, asked=least)
        dominant = each.max(axis=1)
        return shared(
            snapshot, order, grown(snapshot, wanted, lambda row, gpus: 1.0 / (gpus * max(float(dominant[row]), 1e-12)))
        )

    def _before(self, snapshot: Snapshot, needed: Floats) -> Floats:
        """(n,) the dominant share of whoever owns the job, counting what runs and its jobs before this one."""
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

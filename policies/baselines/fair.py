"""An equal share of the GPUs for every job."""

from dataclasses import dataclass

import numpy as np

from policies.placement.allocation import elastic, gang_gpus, grow_elastic, held_gpus, queue_order
from policies.placement.plans import plan_allocation
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class FairSettings:
    """quantum: seconds after which a running job is preempted for one that attained less; 0 for never."""

    quantum: float = 3600.0

    def __post_init__(self) -> None:
        if not self.quantum >= 0:
            raise ValueError(f"quantum is a number of seconds not less than 0, not {self.quantum}")


class Fair(Policy):
    """Equal numbers of GPUs for elastic jobs, equal GPU time for rigid ones.

    The fair scheduler that SLAQ (SoCC 2017, section 6) and MLFS (CoNEXT 2020, section 4.1, after Borg) compare with:
    max-min fairness over jobs. Elastic jobs share what rigid ones leave, one GPU after another to the job with the
    fewest. If not all can run, those with the least attained GPU time per requested GPU go first, and take turns of a
    quantum, since a gang cannot run on fewer GPUs. Of Borg it leaves out priorities, quotas and users.
    """

    name = "fair"

    def __init__(self, settings: FairSettings | None = None) -> None:
        self.settings: FairSettings = settings or FairSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by attained service, and share the GPUs evenly."""
        jobs = snapshot.jobs
        order = queue_order(jobs, self._quanta(snapshot))
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        wanted = gang_gpus(snapshot, order, preempt=flexible | (self.settings.quantum > 0), requested=least)
        return plan_allocation(snapshot, order, grow_elastic(snapshot, wanted, lambda _, gpus: 1.0 / gpus))

    def _quanta(self, snapshot: Snapshot) -> Floats:
        """(n,) quanta that each job attained on its requested GPUs; -1 for a job in the middle of a quantum."""
        jobs = snapshot.jobs
        seconds = jobs.attained / np.maximum(jobs.gpus, 1)
        if not self.settings.quantum:
            return np.where(held_gpus(snapshot) > 0, -1.0, seconds)
        had = np.floor(seconds / self.settings.quantum)
        return np.where(jobs.running & (snapshot.elapsed < self.settings.quantum), -1.0, had)

"""An equal share of the GPUs for every job."""

from dataclasses import dataclass

import numpy as np

from policies.allocation import elastic, gangs, grown, held_gpus, in_order
from policies.baselines.common import shared
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class FairSettings:
    """quantum: seconds after which a job that runs gives way to one that has had less; 0 for never."""

    quantum: float = 3600.0

    def __post_init__(self) -> None:
        if not self.quantum >= 0:
            raise ValueError(f"quantum is a number of seconds not less than 0, not {self.quantum}")


class Fair(Policy):
    """Every job the same number of GPUs at once where it can take any number, and the same GPU time where it cannot.

    The fair scheduler that SLAQ (SoCC 2017, section 6) and MLFS (CoNEXT 2020, section 4.1, after Borg) compare with:
    max-min fairness over jobs. Elastic jobs share what rigid ones leave, one GPU after another to whoever has the
    fewest. Where not all can run, those go first that have had the least GPU time for each GPU that they ask for, and
    take turns of a quantum, since a gang cannot be given less. Of Borg it leaves out priorities, quotas and users.
    """

    name = "fair"

    def __init__(self, settings: FairSettings | None = None) -> None:
        self.settings: FairSettings = settings or FairSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it needs neither
        """Rank by what each has had, and share the GPUs evenly."""
        jobs = snapshot.jobs
        order = in_order(jobs, self._turns(snapshot))
        flexible = elastic(jobs)
        least = np.where(flexible, jobs.gpus_min, jobs.gpus)
        wanted = gangs(snapshot, order, preempt=flexible | (self.settings.quantum > 0), asked=least)
        return shared(snapshot, order, grown(snapshot, wanted, lambda _, gpus: 1.0 / gpus))

    def _turns(self, snapshot: Snapshot) -> Floats:
        """(n,) quanta that each job has had of the GPUs it asks for; those that run finish theirs first."""
        jobs = snapshot.jobs
        seconds = jobs.attained / np.maximum(jobs.gpus, 1)
        if not self.settings.quantum:
            return np.where(held_gpus(snapshot) > 0, -1.0, seconds)
        had = np.floor(seconds / self.settings.quantum)
        return np.where(jobs.running & (snapshot.now - jobs.started < self.settings.quantum), -1.0, had)

"""Slurm alone."""

from dataclasses import dataclass

import numpy as np

from policies.baselines.common import admitted
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class SlurmSettings:
    """It has none: they are slurm.conf's."""


class Slurm(Policy):
    """Slurm's own multifactor priority and backfill: no rank and no action, but that none waits for admission.

    What everything else is compared with. It needs Slurm, or its launcher in the simulator, to start jobs.
    """

    name = "slurm"
    decides_on = "events"

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        self.settings: SlurmSettings = settings or SlurmSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it needs nothing
        """Leave every job to Slurm."""
        return Plan(np.full(len(snapshot.jobs), np.nan), actions=admitted(snapshot.jobs))

"""Slurm without slurmplug's decisions."""

from dataclasses import dataclass

import numpy as np

from policies.placement.plans import admission_releases
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class SlurmSettings:
    """Slurm has no settings here: they are in slurm.conf."""


class Slurm(Policy):
    """Slurm's own multifactor priority and backfill: no rank, and no action but the release of jobs held for admission.

    The reference for all comparisons. It needs Slurm, or Slurm's launcher in the simulator, to start jobs.
    """

    name = "slurm"
    decides_on = "events"

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        self.settings: SlurmSettings = settings or SlurmSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Leave every job to Slurm."""
        return Plan(np.full(len(snapshot.jobs), np.nan), actions=admission_releases(snapshot.jobs))

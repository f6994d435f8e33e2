"""One cycle as a value: what was seen, foreseen, decided, allowed and commanded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policies.plan import Memory, Plan
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug.cluster.port import Command
from slurmplug.intake.job_record import Admission, Changes
from slurmplug.operations import Operation
from slurmplug.rules.guardrails import Verdict


@dataclass(frozen=True)
class CycleRecord:
    """All of one cycle, as it is written before its effects. `seconds`: what each part of it took."""

    started: float
    policy: str
    modes: Mapping[str, str]
    snapshot: Snapshot
    forecasts: Forecasts
    memory: Memory
    plan: Plan
    verdict: Verdict
    operations: Sequence[Operation]
    commands: Sequence[Command]
    changes: Changes
    postponed: int
    seconds: Mapping[str, float]
    error: str = ""
    admissions: Mapping[JobKey, Admission] = field(default_factory=dict)
    """where jobs stand on their way to admission from now on"""

"""One cycle as a value: its snapshot, forecasts, plan, verdict, operations and commands."""

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
    """One cycle, as the ledger records it before its effects.

    decided: the policy's own plan, which is a function of snapshot, forecasts and memory; made_from: what the policy
    was made from (`Policy.made_from`). plan: the same after the rules on who goes first, with all notes. seconds: what
    each stage took.
    """

    started: float
    policy: str
    modes: Mapping[str, str]
    snapshot: Snapshot
    forecasts: Forecasts
    memory: Memory
    decided: Plan
    made_from: Mapping[str, str]
    plan: Plan
    verdict: Verdict
    operations: Sequence[Operation]
    commands: Sequence[Command]
    changes: Changes
    postponed: int
    seconds: Mapping[str, float]
    error: str = ""
    admissions: Mapping[JobKey, Admission] = field(default_factory=dict)
    """how far jobs are on their way to admission after this cycle"""
    precedence: Memory | None = None
    """what the next cycle has to know of who was passed; None for what is known already"""

"""What a cycle knows when its policy decides, and what is decided."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from policies.plan import Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug.cluster.port import Reading
from slurmplug.cycle.timing import StageTimes
from slurmplug.intake.job_record import Changes


@dataclass(frozen=True)
class Observed:
    """What the first half of a cycle found: the question that a policy's plan answers.

    policy: who decides. not_believed, held: notes on jobs whose claims were limited, and on those that are held for the
    unit of their target.
    """

    number: int
    reading: Reading
    snapshot: Snapshot
    changes: Changes
    forecasts: Forecasts
    memory: Memory
    not_believed: Mapping[JobKey, Reason]
    held: Mapping[JobKey, Reason]
    stages: StageTimes
    policy: Policy


class Decided(NamedTuple):
    """A valid plan.

    observed: with the policy that made it, and what that was given. error: why it is the fallback's plan, or one that
    leaves the queue to Slurm; empty for the plan of the policy that was to decide.
    """

    observed: Observed
    plan: Plan
    error: str = ""

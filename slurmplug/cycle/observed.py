"""What a cycle knows when its policy decides."""

from collections.abc import Mapping
from dataclasses import dataclass

from policies.plan import Memory, Reason
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

"""Shortest job first, and shortest remaining time first."""

from dataclasses import dataclass

from policies.placement.allocation import queue_order
from policies.placement.demand import remaining_seconds, total_seconds
from policies.placement.plans import plan_in_order
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class SJFSettings:
    """strict: no job starts before a shorter one that has no room yet; otherwise jobs that fit overtake it."""

    strict: bool = False


class SJF(Policy):
    """The job with the shortest expected run time starts first, and runs to its end.

    The baseline of ML-SJF (Sherman et al.), on whatever forecast the site has. A job of unknown run time counts with
    its time limit; without one it comes last, in order of submission.
    """

    name = "sjf"
    needs: frozenset[Need] = frozenset({"total"})
    decides_on = "events"

    def __init__(self, settings: SJFSettings | None = None) -> None:
        self.settings: SJFSettings = settings or SJFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by expected run time, and start the shortest jobs."""
        order = queue_order(snapshot.jobs, total_seconds(snapshot.jobs, forecasts.total))
        return plan_in_order(snapshot, order, strict=self.settings.strict)


@dataclass(frozen=True)
class SRTFSettings:
    """SRTF has no settings."""


class SRTF(Policy):
    """The jobs with the least expected remaining time run, each on the GPUs that it requested; the others wait.

    Schrage (1968). Preemptive: a job with a checkpoint is preempted for one that will end sooner. The cost of a restart
    is left out, as is the number of GPUs of a job. Unknown run times count as in SJF.
    """

    name = "srtf"
    needs: frozenset[Need] = frozenset({"remaining"})

    def __init__(self, settings: SRTFSettings | None = None) -> None:
        self.settings: SRTFSettings = settings or SRTFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by expected remaining time, and run the jobs nearest to their end."""
        order = queue_order(snapshot.jobs, remaining_seconds(snapshot, forecasts.remaining))
        return plan_in_order(snapshot, order, preempt=True)

"""Shortest job first, and shortest remaining time first."""

from dataclasses import dataclass

from policies.allocation import in_order
from policies.baselines.common import ordered, remaining_seconds, total_seconds
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class SJFSettings:
    """strict: nothing overtakes a job for which there is no room; else what fits goes on."""

    strict: bool = False


class SJF(Policy):
    """The job with the shortest expected run time starts first, and runs to its end.

    The baseline of ML-SJF (Sherman et al.), on whatever forecast the site has. A job whose run time nobody knows counts
    with its time limit; without one it comes last, in order of submission.
    """

    name = "sjf"
    needs: frozenset[Need] = frozenset({"total"})
    decides_on = "events"

    def __init__(self, settings: SJFSettings | None = None) -> None:
        self.settings: SJFSettings = settings or SJFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by run time, and start what is shortest."""
        order = in_order(snapshot.jobs, total_seconds(snapshot.jobs, forecasts.total))
        return ordered(snapshot, order, strict=self.settings.strict)


@dataclass(frozen=True)
class SRTFSettings:
    """It has none."""


class SRTF(Policy):
    """The jobs with the least expected time left run, each with the GPUs it asked for; the others wait.

    Schrage (1968). Preemptive: a job with a checkpoint gives way to one that will be done sooner. What a restart costs
    is left out, as is how many GPUs a job takes. Unknown run times count as in SJF.
    """

    name = "srtf"
    needs: frozenset[Need] = frozenset({"remaining"})

    def __init__(self, settings: SRTFSettings | None = None) -> None:
        self.settings: SRTFSettings = settings or SRTFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by time left, and run what is nearest to its end."""
        order = in_order(snapshot.jobs, remaining_seconds(snapshot, forecasts.remaining))
        return ordered(snapshot, order, preempt=True)

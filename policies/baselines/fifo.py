"""First in, first out."""

from dataclasses import dataclass

from policies.allocation import in_order
from policies.baselines.common import ordered
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class FIFOSettings:
    """strict: nothing overtakes a job for which there is no room; else what fits goes on."""

    strict: bool = True


class FIFO(Policy):
    """Jobs start in the order of their submission, with the GPUs they asked for, and run to their end.

    The baseline of OASiS (INFOCOM 2018, section V) and of every other paper. It leaves nothing out.
    """

    name = "fifo"
    decides_on = "events"

    def __init__(self, settings: FIFOSettings | None = None) -> None:
        self.settings: FIFOSettings = settings or FIFOSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it needs neither
        """Rank by submission, and start what comes first."""
        return ordered(snapshot, in_order(snapshot.jobs), strict=self.settings.strict)

"""First in, first out."""

from dataclasses import dataclass

from policies.placement.allocation import queue_order
from policies.placement.plans import plan_in_order
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class FIFOSettings:
    """strict: no job starts before an earlier one that has no room yet; otherwise jobs that fit overtake it."""

    strict: bool = True


class FIFO(Policy):
    """Jobs start in the order of their submission, on the GPUs that they requested, and run to their end.

    The baseline of OASiS (INFOCOM 2018, section V) and of every other paper. It leaves nothing out.
    """

    name = "fifo"
    decides_on = "events"

    def __init__(self, settings: FIFOSettings | None = None) -> None:
        self.settings: FIFOSettings = settings or FIFOSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by submission, and start jobs in this order."""
        return plan_in_order(snapshot, queue_order(snapshot.jobs), strict=self.settings.strict)

"""What every policy is."""

from typing import ClassVar, Protocol

from policies.plan import Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need


class Policy(Protocol):
    """Settings in the constructor, state in `Plan.memory`: the same arguments give the same plan."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Need]]

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank the managed jobs of the snapshot and say what is to happen to them."""
        ...

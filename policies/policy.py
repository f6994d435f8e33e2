"""What every policy is."""

from typing import Any, ClassVar, Protocol

from policies.plan import Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need


class Policy(Protocol):
    """Settings in the constructor, state in `Plan.memory`: the same arguments give the same plan.

    The constructor takes the settings, a frozen dataclass whose fields are the keys of the site's `[policies.NAME]`
    table; without any it takes its defaults.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Need]]

    @property
    def settings(self) -> Any:
        """The settings it was made with."""
        ...

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank the managed jobs of the snapshot and say what is to happen to them."""
        ...

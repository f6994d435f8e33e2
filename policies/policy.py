"""The base class of every policy."""

from math import inf
from typing import Any, Literal, TypeAlias, get_args

from policies.plan import Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need

DecidesOn: TypeAlias = Literal["time", "reports", "events"]
DECIDES_ON: frozenset[str] = frozenset(get_args(DecidesOn))


class Policy:
    """Settings in the constructor, state in `Plan.memory`: the same arguments give the same plan.

    The constructor takes the settings, a frozen dataclass whose fields are the keys of the site's `[policies.NAME]`
    table; without any it takes its defaults. `decides_on` and `until` let the simulator leave out cycles in which the
    policy would decide as before; live, it decides in every cycle.
    """

    name: str = ""
    needs: frozenset[Need] = frozenset()
    """the forecasts that it is given"""
    decides_on: DecidesOn = "time"
    """What changes its decision. "events": only jobs that are submitted, start, end or change; a decision that was
    carried out is not revised before. "reports": also another iteration that a job reports. "time": also the time."""
    settings: Any
    """those it was made with"""

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank the managed jobs of the snapshot and say what is to happen to them."""
        raise NotImplementedError

    def until(self, snapshot: Snapshot) -> float | None:  # noqa: ARG002 other policies need the jobs
        """When time alone may change a decision without actions, where the policy places the jobs.

        Returns seconds since the epoch; infinite for never, None where the policy does not know.
        """
        return None if self.decides_on == "time" else inf

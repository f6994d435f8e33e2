"""Any policy, with the load control of MLFS beside it, so that gains by order and gains by stopping are told apart."""

from dataclasses import replace
from typing import Any

from policies.mlfs.load_control import LoadControlSettings, Outlook, judge_load, stops
from policies.plan import Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need

_OURS = "stopping."
"""before the names of what is remembered for the load control"""


class Stopping(Policy):
    """A policy's plan, and MLF-C's stops of what it leaves alone (Wang, Liu, Shen, CoNEXT 2020, section 3.5)."""

    def __init__(self, policy: Policy, settings: LoadControlSettings | None = None) -> None:
        self._policy, self._control = policy, settings or LoadControlSettings()
        self.name, self.settings = policy.name, policy.settings
        self.needs: frozenset[Need] = policy.needs | {"final"}

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Any) -> Plan:
        """The policy's plan, and the stops."""
        own = {name: value for name, value in memory.items() if not name.startswith(_OURS)}
        kept = {name.removeprefix(_OURS): value for name, value in memory.items() if name.startswith(_OURS)}
        plan = self._policy.decide(snapshot, forecasts, own)
        load = judge_load(snapshot, kept, self._control)
        look = Outlook.of(snapshot.jobs, forecasts.final, self._control, overloaded=load.overloaded)
        stopping = stops(snapshot, look, load, self._control)
        stopped = {action.job for action in stopping}
        return replace(
            plan,
            actions=(*(action for action in plan.actions if action.job not in stopped), *stopping),
            memory={**plan.memory, **{_OURS + name: value for name, value in load.memory.items()}},
        )

"""Any policy combined with the load control of MLFS: MLF-C beside a learnt policy, and beside a rival in simulations,
which separates gains by ordering from gains by early stopping."""

from dataclasses import replace
from typing import Any

import numpy as np

from policies.mlfs.early_stopping import StopCandidates, stop_actions
from policies.mlfs.load_control import LoadControlSettings, assess_load
from policies.plan import Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need

_PREFIX = "stopping."
"""of the load control's entries in the memory"""


class WithEarlyStopping(LearntPolicy):
    """A policy's plan, and MLF-C's stops of further jobs (Wang, Liu, Shen, CoNEXT 2020, section 3.5).

    A job that is being stopped keeps its GPUs until it has ended, and the policy plans without them, as MLFS does.
    It is a learnt policy where that policy is one.
    """

    def __init__(self, policy: Policy, settings: LoadControlSettings | None = None) -> None:
        self._policy, self._control = policy, settings or LoadControlSettings()
        self.name, self.settings, self.learnt = policy.name, policy.settings, policy.learnt
        self.made_from = policy.made_from
        self.needs: frozenset[Need] = policy.needs | {"final"}

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:
        """The policy's."""
        return self._policy.distance(snapshot, forecasts) if isinstance(self._policy, LearntPolicy) else 0.0

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Any) -> Plan:
        """The policy's plan, and the stops."""
        own = {name: value for name, value in memory.items() if not name.startswith(_PREFIX)}
        kept = {name.removeprefix(_PREFIX): value for name, value in memory.items() if name.startswith(_PREFIX)}
        jobs, load = snapshot.jobs, assess_load(snapshot, kept, self._control)
        candidates = StopCandidates.of(jobs, forecasts.final, self._control, overloaded=load.overloaded)
        stopping = stop_actions(snapshot, candidates, load, self._control)
        stopped = {action.job for action in stopping}
        if stopped:
            stays = np.array([key in stopped for key in jobs.keys])
            snapshot = replace(snapshot, jobs=replace(jobs, restartable=jobs.restartable & ~stays))
        plan = self._policy.decide(snapshot, forecasts, own)
        return replace(
            plan,
            actions=(*(action for action in plan.actions if action.job not in stopped), *stopping),
            memory={**plan.memory, **{_PREFIX + name: value for name, value in load.memory.items()}},
        )

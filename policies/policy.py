"""The base classes of every policy, and of those that decide by what they have learnt."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from policies.model import Shapes
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
    learnt: bool = False
    """whether it decides by a model; see `LearntPolicy`"""
    made_from: Mapping[str, str] = MappingProxyType({})
    """what it was made from, so that it can be made again; whoever makes policies from a configuration sets it"""

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank the managed jobs of the snapshot and say what is to happen to them."""
        raise NotImplementedError

    def until(self, snapshot: Snapshot) -> float | None:  # noqa: ARG002 other policies need the jobs
        """When time alone may change a decision without actions, where the policy places the jobs.

        Returns seconds since the epoch; infinite for never, None where the policy does not know.
        """
        return None if self.decides_on == "time" else inf


class LearntPolicy(Policy):
    """A policy that decides by a `policies.model.Model`.

    It is made as `P(settings, model)`. Its settings have `model: str = ""`, the path of a model's file; empty for the
    one that slurmplug comes with. Made as `P()`, only its settings and what the class declares are used. Made with a
    model, it may raise ValueError for one that it cannot use beyond what `version` and `shapes` say.
    """

    learnt = True
    """False in a class that decides without a model too, and sets it where it is made with one"""
    models: str = ""
    """the policy whose models it takes; empty for its own"""
    model_digest: str = ""
    """of the model that it was made with"""
    version: int = 1
    """of its features and their normalisation: a model of another version is refused"""
    shapes: Shapes = MappingProxyType({})
    """of the arrays that its models have"""
    optional: Shapes = MappingProxyType({})
    """of arrays that a model has all of, or none"""

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:  # noqa: ARG002 others need them
        """How far this state is from those that it was trained on: above 1 it does not know such states.

        `policies.seen_states` measures it. Where this is not overridden, every state counts as known.
        """
        return 0.0

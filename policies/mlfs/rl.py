"""MLF-RL: MLF-H's schedule, with order, sizes and nodes by a network (MLFS, Wang, Liu, Shen, CoNEXT 2020, section 3.4).

`policies.mlfs.network` says what the network reads and how it is asked.
"""

from dataclasses import dataclass
from typing import NamedTuple

from policies.mlfs import network
from policies.mlfs.mlfs import MLFHSettings, planned, problems, ranked
from policies.mlfs.network import Network, State
from policies.mlfs.preferences import Preferences, preferred
from policies.mlfs.priority import Ranking
from policies.model import Model
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLFRLSettings(MLFHSettings):
    """The settings of MLF-H; model: the file of a model, empty for the one that slurmplug comes with."""

    model: str = ""


class MLFRL(LearntPolicy):
    """MLF-H with the preferences of a network. Where the last layer is 0, it decides as MLF-H to the last bit."""

    name = network.POLICY
    needs: frozenset[Need] = frozenset({"total", "remaining"})
    version = network.VERSION
    shapes = network.SHAPES

    def __init__(self, settings: MLFRLSettings | None = None, model: Model | None = None) -> None:
        self.settings: MLFRLSettings = settings or MLFRLSettings()
        if self.settings.grow:
            self.needs = type(self).needs | {"speed", "guessed speed"}  # by its settings a policy may need more
        if model is not None:
            self.network = Network(model)
        self._measured: _Seen | None = None
        """of the last `distance`, until the decision on the same snapshot"""

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:
        """As `Network.distance` has it."""
        seen = self._measured = _Seen.of(snapshot, forecasts, self.settings)
        return self.network.distance(seen.state)

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """MLF-H's plan with the network's order, sizes and nodes."""
        seen, self._measured = self._measured, None
        if seen is None or seen.snapshot is not snapshot or seen.forecasts is not forecasts:
            seen = _Seen.of(snapshot, forecasts, self.settings)
        return plan(snapshot, forecasts, seen.ranking, self.network.preferences(seen.state), self.settings)


class _Seen(NamedTuple):
    """MLF-H's ranking of a snapshot, and what the network sees of it."""

    snapshot: Snapshot
    forecasts: Forecasts
    ranking: Ranking
    state: State

    @classmethod
    def of(cls, snapshot: Snapshot, forecasts: Forecasts, settings: MLFHSettings) -> "_Seen":
        ranking = ranked(snapshot, forecasts, settings)
        return cls(snapshot, forecasts, ranking, State.of(snapshot, ranking, settings))


def plan(
    snapshot: Snapshot, forecasts: Forecasts, ranking: Ranking, wanted: Preferences, settings: MLFHSettings
) -> Plan:
    """The plan by MLF-H's ranking and these preferences, which a training may draw at random."""
    ranking = preferred(ranking, wanted)
    actions = planned(snapshot, forecasts, ranking, (), settings, preferences=wanted)
    return Plan(ranking.score, ranking.terms, actions, notes=problems(snapshot.jobs, ranking))

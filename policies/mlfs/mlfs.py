"""MLFS: MLF-H's schedule, and with it MLF-C's load control and a model of MLF-RL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.mlfs import network
from policies.mlfs.early_stopping import StopCandidates, remaining_share, stop_actions
from policies.mlfs.growth import GrowthSettings, Movable, sizes
from policies.mlfs.load_control import LoadControlSettings, assess_load
from policies.mlfs.network import Network, State
from policies.mlfs.preferences import Preferences, preferred
from policies.mlfs.priority import PrioritySettings, Ranking, score
from policies.mlfs.schedule import ScheduleSettings, changeable, gives_way, schedule
from policies.mlfs.sizes import Sizes
from policies.model import Model
from policies.placement.allocation import elastic
from policies.placement.plans import admission_releases
from policies.plan import Action, Memory, Plan, Reason
from policies.policy import LearntPolicy, Policy
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Ints
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLFHSettings(PrioritySettings, ScheduleSettings, GrowthSettings):
    """The settings of MLF-H. Each part can be switched off, which shows its contribution.

    use_urgency = false: without the jobs' urgency; use_deadline = false; use_bandwidth = false: without regard to
    communication; migrate = false; preempt = false.
    """

    def __post_init__(self) -> None:
        PrioritySettings.__post_init__(self)
        ScheduleSettings.__post_init__(self)
        GrowthSettings.__post_init__(self)


@dataclass(frozen=True)
class MLFSSettings(MLFHSettings, LoadControlSettings):
    """The settings of MLF-H and of MLF-C.

    load_control: whether MLF-C is on. model: the file of a model of `mlf-rl`; empty for MLF-H's own decisions.
    """

    load_control: bool = True
    model: str = ""

    def __post_init__(self) -> None:
        MLFHSettings.__post_init__(self)
        LoadControlSettings.__post_init__(self)


class MLFH(Policy):
    """MLF-H of MLFS (Wang, Liu, Shen, CoNEXT 2020, section 3.3): priority, placement, migration.

    Of the paper it takes equations 2 to 6, task deadlines, the rank of parameter servers, the choice of servers and the
    migration from overloaded ones. It leaves out replicas against stragglers and the choice of a GPU in a server.
    Beyond the paper, running jobs are preempted for those of higher priority (`policies.mlfs.schedule`). Where Slurm
    places the jobs, only their rank has an effect.
    """

    name = "mlf-h"
    needs: frozenset[Need] = frozenset({"total", "remaining"})

    def __init__(self, settings: MLFHSettings | None = None) -> None:
        self.settings: MLFHSettings = settings or MLFHSettings()
        if self.settings.grow:
            self.needs = type(self).needs | {"speed", "guessed speed"}  # by its settings a policy may need more

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank the managed jobs, and migrate, preempt and place them."""
        ranking = ranked(snapshot, forecasts, self.settings)
        actions = planned(snapshot, forecasts, ranking, (), self.settings)
        return Plan(ranking.score, ranking.terms, actions, notes=problems(snapshot.jobs, ranking))


class MLFS(LearntPolicy):
    """MLFS (Wang, Liu, Shen, CoNEXT 2020): MLF-H, or with a model MLF-RL (section 3.4), and MLF-C's load control (3.5).

    What MLFH leaves out, it leaves out too.
    """

    name = "mlfs"
    needs: frozenset[Need] = frozenset({"total", "remaining", "final"})
    learnt = False
    models = network.POLICY
    version = network.VERSION
    shapes = network.SHAPES

    def __init__(self, settings: MLFSSettings | None = None, model: Model | None = None) -> None:
        self.settings: MLFSSettings = settings or MLFSSettings()
        if self.settings.grow:
            self.needs = type(self).needs | {"speed", "guessed speed"}  # by its settings a policy may need more
        self.learnt = model is not None
        self._network = None if model is None else Network(model)

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:
        """As `Network.distance` has it; 0 without a model."""
        if self._network is None:
            return 0.0
        return self._network.distance(State.of(snapshot, ranked(snapshot, forecasts, self.settings), self.settings))

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """MLF-H's decision, and the stops of jobs that have reached their target or never will."""
        jobs, settings = snapshot.jobs, self.settings
        load = assess_load(snapshot, memory, settings)
        candidates = StopCandidates.of(jobs, forecasts.final, settings, overloaded=load.overloaded)
        share = remaining_share(jobs, candidates) if settings.load_control else 1.0
        ranking = score(jobs, snapshot.now, forecasts, settings, share)
        stopping = stop_actions(snapshot, candidates, load, settings) if settings.load_control else ()
        wanted = None
        if self._network is not None:
            wanted = self._network.preferences(State.of(snapshot, ranking, settings))
            ranking = preferred(ranking, wanted)
        actions = (*stopping, *planned(snapshot, forecasts, ranking, stopping, settings, preferences=wanted))
        return Plan(ranking.score, ranking.terms, actions, load.memory, problems(snapshot.jobs, ranking))


def ranked(snapshot: Snapshot, forecasts: Forecasts, settings: PrioritySettings) -> Ranking:
    """MLF-H's priorities."""
    candidates = StopCandidates.of(snapshot.jobs, forecasts.final, LoadControlSettings(), overloaded=False)
    share = remaining_share(snapshot.jobs, candidates)
    return score(snapshot.jobs, snapshot.now, forecasts, settings, share)


def planned(
    snapshot: Snapshot,
    forecasts: Forecasts,
    ranking: Ranking,
    stopping: Sequence[Action],
    settings: MLFHSettings,
    *,
    preferences: Preferences | None = None,
) -> tuple[Action, ...]:
    """The actions of one decision, by these priorities; preferences: of sizes and nodes, None for MLF-H's own."""
    jobs = snapshot.jobs
    keys = {action.job for action in stopping}
    stopped = np.array([row for row, key in enumerate(jobs.keys) if key in keys] if keys else [], dtype=np.int64)
    nodes = preferences.of_nodes if preferences and preferences.query.any() else None
    resized = _sizes(snapshot, forecasts, ranking, stopped, settings, wants=preferences) if settings.grow else None
    actions = schedule(snapshot, ranking.score, ranking.remaining, stopped, settings, sizes=resized, nodes=nodes)
    return (*actions, *admission_releases(jobs))


def _sizes(
    snapshot: Snapshot,
    forecasts: Forecasts,
    ranking: Ranking,
    stopped: Ints,
    settings: MLFHSettings,
    *,
    wants: Preferences | None,
) -> Sizes | None:
    """The GPUs of the elastic jobs."""
    resize = changeable(snapshot, stopped, settings) & settings.preempt
    rigid = resize & ~elastic(snapshot.jobs)
    movable = Movable(resize, gives_way(snapshot.jobs, ranking.score, ranking.remaining, rigid, settings))
    restart = settings.restart
    return sizes(snapshot, ranking, forecasts, movable, settings, restart=restart, preferences=wants)


def problems(jobs: Jobs, ranking: Ranking) -> Mapping[JobKey, Reason]:
    """The managed jobs with a dependency cycle or a missing parent."""
    dependencies = ranking.dependencies
    rows = np.flatnonzero((dependencies.cyclic | dependencies.orphaned) & jobs.managed).tolist()
    rules = {row: "dependency-cycle" if dependencies.cyclic[row] else "parent-missing" for row in rows}
    return {jobs.keys[row]: Reason(rule) for row, rule in rules.items()}

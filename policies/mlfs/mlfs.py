"""MLFS without learning: MLF-H's schedule, and with it MLF-C's load control."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.baselines.common import admitted
from policies.mlfs.growth import GrowthSettings, grow
from policies.mlfs.load_control import LoadControlSettings, Outlook, judge_load, share_left, stops
from policies.mlfs.placement import Servers
from policies.mlfs.priority import PrioritySettings, Ranking, rank
from policies.mlfs.schedule import ScheduleSettings, changeable, schedule
from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLFHSettings(PrioritySettings, ScheduleSettings, GrowthSettings):
    """The settings of MLF-H. What its parts are worth is told by going without them.

    use_urgency = false: without the jobs' urgency; use_deadline = false; use_bandwidth = false: without regard to
    communication; migrate = false; preempt = false.
    """

    def __post_init__(self) -> None:
        PrioritySettings.__post_init__(self)
        ScheduleSettings.__post_init__(self)
        GrowthSettings.__post_init__(self)


@dataclass(frozen=True)
class MLFSSettings(MLFHSettings, LoadControlSettings):
    """The settings of MLF-H and of MLF-C; load_control: whether there is MLF-C."""

    load_control: bool = True

    def __post_init__(self) -> None:
        MLFHSettings.__post_init__(self)
        LoadControlSettings.__post_init__(self)


class MLFH(Policy):
    """MLF-H of MLFS (Wang, Liu, Shen, CoNEXT 2020, section 3.3): priority, placement, migration.

    Of the paper it takes equations 2 to 6, task deadlines, the rank of parameter servers, the choice of servers and the
    migration from overloaded ones. It leaves out replicas against stragglers and the choice of a GPU in a server.
    Beyond the paper, running jobs give way to those of higher priority (`policies.mlfs.schedule`). Where Slurm places
    the jobs, their rank does the work.
    """

    name = "mlf-h"
    needs: frozenset[Need] = frozenset({"total", "remaining"})

    def __init__(self, settings: MLFHSettings | None = None) -> None:
        self.settings: MLFHSettings = settings or MLFHSettings()
        if self.settings.grow:
            self.needs = type(self).needs | {"speed"}  # by its settings a policy may need more

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank the managed jobs, and move, preempt and place."""
        jobs = snapshot.jobs
        look = Outlook.of(jobs, forecasts.final, LoadControlSettings(), overloaded=False)
        ranking = rank(jobs, snapshot.now, forecasts, self.settings, share_left(jobs, look))
        actions = _moves(snapshot, forecasts, ranking, (), self.settings)
        return Plan(ranking.rank, ranking.terms, actions, notes=_notes(snapshot.jobs, ranking))


class MLFS(Policy):
    """MLFS (Wang, Liu, Shen, CoNEXT 2020): MLF-H, and MLF-C's load control (section 3.5).

    Beside what MLFH leaves out, it leaves out MLF-RL (3.4), the learned placement.
    """

    name = "mlfs"
    needs: frozenset[Need] = frozenset({"total", "remaining", "final"})

    def __init__(self, settings: MLFSSettings | None = None) -> None:
        self.settings: MLFSSettings = settings or MLFSSettings()
        if self.settings.grow:
            self.needs = type(self).needs | {"speed"}  # by its settings a policy may need more

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """MLF-H's decision, and the stops of jobs that have learnt what they were to learn or never will."""
        jobs, settings = snapshot.jobs, self.settings
        load = judge_load(snapshot, memory, settings)
        look = Outlook.of(jobs, forecasts.final, settings, overloaded=load.overloaded)
        share = share_left(jobs, look) if settings.load_control else 1.0
        ranking = rank(jobs, snapshot.now, forecasts, settings, share)
        asked = stops(snapshot, look, load, settings) if settings.load_control else ()
        actions = (*asked, *_moves(snapshot, forecasts, ranking, asked, settings))
        return Plan(ranking.rank, ranking.terms, actions, load.memory, _notes(snapshot.jobs, ranking))


def _moves(
    snapshot: Snapshot, forecasts: Forecasts, ranking: Ranking, stopping: Sequence[Action], settings: MLFHSettings
) -> tuple[Action, ...]:
    """The actions of one decision. Where a node is overloaded, jobs keep their GPUs in number until it is relieved."""
    jobs = snapshot.jobs
    keys = {action.job for action in stopping}
    spared = np.array([row for row, key in enumerate(jobs.keys) if key in keys] if keys else [], dtype=np.int64)
    if not settings.grow or (settings.migrate and Servers(snapshot, settings).overloaded().any()):
        return (*schedule(snapshot, ranking.rank, ranking.remaining, spared, settings), *admitted(jobs))
    free = changeable(snapshot, spared, settings) & settings.preempt
    worth = settings.restart / settings.loss if settings.loss else np.inf
    sized = grow(snapshot, ranking.rank, ranking.remaining, forecasts.speed, free, keep=settings.keep, spared=worth)
    return (*sized, *admitted(jobs))


def _notes(jobs: Jobs, ranking: Ranking) -> Mapping[JobKey, Reason]:
    """The managed jobs whose dependencies make no sense."""
    dependencies = ranking.dependencies
    rows = np.flatnonzero((dependencies.cyclic | dependencies.orphaned) & jobs.managed).tolist()
    rules = {row: "dependency-cycle" if dependencies.cyclic[row] else "parent-missing" for row in rows}
    return {jobs.keys[row]: Reason(rule) for row, rule in rules.items()}

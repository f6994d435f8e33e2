"""MLFS without learning: MLF-H's order, and with it MLF-C's load control."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from policies.mlfs.load_control import LoadControlSettings, judge_load, stops
from policies.mlfs.priority import PrioritySettings, Ranking, rank
from policies.plan import Memory, Plan, Reason
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLFSSettings(PrioritySettings, LoadControlSettings):
    """The settings of MLF-H and of MLF-C."""

    def __post_init__(self) -> None:
        PrioritySettings.__post_init__(self)
        LoadControlSettings.__post_init__(self)


class MLFH:
    """The priority of MLFS (Wang, Liu, Shen, CoNEXT 2020, section 3.3.1), for Slurm to place the jobs.

    Of the paper it takes equations 2 to 6, task deadlines and the rank of parameter servers. It leaves out the choice
    of servers (3.3.2) and the migration from overloaded ones (3.3.3): Slurm places, and nothing moves.
    """

    name: ClassVar[str] = "mlf-h"
    needs: ClassVar[frozenset[Need]] = frozenset({"total", "remaining"})

    def __init__(self, settings: PrioritySettings | None = None) -> None:
        self.settings = settings or PrioritySettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank the managed jobs; no action."""
        ranking = rank(snapshot.jobs, snapshot.now, forecasts, self.settings)
        return Plan(ranking.rank, ranking.terms, notes=_notes(snapshot.jobs, ranking))


class MLFS:
    """MLF-H's priority and MLF-C's load control (Wang, Liu, Shen, CoNEXT 2020, sections 3.3.1 and 3.5).

    Beside what MLFH leaves out, it leaves out MLF-RL (3.4), the learned placement.
    """

    name: ClassVar[str] = "mlfs"
    needs: ClassVar[frozenset[Need]] = frozenset({"total", "remaining", "final"})

    def __init__(self, settings: MLFSSettings | None = None) -> None:
        self.settings = settings or MLFSSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank the managed jobs, and stop those that have learnt what they were to learn or never will."""
        ranking = rank(snapshot.jobs, snapshot.now, forecasts, self.settings)
        load = judge_load(snapshot, memory, self.settings)
        actions = stops(snapshot, forecasts.final, load, self.settings)
        return Plan(ranking.rank, ranking.terms, actions, load.memory, _notes(snapshot.jobs, ranking))


def _notes(jobs: Jobs, ranking: Ranking) -> Mapping[JobKey, Reason]:
    """The managed jobs whose dependencies make no sense."""
    dependencies = ranking.dependencies
    rules = np.select([dependencies.cyclic, dependencies.orphaned], ["dependency-cycle", "parent-missing"], "")
    return {jobs.keys[row]: Reason(str(rules[row])) for row in np.flatnonzero((rules != "") & jobs.managed)}

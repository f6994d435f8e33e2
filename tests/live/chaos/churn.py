"""A policy that does something to everybody, by chance: every kind of action, again and again."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from policies.plan import Action, ActionKind, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts

PATIENCE = 0.3
"""the chance that a job that can be moved is left alone in a cycle"""

MOVES: tuple[ActionKind, ...] = ("resize", "resize", "migrate", "migrate", "preempt")
"""Who is preempted waits for two minutes, as Slurm has it, in which nothing can be done to it."""


@dataclass(frozen=True)
class Settings:
    """None."""


class Churn(Policy):
    """Not to be used where anybody waits for a result."""

    name = "churn"

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Ranks by chance; resizes, moves, preempts, stops and admits by chance."""
        jobs, rng = snapshot.jobs, np.random.default_rng(snapshot.seed)
        draws = rng.random((len(jobs), 2))
        actions = []
        for row, key in enumerate(jobs.keys):
            kind = self._kind(jobs, row, draws[row])
            more: dict[str, Any] = {}
            if kind == "resize":
                more["gpus"] = int(rng.integers(jobs.gpus_min[row], jobs.gpus_max[row] + 1))
            if kind:
                actions.append(Action(kind, key, Reason("share"), **more))
        return Plan(rng.random(len(jobs)), actions=tuple(actions))

    @staticmethod
    def _kind(jobs: Jobs, row: int, draw: Floats) -> ActionKind | Literal[""]:
        if jobs.awaits[row]:
            return "release" if draw[0] > PATIENCE else ""
        if jobs.state[row] == "pending" and jobs.gpus_max[row] > jobs.gpus_min[row]:
            return "resize" if draw[0] < 0.1 else ""
        if jobs.state[row] != "running":
            return ""
        if jobs.stop[row] == "target":
            return "stop" if draw[0] < 0.3 else ""
        if not jobs.restartable[row] or draw[0] < PATIENCE:
            return ""
        return MOVES[int(draw[1] * len(MOVES))]

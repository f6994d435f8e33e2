"""A policy that does something to everybody, by chance: every kind of action, again and again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

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
STEERED = 0.7
"""the share of the moves that are of the kinds that `steer`, a file beside this one, wants"""


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
        draws = rng.random((len(jobs), 3))
        actions = []
        steer = wanted()
        for row, key in enumerate(jobs.keys):
            kind = self._kind(jobs, row, draws[row], steer)
            more: dict[str, Any] = {}
            if kind == "resize":
                more["gpus"] = int(rng.integers(jobs.gpus_min[row], jobs.gpus_max[row] + 1))
            if kind:
                actions.append(Action(kind, key, Reason("share"), **more))
        return Plan(rng.random(len(jobs)), actions=tuple(actions))

    @staticmethod
    def _kind(jobs: Jobs, row: int, draw: Floats, steer: Mapping[str, Any]) -> ActionKind | Literal[""]:
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
        if kind := steer["jobs"].get(str(jobs.keys[row].job_id)):
            return cast(ActionKind, kind)
        moves = steer["kinds"] if steer["kinds"] and draw[2] < STEERED else MOVES
        return moves[int(draw[1] * len(moves))]


def wanted() -> Mapping[str, Any]:
    """The kinds of moves that are wanted, and what is wanted of which job."""
    path = Path(__file__).with_name("steer")
    return cast(Mapping[str, Any], json.loads(path.read_text())) if path.exists() else {"kinds": (), "jobs": {}}

"""Many tiny jobs that are to be stopped or requeued, so that nothing of the site's budget is left for others."""

from collections.abc import Mapping

import numpy as np

from policies.plan import Action, ActionKind, Plan, Reason
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules.guardrails import Past, check
from tests.builders import NOW, jobs, nodes, snapshot
from tests.cheat.harness import HONEST, Outcome, Row, Stage

LIMITS = Guardrails(stops_per_hour=20, requeues_per_hour=20, requeues_per_cycle=20)
KINDS: Mapping[str, ActionKind] = {"stops": "stop", "requeues": "preempt"}
ATTEMPTS = tuple(f"{number} {kind}" for kind in KINDS for number in (5, 20, 200))
WANTED = 4


def play(attempt: str, stage: Stage) -> Outcome:
    """How many of the bystander's actions of a kind are carried out, of those that were wanted."""
    if attempt == HONEST:
        return Outcome(1.0, 1.0)
    number, _, kind = attempt.partition(" ")
    return Outcome(1.0, carried_out(KINDS[kind], int(number)) / carried_out(KINDS[kind], 0))


def carried_out(kind: ActionKind, greedy: int) -> float:
    """How many of the bystander's actions are allowed beside so many of the cheater's, which come first."""
    users = ["cheater"] * greedy + ["bystander"] * WANTED
    running = jobs(len(users), user=users, state="running", restartable=True, started=NOW - 1e5, attained=1e7)
    seen = snapshot(running, nodes(1))
    actions = tuple(Action(kind, key, Reason("test")) for key in running.keys)
    verdict = check(seen, Plan(np.zeros(len(users)), actions=actions), Past(NOW), Modes(default="act"), LIMITS)
    own = set(running.keys[greedy:])
    return sum(action.job in own for action in verdict.actions) + 1e-3


ROWS = (Row("19", "many tiny jobs", "others' actions carried out", ATTEMPTS, play),)

"""Budgets: what one user's jobs cause leaves the other users their part of it."""

from collections.abc import Sequence

import numpy as np
import pytest

from policies.plan import Action, ActionKind, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules.budgets import default_per_user
from slurmplug.rules.guardrails import Past, Requeue, check
from tests.builders import CLUSTER, NOW, jobs, nodes, snapshot

ACT = Modes(default="act", admit="act")


def of_users(users: Sequence[str]) -> Snapshot:
    """Running jobs of these users that may be stopped, moved or preempted, and that wait for admission."""
    n = len(users)
    running = jobs(n, user=users, state="running", restartable=True, started=NOW - 1e4, attained=1e6, awaits=True)
    return snapshot(running, nodes(1))


def acted_on(kind: ActionKind, users: Sequence[str], past: Past, limits: Guardrails) -> list[str]:
    """The users whose jobs are acted on, of a plan that names all jobs in their order."""
    seen = of_users(users)
    plan = Plan(np.zeros(len(users)), actions=tuple(Action(kind, key, Reason("test")) for key in seen.jobs.keys))
    verdict = check(seen, plan, past, ACT, limits)
    return [str(seen.jobs.user[seen.jobs.keys.index(action.job)]) for action in verdict.actions]


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("stop", Guardrails(stops_per_hour=20, stops_per_cycle=20)),
        ("preempt", Guardrails(requeues_per_hour=20, requeues_per_cycle=20)),
        ("release", Guardrails(admissions_per_hour=20, admissions_per_cycle=20)),
    ],
)
def test_one_users_many_jobs_leave_the_others_their_part_of_an_hour(kind: ActionKind, limits: Guardrails) -> None:
    greedy = ["greedy"] * 20
    assert acted_on(kind, [*greedy, "honest"], Past(NOW), limits) == ["greedy"] * 4 + ["honest"]


def test_what_a_user_spent_in_the_last_hour_counts() -> None:
    spent = {"greedy": 3}
    keys = [JobKey(CLUSTER, 100 + i, 0) for i in range(3)]
    past = Past(
        NOW,
        stops_last_hour=spent,
        admissions_last_hour=spent,
        requeues=tuple(Requeue(key, "greedy", NOW - 60.0) for key in keys),
    )
    limits = Guardrails(stops_per_user=4, requeues_per_user=4, admissions_per_user=4)
    for kind in ("stop", "preempt", "release"):
        assert acted_on(kind, ["greedy", "greedy", "honest"], past, limits) == ["greedy", "honest"]


def test_an_admission_in_progress_that_is_repeated_spends_nothing() -> None:
    seen = of_users(["ada"])
    past = Past(NOW, admissions_last_hour={"ada": 1}, admitting=frozenset(seen.jobs.keys))
    assert acted_on("release", ["ada"], past, Guardrails(admissions_per_user=1)) == ["ada"]


@pytest.mark.parametrize(("per_hour", "per_user"), [(0, 0), (1, 1), (4, 1), (20, 4), (60, 12), (200, 40)])
def test_a_users_part_is_a_fifth_but_at_least_one(per_hour: int, per_user: int) -> None:
    assert default_per_user(per_hour) == per_user

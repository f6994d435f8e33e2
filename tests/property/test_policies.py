"""What must hold of every policy that is installed, for every queue and whatever is known of it."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.placement.allocation import movable, startable
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.config import policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.rules.valid_plan import validate_plan
from tests.builders import NOW, jobs, nodes, on_networks, snapshot

HOUR = 3600.0
FULL = [4.0, 32.0, 131_072.0]
NAMES = policy_names.names()
POLICIES = {name: policy_registry.policy(Config.from_table({"policy": name})) for name in NAMES}


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to five nodes, one perhaps down, and up to nine jobs, of which those run that were put on them one by one."""
    n, m = draw(st.integers(0, 9)), draw(st.integers(0, 5))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    gpus = np.array(column(st.integers(1, 9)), dtype=np.int64)
    least = np.array(column(st.booleans()), dtype=np.bool_)
    demand = np.stack([gpus, gpus * np.array(column(st.integers(1, 8)), dtype=np.float64), gpus * 100.0], axis=1)
    free = np.tile(FULL, (m, 1))
    runs_on, runs = [], np.zeros(n, dtype=bool)
    for row in np.flatnonzero(column(st.booleans())).tolist():
        left = int(gpus[row])
        places = []
        for node in range(m):
            part = int(min(left, free[node, 0], free[node, 1] // (demand[row, 1] / gpus[row])))
            places += [(row, node, part)] if part else []
            left -= part
        if left == 0:
            runs[row] = True
            runs_on += places
            for _, node, part in places:
                free[node] -= demand[row] * part / gpus[row]
    of_jobs = jobs(
        n,
        gpus=gpus,
        gpus_min=np.where(least, 1, gpus),
        gpus_max=np.where(least, gpus + draw(st.integers(0, 6)), gpus),
        demand=demand,
        state=np.where(runs, "running", "pending"),
        started=np.where(runs, NOW - np.array(column(st.floats(0, 9 * HOUR)), dtype=np.float64), np.nan),
        submitted=NOW - 10 * HOUR + np.array(column(st.integers(0, 3)), dtype=np.float64),
        reason=np.where(runs, "None", np.array(column(st.sampled_from(["Resources", "Dependency"])), dtype=np.str_)),
        managed=column(st.sampled_from([True, True, True, False])),
        restartable=column(st.sampled_from([True, True, False])),
        awaits=~runs & np.array(column(st.sampled_from([False, False, True])), dtype=np.bool_),
        attained=column(st.sampled_from([0.0, 1000.0, 100_000.0])),
        iteration=column(st.integers(0, 50)),
        iteration_time=column(st.sampled_from([np.nan, 30.0])),
        max_iterations=column(st.sampled_from([np.nan, 60.0])),
        deadline=column(st.sampled_from([np.nan, NOW - HOUR, NOW + HOUR])),
        target=column(st.sampled_from([np.nan, 0.7])),
        urgency=column(st.sampled_from([np.nan, 7.0])),
        losses=column(st.lists(st.floats(0, 10), max_size=5)),
        accuracies=column(st.lists(st.floats(0, 1), max_size=5)),
        utility=np.reshape(column(st.sampled_from([[np.nan] * 3, [50.0, 0.001, HOUR]])), (n, 3)),
        placement=column(st.integers(0, 1)),
        elements=np.where(runs, 1, column(st.integers(1, 3))),
    )
    fits = np.ones((2, m), dtype=bool)
    fits[1] = draw(st.lists(st.booleans(), min_size=m, max_size=m))
    on = np.array(runs_on, dtype=np.int64).reshape(-1, 3)
    fits[1, on[of_jobs.placement[on[:, 0]] == 1, 1]] = True
    of_jobs = on_networks(of_jobs, np.full(m, draw(st.sampled_from([np.nan, 0.5, 0.99]))), on)
    on_nodes = nodes(m, used=FULL - free)
    return snapshot(of_jobs, on_nodes, runs_on=on, fits=fits[: int(of_jobs.placement.max(initial=0)) + 1])


@st.composite
def predictions(draw: st.DrawFn, n: int) -> Forecasts:
    """Nothing is known, or something of all jobs."""
    if n == 0 or draw(st.booleans()):
        return Forecasts.unknown(n)
    seconds = np.array(draw(st.lists(st.floats(1, 1e5), min_size=n, max_size=n)))
    total, remaining = Forecast.lognormal(seconds, 0.5, "test"), Forecast.lognormal(seconds / 2, 0.5, "test")
    rows, gpus = np.arange(n), np.tile([1.0, 4.0, 16.0], (n, 1))
    speed = Fan.of(n, rows, gpus, [Forecast.certain(np.full(n, rate), "test") for rate in (0.01, 0.03, 0.05)])
    curve = [Forecast.normal(np.full(n, mean), 0.05, "test") for mean in (0.1, 0.6, 0.8)]
    fan = Fan.of(n, rows, np.tile([1.0, 30.0, 60.0], (n, 1)), curve)
    return Forecasts(total, remaining, Forecast.normal(np.full(n, 0.8), 0.05, "test"), fan, fan, speed)


@st.composite
def cycles(draw: st.DrawFn) -> tuple[Snapshot, Forecasts]:
    given_snapshot = draw(clusters())
    return given_snapshot, draw(predictions(len(given_snapshot.jobs)))


def decided(name: str, cycle: tuple[Snapshot, Forecasts], memory: Memory = NOTHING_REMEMBERED) -> Plan:
    return validate_plan(cycle[0], POLICIES[name].decide(*cycle, memory))


def after(given_snapshot: Snapshot, plan: Plan) -> np.ndarray:
    """(nodes, resources) what is in use once the actions took effect."""
    used = given_snapshot.nodes.used.copy()
    of_jobs = given_snapshot.jobs
    rows = {key: row for row, key in enumerate(of_jobs.keys)}
    at = {name: node for node, name in enumerate(given_snapshot.nodes.names)}
    each = of_jobs.demand / of_jobs.gpus[:, None]
    for action in plan.actions:
        if action.kind in ("preempt", "resize", "migrate"):
            for _, node, share in given_snapshot.runs_on[given_snapshot.runs_on[:, 0] == rows[action.job]].tolist():
                used[node] -= each[rows[action.job]] * share
    for action in plan.actions:
        for name, share in zip(action.nodes, action.shares, strict=True):
            used[at[name]] += each[rows[action.job]] * share
    return used


@settings(max_examples=40)
@given(cycles())
def test_no_policy_puts_more_on_a_node_than_there_is(cycle: tuple[Snapshot, Forecasts]) -> None:
    for name in NAMES:
        used = after(cycle[0], decided(name, cycle))
        assert np.all(used <= cycle[0].nodes.capacity + 1e-6), name


@settings(max_examples=40)
@given(cycles())
def test_every_action_is_one_that_its_job_allows(cycle: tuple[Snapshot, Forecasts]) -> None:
    for name in NAMES:
        check_actions(name, *cycle)


def check_actions(name: str, given_snapshot: Snapshot, predicted: Forecasts) -> None:
    of_jobs = given_snapshot.jobs
    rows = {key: row for row, key in enumerate(of_jobs.keys)}
    may_start, may_move = startable(of_jobs), movable(of_jobs)
    plan = decided(name, (given_snapshot, predicted))
    moves = [action for action in plan.actions if action.kind in ("place", "resize", "migrate", "preempt")]
    assert max(Counter(action.job for action in moves).values(), default=1) == 1, name
    for action in plan.actions:
        row = rows[action.job]
        if action.kind == "place":
            assert may_start[row], name
        elif action.kind in ("resize", "migrate", "preempt"):
            assert may_move[row], name
        else:
            assert of_jobs.managed[row], name
        if action.nodes:
            assert sum(action.shares) == action.gpus, name
            assert of_jobs.gpus_min[row] <= action.gpus <= of_jobs.gpus_max[row], name
            on = [given_snapshot.nodes.names.index(node) for node in action.nodes]
            assert given_snapshot.fits[of_jobs.placement[row], on].all(), name
    assert np.isnan(plan.score[~of_jobs.managed]).all(), name


@settings(max_examples=40)
@given(cycles())
def test_the_same_cycle_is_decided_the_same_way(cycle: tuple[Snapshot, Forecasts]) -> None:
    for name in NAMES:
        first, second = decided(name, cycle), decided(name, cycle)
        assert np.array_equal(first.score, second.score, equal_nan=True), name
        assert first.actions == second.actions, name
        assert first.memory.keys() == second.memory.keys(), name
        for key in first.memory:
            np.testing.assert_array_equal(first.memory[key], second.memory[key], f"{name}: {key}")


@settings(max_examples=40)
@given(cycles(), cycles())
def test_what_is_remembered_of_other_jobs_does_no_harm(
    cycle: tuple[Snapshot, Forecasts], other: tuple[Snapshot, Forecasts]
) -> None:
    for name in NAMES:
        decided(name, cycle, decided(name, other).memory)


@pytest.mark.parametrize("name", NAMES)
def test_without_jobs_or_nodes_there_is_a_plan(name: str) -> None:
    for empty in (snapshot(jobs(0), nodes(0)), snapshot(jobs(0)), snapshot(jobs(3), nodes(0))):
        plan = decided(name, (empty, Forecasts.unknown(len(empty.jobs))))
        assert [action for action in plan.actions if action.kind == "place"] == []


RANKS_ONLY = {"slurm", "mlf-h", "mlfs", "oasis", "ml-sjf", "slaq", "slaq-maxmin", "dl2", "mlf-rl"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RANKS_ONLY])
def test_an_idle_cluster_runs_whatever_fits(name: str) -> None:
    given_snapshot = snapshot(jobs(3, gpus=[2, 1, 4], managed=[True, False, True]), nodes(2))
    plan = decided(name, (given_snapshot, Forecasts.unknown(3)))
    assert {action.job.job_id for action in plan.actions if action.kind == "place"} == {1, 2, 3}

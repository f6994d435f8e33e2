"""MLF-RL: MLF-H with the preferences of a network."""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from policies.mlfs import network, rl
from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings, ranked
from policies.mlfs.priority import score
from policies.mlfs.rl import MLFRL
from policies.mlfs.schedule import _Preemption
from policies.plan import Plan
from policies.policy import Policy
from predictors.forecast import Forecast, Forecasts
from slurmplug.config import model_files
from slurmplug.cycle.observed import Decided, Observed
from slurmplug.rules.valid_plan import validate_plan
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load
from tests.builders import NOW, forecasts, jobs, nodes, snapshot
from tests.learnt_models import mlf_rl, network_that_prefers
from tests.unit.policies.mlfs.test_growth import HOUR, cluster, predict

WORKLOADS = ("gen:mlfs?x=0.1", "gen:mlfs?x=0.1&partitions=on&elastic=off")


def cycles(name: str, policy: Policy, most: int = 120) -> Iterator[tuple[Observed, Plan]]:
    """What each cycle of a crowded simulation observed, and the plan that the policy made of it."""
    settings = SimulationSettings("4x8", seed=1000)
    simulation = Simulation(load.load(name, seed=1000, load=20.0, jobs=None, data=None), MLFH(), settings)
    under_way = simulation.cycles()
    observed = next(under_way)
    for _ in range(most):
        made = policy.decide(observed.snapshot, observed.forecasts, observed.memory)
        yield observed, made
        try:
            observed = under_way.send(Decided(observed, validate_plan(observed.snapshot, made)))
        except StopIteration:
            return


def state_of(observed: Observed) -> network.State:
    ranking = score(observed.snapshot.jobs, observed.snapshot.now, observed.forecasts, MLFHSettings())
    return network.State.of(observed.snapshot, ranking, MLFHSettings())


def busiest(name: str) -> Observed:
    return max((observed for observed, _ in cycles(name, MLFH())), key=lambda each: len(each.snapshot.jobs))


@pytest.mark.parametrize("name", WORKLOADS)
def test_with_a_last_layer_of_zeros_it_decides_exactly_as_mlf_h(name: str) -> None:
    policy = MLFRL(model=mlf_rl(network.initial(0)))
    acted = 0
    for observed, plan in cycles(name, MLFH()):
        own = policy.decide(observed.snapshot, observed.forecasts, {})
        np.testing.assert_array_equal(own.score, plan.score)
        assert own.actions == plan.actions
        acted += len(plan.actions)
    assert acted > 20


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_last_layer_decides_otherwise_and_places_nothing_where_it_does_not_fit(name: str) -> None:
    policy, differ, placed = MLFRL(model=mlf_rl(network_that_prefers())), 0, 0
    for observed, plan in cycles(name, policy):
        snapshot = observed.snapshot
        differ += plan.actions != MLFH().decide(snapshot, observed.forecasts, observed.memory).actions
        leaving = {action.job for action in plan.actions if action.kind != "release"}
        rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}
        names = {name: node for node, name in enumerate(snapshot.nodes.names)}
        held = np.zeros(len(names))
        for row, node, gpus in snapshot.runs_on.tolist():
            held[node] += gpus if snapshot.jobs.keys[row] not in leaving else 0
        for action in plan.actions:
            for node, share in zip(action.nodes, action.shares, strict=True):
                assert snapshot.fits[snapshot.jobs.placement[rows[action.job]], names[node]]
                held[names[node]] += share
                placed += 1
        assert (held <= snapshot.nodes.capacity[:, 0]).all()
    assert differ
    assert placed > 20


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_order_in_which_jobs_and_nodes_are_given_has_no_effect(name: str) -> None:
    state, arrays, rng = state_of(busiest(name)), network_that_prefers(), np.random.default_rng(3)
    n, m = len(state.jobs), len(state.nodes)
    of_jobs, of_nodes = rng.permutation(n), rng.permutation(m)
    new_job, new_node = np.argsort(of_jobs), np.argsort(of_nodes)
    other = replace(
        state,
        jobs=state.jobs[of_jobs],
        nodes=state.nodes[of_nodes],
        edges=new_job[state.edges],
        on=np.column_stack([new_job[state.on[:, 0]], new_node[state.on[:, 1]]]),
    )
    first, second = network.preferences(arrays, state), network.preferences(arrays, other)
    assert np.ptp(first.order) > 0.1
    np.testing.assert_allclose(second.order, first.order[of_jobs], atol=1e-4)
    np.testing.assert_allclose(second.size, first.size[of_jobs], atol=1e-4)
    np.testing.assert_allclose(second.width, first.width[of_jobs], atol=1e-4)
    for row, was in enumerate(of_jobs.tolist()):
        np.testing.assert_allclose(second.of_nodes(row, np.arange(m)), first.of_nodes(was, of_nodes), atol=1e-4)


def test_a_decision_ranks_a_snapshot_once_that_was_just_measured_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, seen, other = MLFRL(model=mlf_rl(network_that_prefers())), *(busiest(name) for name in WORKLOADS)
    wanted = policy.decide(seen.snapshot, seen.forecasts, {})
    counting = Mock(wraps=ranked)
    monkeypatch.setattr(rl, "ranked", counting)
    policy.distance(seen.snapshot, seen.forecasts)
    found = policy.decide(seen.snapshot, seen.forecasts, {})
    assert counting.call_count == 1
    assert found.actions == wanted.actions
    np.testing.assert_array_equal(found.score, wanted.score)
    policy.distance(other.snapshot, other.forecasts)
    assert policy.decide(seen.snapshot, seen.forecasts, {}).actions == wanted.actions
    policy.decide(seen.snapshot, seen.forecasts, {})
    assert counting.call_count == 4


def test_gangs_that_nothing_is_left_for_are_not_tried_and_the_plan_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    n, runs = 300, 40
    random, at = np.random.default_rng(0), np.arange(n)
    of_jobs = jobs(
        n,
        state=np.where(at < runs, "running", "pending"),
        started=np.where(at < runs, NOW - 1_000.0, np.nan),
        restartable=True,
        submitted=NOW - random.exponential(20_000, n),
        waited=random.exponential(10_000, n),
        ml_job=np.where(at < runs, at, at - (at - runs) % 3),
    )
    on = np.stack([at[:runs], at[:runs] // 4, np.ones(runs, dtype=np.int64)], axis=1)
    there = nodes(11, capacity=[4, 32, 0], used=np.array([[4.0, 4.0, 0.0]] * 10 + [[0.0, 0.0, 0.0]]))
    total = Forecast.lognormal(random.lognormal(9, 1, n), 0.5, "test")
    nothing = forecasts(n)
    predicted = Forecasts(total, total, nothing.final, nothing.accuracy, nothing.loss, nothing.speed)
    asked = snapshot(of_jobs, there, runs_on=on)
    counting = Mock(wraps=_Preemption.make_room)

    def make_room(*arguments: object) -> object:
        return counting(*arguments)

    monkeypatch.setattr(_Preemption, "make_room", make_room)
    plan = MLFH().decide(asked, predicted, {})
    fewer = counting.call_count
    monkeypatch.setattr(_Preemption, "may_help", lambda _, score, __: np.ones(len(score), dtype=bool))
    assert MLFH().decide(asked, predicted, {}).actions == plan.actions
    assert {action.kind for action in plan.actions} == {"place", "preempt"}
    assert 0 < fewer < counting.call_count - fewer


def test_the_dependencies_and_where_jobs_run_matter() -> None:
    state, arrays = state_of(busiest(WORKLOADS[1])), network_that_prefers()
    assert len(state.edges)
    whole = network.preferences(arrays, state)
    for without in (replace(state, edges=state.edges[:0]), replace(state, on=state.on[:0])):
        assert np.abs(network.preferences(arrays, without).order - whole.order).max() > 1e-3


def test_features_are_finite_and_small() -> None:
    for name in WORKLOADS:
        state = state_of(busiest(name))
        for features, width in ((state.jobs, network.JOB_FEATURES), (state.nodes, network.NODE_FEATURES)):
            assert features.shape[1] == width
            assert np.isfinite(features).all()
            assert np.abs(features).max() < 5


def test_an_empty_cluster_has_nothing_to_prefer() -> None:
    nothing = np.zeros((0, 2), dtype=np.int64)
    state = network.State(
        np.zeros((0, network.JOB_FEATURES), np.float32),
        np.zeros((0, network.NODE_FEATURES), np.float32),
        nothing,
        nothing,
        np.zeros(0, dtype=bool),
    )
    preferred = network.preferences(network_that_prefers(), state)
    assert len(preferred.order) == len(preferred.key) == 0


def test_mlfs_with_a_model_stops_the_same_jobs_and_prefers_as_mlf_rl() -> None:
    zeros, drawn = (MLFS(model=mlf_rl(each)) for each in (network.initial(0), network_that_prefers()))
    differ = 0
    for observed, plan in cycles(WORKLOADS[0], MLFS()):
        asked = observed.snapshot, observed.forecasts, observed.memory
        assert zeros.decide(*asked).actions == plan.actions
        stops = {action.job for action in plan.actions if action.kind == "stop"}
        other = drawn.decide(*asked).actions
        assert {action.job for action in other if action.kind == "stop"} == stops
        differ += other != plan.actions
    assert differ
    assert not MLFS().learnt
    assert drawn.learnt
    assert "learnt" in drawn.decide(*asked).terms


def test_gpus_beyond_a_node_go_elsewhere_where_others_prefer_to_be_narrow() -> None:
    """One job alone has all eight GPUs of two nodes; beside another that waits, each has a node."""
    arrays = network.initial(0)
    arrays["direct.bias"] = np.array([0.0, 0.0, -3.0], dtype=np.float32)
    look, predicted = cluster(4, waiting=1, gpus_max=[8, 8]), predict(2, [10 * HOUR, 11 * HOUR])
    gpus = {}
    for policy in (MLFH(), MLFRL(model=mlf_rl(arrays))):
        plan = policy.decide(look, predicted, {})
        gpus[policy.name] = [sum(action.shares) for action in plan.actions]
    assert gpus == {"mlf-h": [8], "mlf-rl": [4]}


def test_a_state_unlike_those_in_training_is_far_and_an_empty_one_is_not() -> None:
    observed = [observed for observed, _ in cycles(WORKLOADS[0], MLFH()) if len(observed.snapshot.jobs)]
    seen = np.array([state_of(each).summary() for each in observed])
    policy, busy = MLFRL(model=mlf_rl(network.initial(0), seen)), observed[len(observed) // 2]
    assert policy.distance(busy.snapshot, busy.forecasts) <= 1
    odd = replace(busy.snapshot, jobs=replace(busy.snapshot.jobs, urgency=np.full(len(busy.snapshot.jobs), 1e4)))
    assert policy.distance(odd, busy.forecasts) > 1
    for empty in (snapshot(jobs(0), nodes(0)), snapshot(jobs(0)), snapshot(jobs(3), nodes(0))):
        unknown = Forecasts.unknown(len(empty.jobs))
        assert policy.distance(empty, unknown) == MLFS(model=mlf_rl(network.initial(0))).distance(empty, unknown) == 0


def test_the_model_that_comes_with_slurmplug_knows_such_workloads_and_decides_otherwise_than_mlf_h() -> None:
    shipped = model_files.shipped("mlf-rl")
    assert shipped is not None
    shipped.require("mlf-rl", MLFRL.version, MLFRL.shapes)
    policy, known, differ = MLFRL(model=shipped), [], 0
    for observed, plan in cycles(WORKLOADS[0], policy):
        known.append(policy.distance(observed.snapshot, observed.forecasts) <= 1)
        differ += plan.actions != MLFH().decide(observed.snapshot, observed.forecasts, observed.memory).actions
    assert np.mean(known) > 0.8
    assert differ


def shipped() -> MLFRL:
    model = model_files.shipped("mlf-rl")
    assert model is not None
    return MLFRL(model=model)


@pytest.mark.parametrize(("cpus", "memory"), [(0.0, 0.1), (0.3, 0.9), (1.5, 1.5)])
def test_the_shipped_model_knows_nodes_that_use_more_or_less_than_is_allocated_of_them(
    cpus: float, memory: float
) -> None:
    """In a simulation they use exactly that; on a real cluster never."""
    policy, known = shipped(), []
    for observed, _ in cycles(WORKLOADS[0], policy):
        look = observed.snapshot
        load = look.nodes.load * np.array([1.0, cpus, memory])
        measured = replace(look, nodes=replace(look.nodes, load=load))
        known.append(policy.distance(measured, observed.forecasts) <= 1)
    assert np.mean(known) > 0.8


def test_the_shipped_model_does_not_know_jobs_without_deadlines_nor_large_arrays() -> None:
    policy, observed = shipped(), busiest(WORKLOADS[0])
    all_jobs = observed.snapshot.jobs
    assert policy.distance(observed.snapshot, observed.forecasts) <= 1
    without = replace(all_jobs, deadline=np.full(len(all_jobs), np.nan))
    for other in (without, replace(all_jobs, elements=np.full(len(all_jobs), 1000))):
        assert policy.distance(replace(observed.snapshot, jobs=other), observed.forecasts) > 1


def test_what_no_training_met_has_no_effect_on_the_shipped_model() -> None:
    """The role of a server, a missing deadline, dependencies, and algorithms: their weights would be random."""
    arrays, state = shipped().network._arrays, state_of(busiest(WORKLOADS[0]))
    n = len(state.jobs)
    found = network.numbers(arrays, state).jobs
    jobs = state.jobs.copy()
    jobs[::2, [4, 16, 21]] = 1.0
    in_a_row = np.column_stack([np.arange(1, n), np.arange(n - 1)])
    for other in (replace(state, jobs=jobs), replace(state, edges=in_a_row)):
        np.testing.assert_allclose(network.numbers(arrays, other).jobs, found, atol=1e-5)
    kinds = range(network.JOB_FEATURES - network.KINDS, network.JOB_FEATURES)
    unmet = [row for row in kinds if not arrays["direct.weight"][row].any()]
    assert unmet
    assert not arrays["job.weight"][unmet].any()

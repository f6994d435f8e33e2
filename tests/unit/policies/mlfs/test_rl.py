"""MLF-RL: MLF-H with the preferences of a network."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from policies.mlfs import rl
from policies.mlfs.mlfs import MLFH, MLFHSettings
from policies.mlfs.priority import score
from policies.plan import Plan
from slurmplug.cycle.scheduler import Observed
from slurmplug.rules.guardrails import validate_plan
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

WORKLOADS = ("gen:mlfs?x=0.1", "gen:mlfs?x=0.1&partitions=on&elastic=off")


def network(seed: int = 1, strength: float = 1.0) -> dict[str, np.ndarray]:
    """One with a last layer that is not 0."""
    rng, arrays = np.random.default_rng(seed), rl.initial(seed)
    for name in rl.LAST:
        arrays[name] = (strength * rng.standard_normal(arrays[name].shape)).astype(np.float32)
    return arrays


def cycles(name: str, policy: "MLFH | rl.MLFRL", most: int = 120) -> Iterator[tuple[Observed, Plan]]:
    """What each cycle of a crowded simulation observed, and the plan that the policy made of it."""
    settings = SimulationSettings("4x8", seed=1000)
    simulation = Simulation(load.load(name, seed=1000, load=20.0, jobs=None, data=None), MLFH(), settings)
    under_way = simulation.cycles()
    observed = next(under_way)
    for _ in range(most):
        made = (
            policy.decide(observed.snapshot, observed.forecasts)
            if isinstance(policy, rl.MLFRL)
            else policy.decide(observed.snapshot, observed.forecasts, observed.memory)
        )
        yield observed, made
        try:
            observed = under_way.send((validate_plan(observed.snapshot, made), ""))
        except StopIteration:
            return


def state_of(observed: Observed) -> rl.State:
    ranking = score(observed.snapshot.jobs, observed.snapshot.now, observed.forecasts, MLFHSettings())
    return rl.State.of(observed.snapshot, ranking, MLFHSettings())


def busiest(name: str) -> Observed:
    return max((observed for observed, _ in cycles(name, MLFH())), key=lambda each: len(each.snapshot.jobs))


@pytest.mark.parametrize("name", WORKLOADS)
def test_with_a_last_layer_of_zeros_it_decides_exactly_as_mlf_h(name: str) -> None:
    policy = rl.MLFRL(MLFHSettings(), rl.initial(0))
    acted = 0
    for observed, plan in cycles(name, MLFH()):
        own = policy.decide(observed.snapshot, observed.forecasts)
        np.testing.assert_array_equal(own.score, plan.score)
        assert own.actions == plan.actions
        acted += len(plan.actions)
    assert acted > 20


@pytest.mark.parametrize("name", WORKLOADS)
def test_another_last_layer_decides_otherwise_and_places_nothing_where_it_does_not_fit(name: str) -> None:
    policy, differ, placed = rl.MLFRL(MLFHSettings(), network()), 0, 0
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
    state, arrays, rng = state_of(busiest(name)), network(), np.random.default_rng(3)
    n, m = len(state.jobs), len(state.nodes)
    jobs, nodes = rng.permutation(n), rng.permutation(m)
    new_job, new_node = np.argsort(jobs), np.argsort(nodes)
    other = replace(
        state,
        jobs=state.jobs[jobs],
        nodes=state.nodes[nodes],
        edges=new_job[state.edges],
        on=np.column_stack([new_job[state.on[:, 0]], new_node[state.on[:, 1]]]),
    )
    first, second = rl.preferences(arrays, state), rl.preferences(arrays, other)
    assert np.ptp(first.order) > 0.1
    np.testing.assert_allclose(second.order, first.order[jobs], atol=1e-4)
    np.testing.assert_allclose(second.size, first.size[jobs], atol=1e-4)
    for row, was in enumerate(jobs.tolist()):
        of_nodes = second.of_nodes(row, np.arange(m)), first.of_nodes(was, nodes)
        np.testing.assert_allclose(*of_nodes, atol=1e-4)


def test_the_dependencies_and_where_jobs_run_matter() -> None:
    state, arrays = state_of(busiest(WORKLOADS[1])), network()
    assert len(state.edges)
    whole = rl.preferences(arrays, state)
    for without in (replace(state, edges=state.edges[:0]), replace(state, on=state.on[:0])):
        assert np.abs(rl.preferences(arrays, without).order - whole.order).max() > 1e-3


def test_features_are_finite_and_small() -> None:
    for name in WORKLOADS:
        state = state_of(busiest(name))
        for features, width in ((state.jobs, rl.JOB_FEATURES), (state.nodes, rl.NODE_FEATURES)):
            assert features.shape[1] == width
            assert np.isfinite(features).all()
            assert np.abs(features).max() < 5


@pytest.mark.parametrize("change", ["missing", "unknown", "shape"])
def test_arrays_that_are_none_of_a_network_are_refused(change: str) -> None:
    arrays = rl.initial(0)
    if change == "missing":
        del arrays["key.weight"]
    elif change == "unknown":
        arrays["more"] = arrays["job.bias"]
    else:
        arrays["own.weight"] = arrays["own.weight"][:-1]
    with pytest.raises(ValueError, match="own.weight" if change == "shape" else "key.weight|more"):
        rl.MLFRL(MLFHSettings(), arrays)


def test_an_empty_cluster_has_nothing_to_prefer() -> None:
    nothing = np.zeros((0, 2), dtype=np.int64)
    state = rl.State(
        np.zeros((0, rl.JOB_FEATURES), np.float32),
        np.zeros((0, rl.NODE_FEATURES), np.float32),
        nothing,
        nothing,
        np.zeros(0, dtype=bool),
    )
    preferred = rl.preferences(network(), state)
    assert len(preferred.order) == len(preferred.key) == 0

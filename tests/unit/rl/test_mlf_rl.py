"""MLF-RL's training: one network in NumPy and torch, what a decision is credited with, and a run that is repeated."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.mlfs import network  # noqa: E402 only where torch is installed
from policies.mlfs.network import State  # noqa: E402
from policies.mlfs.rl import MLFRL  # noqa: E402
from predictors.arrays import Floats  # noqa: E402
from slurmplug.errors import UsageError  # noqa: E402
from slurmplug.rl import mlf_rl  # noqa: E402
from slurmplug.rl.mlf_rl import Decision, Settings  # noqa: E402
from slurmplug.rl.mlf_rl_network import Batch, Net  # noqa: E402
from tests.learnt_models import network_that_prefers  # noqa: E402

pytestmark = pytest.mark.rl
TINY: dict[str, Any] = {
    "jobs": 10, "clusters": ("4x4",), "also": (), "loads": (6.0, 6.0), "iterations": 1, "workloads": 1, "runs": 2,
    "choosing": 1, "every": 1, "hidden": 4,
}  # fmt: skip


def state(rng: np.random.Generator, jobs: int, nodes: int) -> State:
    edges = rng.integers(0, jobs, (rng.integers(0, 2 * jobs), 2)) if jobs else np.zeros((0, 2), dtype=np.int64)
    on = np.column_stack([rng.integers(0, size, jobs * nodes and 5) for size in (max(jobs, 1), max(nodes, 1))])
    features, of_nodes = (
        rng.standard_normal((count, width)).astype(np.float32)
        for count, width in ((jobs, network.JOB_FEATURES), (nodes, network.NODE_FEATURES))
    )
    return State(features, of_nodes, edges, on, np.ones(jobs, dtype=bool))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), min_size=1, max_size=4))
def test_numpy_and_torch_compute_the_same(seed: int, sizes: list[tuple[int, int]]) -> None:
    rng, arrays = np.random.default_rng(seed), network_that_prefers(seed)
    states, net = [state(rng, *each) for each in sizes], Net(0, 16)
    net.adopt(arrays)
    ours = np.concatenate([network.numbers(arrays, each).jobs for each in states])
    np.testing.assert_allclose(net(Batch(states)).detach().numpy(), ours, rtol=1e-3, atol=1e-3)


def test_without_an_iteration_it_is_mlf_h() -> None:
    model = mlf_rl.train(Settings(**{**TINY, "iterations": 0}))
    model.require(MLFRL.name, MLFRL.version, MLFRL.shapes)
    assert not any(model.arrays[name].any() for name in network.LAST)


def test_a_run_repeated_gives_the_same_model_and_the_best_by_the_workloads_for_choosing_is_kept() -> None:
    told: list[tuple[str, int, dict[str, float]]] = []
    first = mlf_rl.train(Settings(**TINY), lambda *each: told.append((each[0], each[1], dict(each[2]))))
    assert first.digest == mlf_rl.train(Settings(**TINY)).digest
    assert [each[:2] for each in told] == [("narrow", 3), ("iteration", 1), ("chosen by", 1)]
    rewards = {stage: figures["reward"] for stage, _, figures in told}
    case = mlf_rl.Case.of(Settings(**TINY), 500)
    kept = mlf_rl.compared([case], first.arrays, Settings(**TINY))["reward"]
    assert kept == pytest.approx(max(0.0, rewards["narrow"], rewards["chosen by"]))


def test_the_network_of_the_last_iteration_is_compared_too() -> None:
    told: list[tuple[str, int]] = []
    mlf_rl.train(Settings(**TINY | {"iterations": 3, "every": 2}), lambda stage, step, _: told.append((stage, step)))
    assert [step for stage, step in told if stage == "chosen by"] == [2, 3]


def test_of_what_no_training_met_nothing_random_is_left() -> None:
    """A role, a missing deadline and dependencies, which no simulated job has."""
    before, model = network.initial(1000, 4), mlf_rl.train(Settings(**TINY))
    assert not model.arrays["job.weight"][[4, 16, 21]].any()
    assert not model.arrays["parents.weight"].any()
    assert not model.arrays["children.weight"].any()
    after = {name: array + np.float32(0.1) for name, array in before.items()}
    after["job.weight"][4] = before["job.weight"][4]
    found = mlf_rl.without_untrained(after, Settings(**TINY))
    assert not found["job.weight"][4].any()
    after["job.weight"][4] = 0.0
    assert all(np.array_equal(found[name], array) for name, array in after.items())


def decision(begin: float, end: float, terms: list[float], **others: Any) -> Decision:
    nothing = np.zeros((0, 11), dtype=np.float32)
    blank: dict[str, Any] = {
        "state": state(np.random.default_rng(0), 0, 1), "drawn": nothing, "chance": np.zeros(0),
        "counts": nothing > 0,
    }  # fmt: skip
    return Decision(begin=begin, end=end, terms=np.array(terms), **{**blank, **others})


def test_a_window_is_compared_with_what_mlf_h_had_over_the_same_time() -> None:
    teacher = [decision(0, 100, [10, 0, 4, 0, 0]), decision(100, 200, [20, 1, 0, 1, 1])]
    run = [decision(0, 50, [2, 1, 0, 1, 1]), decision(50, 150, [9, 0, 0, 0, 0])]
    expected = [[5 - 2, 1 - 0, 2 - 0, 1 - 0, 1 - 0], [25 - 9, 0 - 1, 2 - 0, 0 - 1, 0 - 1]]
    np.testing.assert_allclose(mlf_rl.gained(run, teacher), expected)
    assert mlf_rl.gained(teacher, teacher) == pytest.approx(np.zeros((2, 5)))


def test_later_rewards_count_less_by_the_time_until_then() -> None:
    rewards, begins = np.array([1.0, 2.0, 4.0]), np.array([0.0, 900.0, 2700.0])
    found: Floats = mlf_rl.returns(begins, rewards, Settings(discount=0.5, interval=900.0))
    np.testing.assert_allclose(found, [1 + 0.5 * (2 + 0.25 * 4), 2 + 0.25 * 4, 4])


def test_what_all_runs_of_a_workload_have_in_common_is_no_advantage() -> None:
    run = [decision(0, 100, [1, 0, 0, 0, 0]), decision(100, 200, [1, 0, 0, 0, 0])]
    same = [[np.array([3.0, 1.0])] * 2]
    np.testing.assert_allclose(mlf_rl.credited([[run, run]], same, Settings()), np.zeros(4), atol=1e-6)
    better = [[np.array([3.0, 1.0]), np.array([2.0, 1.0])]]
    first, _, second, _ = mlf_rl.credited([[run, run]], better, Settings())
    assert first == -second > 0


def test_an_update_makes_what_had_an_advantage_likelier_and_leaves_alone_what_could_change_nothing() -> None:
    rng, net, how = np.random.default_rng(0), Net(0, 4), Settings(passes=8)
    seen = state(rng, 3, 2)
    before = net(Batch([seen])).detach().numpy()
    away = np.zeros_like(before)
    away[:, 0] = 1.0
    counts = np.zeros(before.shape, dtype=bool)
    counts[0, 0] = True
    chance = -0.5 * (away**2 * counts).sum(axis=1)
    made = [
        decision(0, 1, [0] * 5, state=seen, drawn=before + how.spread * sign * away, chance=chance, counts=counts)
        for sign in (1, -1)
    ]
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    mlf_rl.update(net, adam, made, np.array([1.0, -1.0]), how, rng=rng)
    after = net(Batch([seen])).detach().numpy()
    assert after[0, 0] > before[0, 0]
    np.testing.assert_array_equal(after[:, 1:], before[:, 1:])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": 500}, "1000"),
        ({"workload": "mine.csv"}, "gen:"),
        ({"also": ("mine.csv",)}, "gen:"),
        ({"clusters": ()}, "at least one"),
        ({"workloads": 0}, "at least 1"),
        ({"runs": 3}, "even"),
        ({"choosing": 21}, "from 1 to 20"),
        ({"interval": float("nan")}, "interval must be at least 1 second"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Settings(**wrong)

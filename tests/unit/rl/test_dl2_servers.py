"""Training of DL2's 3J + 1 actions: the teachers' choices, exploration of the paper's poor states, and a model that
schedules."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.dl2 import DL2, SERVER_ARRAYS, Network  # noqa: E402 only where torch is installed
from policies.dl2_allocation import FEATURES  # noqa: E402
from policies.dl2_servers import SERVER_FEATURES, ServerAllocator  # noqa: E402
from policies.placement.allocation import held_gpus, held_servers  # noqa: E402
from predictors.forecast import Forecasts  # noqa: E402
from slurmplug.rl import dl2  # noqa: E402
from slurmplug.rl.dl2_network import Net  # noqa: E402
from slurmplug.rl.dl2_online import Online, Stage, server_remedy  # noqa: E402
from slurmplug.rl.dl2_replay import Choice, Replay  # noqa: E402
from slurmplug.rl.dl2_samples import Taught, imitated_with_servers  # noqa: E402
from slurmplug.rl.episode import Episode  # noqa: E402
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings  # noqa: E402
from slurmplug.sim.workloads.load import load  # noqa: E402
from tests.builders import NOW, jobs, nodes, servers, snapshot  # noqa: E402

pytestmark = pytest.mark.rl
CLUSTER = "8x4x16x131072"
TINY: dict[str, Any] = {
    "workload": "gen:dl2?servers=on", "jobs": 20, "clusters": (CLUSTER,), "workloads": 2, "passes": 12, "hidden": 8,
    "batch": 16, "choosing": 1, "every": 1,
}  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 24), st.integers(1, 30))
def test_numpy_and_torch_compute_the_same(seed: int, features: int, hidden: int, n: int) -> None:
    torch.manual_seed(seed)
    net, rng = Net(features, hidden, servers=True), np.random.default_rng(seed)
    state = rng.standard_normal((n, features)).astype(np.float32)
    padded = np.zeros((1, n + 2, features), dtype=np.float32)
    padded[0, :n] = state
    present = torch.from_numpy((np.arange(n + 2) < n).astype(np.float32)[None])
    theirs = net(torch.from_numpy(padded), present).detach().numpy()[0]
    assert len(theirs) == 3 * (n + 2) + 1
    both = np.append(theirs[: 3 * n], theirs[-1])
    np.testing.assert_allclose(Network(net.arrays()).logits(state), both, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("teacher", ["informed", "optimus"])
def test_a_tiny_model_learns_from_its_teacher_and_schedules(teacher: str) -> None:
    losses: list[float] = []

    def note(stage: str, _: int, figures: Any) -> None:
        if stage == "supervised":
            losses.append(figures["loss"])

    model = dl2.train(dl2.Settings(**TINY, teacher=teacher), note)
    assert losses[-1] < 0.9 * losses[0]
    assert set(SERVER_ARRAYS) <= set(model.arrays)
    model.require(DL2.name, DL2.version, DL2.shapes, DL2.optional)
    policy, unequal = DL2(model=model), 0
    episode = Episode(
        Simulation(load(str(TINY["workload"]), seed=7, jobs=15), policy, SimulationSettings(CLUSTER, 1200.0, 7))
    )
    for _ in range(40):
        if (seen := episode.observed) is None:
            break
        workers, counts = held_gpus(seen.snapshot), held_servers(seen.snapshot)
        assert ((workers > 0) == (counts > 0)).all()
        unequal += int((workers != counts).sum())
        episode.advance(policy.decide(seen.snapshot, seen.forecasts, seen.memory))
    assert unequal


def test_the_online_stage_trains_all_three_actions() -> None:
    figures: list[dict[str, float]] = []

    def note(stage: str, _: int, found: Any) -> None:
        if stage == "online":
            figures.append(found)

    how = Online(episodes=2, jobs=15, batch=32, held=0, rate=1e-3, critic_steps=2, epsilon=0.4)
    model = dl2.train(dl2.Settings(**TINY, teacher="optimus", online=how), note)
    assert len(figures) == 2
    assert all(np.isfinite(list(found.values())).all() for found in figures)
    assert set(SERVER_ARRAYS) <= set(model.arrays)


def test_clusters_learn_one_model_with_parameter_servers_each_from_its_own_jobs() -> None:
    """The federated training."""
    clusters = (CLUSTER, "4x4x16x131072")
    how = Online(episodes=4, jobs=10, batch=32, held=0, rate=1e-3, critic_steps=2, epsilon=0.4, learners=2)
    given = dl2.Settings(**TINY | {"clusters": clusters}, online=how)
    torch.manual_seed(0)
    allocator, network, _ = dl2._begun(given)
    before = {name: array.copy() for name, array in network.arrays().items()}
    stage = Stage(how, network, allocator, partial(dl2._online_episode, given), np.random.default_rng(0))
    while not stage.done:
        assert np.isfinite(list(stage.step().values())).all()
    assert stage.steps == 2
    after = network.arrays()
    assert all((after[name] != before[name]).any() for name in ("first.job", "action.job", *SERVER_ARRAYS))
    size = allocator.features - len(allocator.columns) + allocator.columns.index("cluster")
    kept = [stage.parts[f"learner {number}"].replay.choices for number in (0, 1)]
    sizes = [{float(value) for choice in each for value in choice.state[:, size]} for each in kept]
    assert [len(each) for each in sizes] == [1, 1]
    assert sizes[0] != sizes[1]
    assert all(len(choice.mask) == 3 * len(choice.state) + 1 for each in kept for choice in each)


def state_of(*held: tuple[int, int]) -> Any:
    """A state of jobs with so many workers and servers."""
    columns = FEATURES + SERVER_FEATURES
    state = np.zeros((len(held), 3 + len(columns)), dtype=np.float32)
    for at, (workers, count) in enumerate(held):
        state[at, 3 + columns.index("log workers")] = np.log1p(workers) / 3.0
        state[at, 3 + columns.index("log servers")] = np.log1p(count) / 3.0
    return state


@pytest.mark.parametrize(
    ("held", "chosen"),
    [
        ([(1, 1), (2, 0)], 3 * 1 + 1),
        ([(0, 3), (1, 1)], 3 * 0 + 0),
        ([(1, 0), (0, 1)], 5),
        ([(4, 4), (1, 11)], 3 * 1 + 0),
        ([(4, 4), (1, 10)], 5),
        ([(11, 1), (4, 4)], 3 * 0 + 1),
        ([(22, 2), (4, 4)], 3 * 0 + 1),
    ],
)
def test_poor_states_are_the_papers(held: list[tuple[int, int]], chosen: int) -> None:
    mask = np.ones(3 * len(held) + 1, dtype=bool)
    assert server_remedy(state_of(*held), mask, 5, np.random.default_rng(0)) == chosen


def test_a_remedy_that_has_no_room_is_none() -> None:
    mask = np.array([True, False, False, True, True, True, True])
    assert server_remedy(state_of((2, 0), (1, 1)), mask, 5, np.random.default_rng(0)) == 5


def test_choices_that_lead_to_what_a_teacher_gave() -> None:
    n = 3
    look = snapshot(
        jobs(n, gpus=2, gpus_min=1, gpus_max=4, demand=[[2, 6.0, 0.0]], submitted=NOW - n + np.arange(n)),
        nodes(2, capacity=[4.0, 16.0, 1000.0]),
        servers=servers(n),
    )
    under_way = ServerAllocator((), 8, 1200.0).choices(look, Forecasts.unknown(n), begins=True)
    wanted, counts = np.array([1.0, 3.0, 0.0]), np.array([4.0, 2.0, 0.0])
    samples = list(imitated_with_servers(under_way, wanted, counts, np.random.default_rng(0)))
    assert under_way.workers.tolist() == wanted.tolist()
    assert under_way.servers.tolist() == counts.tolist()
    for sample in samples[:2]:
        assert set(np.flatnonzero(sample.target).tolist()) <= {2, 5}  # one of each first
    assert samples[-1].target[-1] == 1.0
    kept = Taught.of([(samples, np.zeros(2))], np.random.default_rng(0))
    for sample, again in zip(samples, kept.samples(), strict=True):
        assert all(np.array_equal(left, right) for left, right in zip(sample, again, strict=True))


def test_a_replay_of_three_actions_is_kept_and_restored() -> None:
    rng, replay, again = np.random.default_rng(0), Replay(8), Replay(8)
    for k in (1, 3, 2):
        state = rng.standard_normal((k, 4)).astype(np.float32)
        replay.add([Choice(state, rng.random(3 * k + 1) < 0.5, k, None, np.zeros(k, dtype=np.float32), 0.5)])
    again.load_state_dict(replay.state_dict())
    for left, right in zip(replay.choices, again.choices, strict=True):
        np.testing.assert_array_equal(left.mask, right.mask)
        np.testing.assert_array_equal(left.state, right.state)

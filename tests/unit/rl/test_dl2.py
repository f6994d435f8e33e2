"""DL2's training: one network in NumPy and torch, the teacher's choices, and a run that is repeated."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from policies.dl2 import ARRAYS, DL2, FEATURES, Allocator, Network  # noqa: E402 only where torch is installed
from policies.model import Model  # noqa: E402
from policies.seen_states import SeenStates  # noqa: E402
from policies.snapshot import JobKey  # noqa: E402
from predictors.forecast import Forecasts  # noqa: E402
from slurmplug.config import model_files  # noqa: E402
from slurmplug.errors import UsageError  # noqa: E402
from slurmplug.rl import dl2, dl2_samples  # noqa: E402
from slurmplug.rl.dl2_network import Net  # noqa: E402
from slurmplug.rl.dl2_online import Learner, Made, Online, Played, remedy, with_returns  # noqa: E402
from slurmplug.rl.dl2_replay import Choice, Replay  # noqa: E402
from slurmplug.rl.episode import Episode  # noqa: E402
from tests.builders import NOW, jobs, nodes, snapshot  # noqa: E402

pytestmark = pytest.mark.rl
TINY: dict[str, Any] = {
    "jobs": 20, "clusters": ("8x4",), "workloads": 2, "passes": 8, "hidden": 8, "batch": 16, "choosing": 2, "every": 1,
}  # fmt: skip
ONLINE: dict[str, Any] = {"episodes": 2, "jobs": 15, "batch": 32, "held": 0, "rate": 1e-3, "critic_steps": 2}


@cache
def supervised_alone() -> Model:
    return dl2.train(dl2.Settings(**TINY))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 24), st.integers(1, 40))
def test_numpy_and_torch_compute_the_same(seed: int, features: int, hidden: int, jobs: int) -> None:
    torch.manual_seed(seed)
    net, rng = Net(features, hidden), np.random.default_rng(seed)
    state = rng.standard_normal((jobs, features)).astype(np.float32)
    padded = np.zeros((1, jobs + 3, features), dtype=np.float32)
    padded[0, :jobs] = state
    present = torch.from_numpy((np.arange(jobs + 3) < jobs).astype(np.float32)[None])
    theirs = net(torch.from_numpy(padded), present).detach().numpy()[0]
    both = np.append(theirs[:jobs], theirs[-1])
    np.testing.assert_allclose(Network(net.arrays()).logits(state), both, rtol=2e-4, atol=2e-4)


def test_a_run_repeated_gives_the_same_model_which_fits_its_teacher_better_with_each_pass() -> None:
    losses: list[float] = []

    def note(stage: str, step: int, figures: Any) -> None:
        if stage == "supervised":
            losses.append(figures["loss"])
            assert len(losses) == step

    first, second = dl2.train(dl2.Settings(**TINY), note), supervised_alone()
    assert first.digest == second.digest
    assert losses[-1] < 0.9 * losses[0]
    first.require(DL2.name, DL2.version, DL2.shapes)
    assert DL2(model=first).allocator.types


def test_what_the_informed_teacher_would_choose_is_known_in_each_state() -> None:
    given = snapshot(jobs(3, gpus=1, gpus_min=1, gpus_max=4, submitted=NOW - 3 + np.arange(3)), nodes(1))
    choices = Allocator((), 8, 1200.0).choices(given, Forecasts.unknown(3), begins=True)
    gain = np.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    wanted, held = np.array([1.0, 2.0, 1.0]), np.zeros(3, dtype=int)
    samples = list(dl2_samples.imitated(choices, wanted, np.random.default_rng(0), gain))
    assert len(samples) == 4
    for sample in samples:
        column = FEATURES.index("workers") - len(FEATURES)
        held = np.rint(sample.state[:, column] * 16).astype(int)
        worth = gain[np.arange(3), held] ** dl2_samples.SHARP
        assert sample.target[:-1] == pytest.approx(worth / worth.sum(), abs=1e-4)


def test_a_training_goes_on_from_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model_files.write(supervised_alone(), path)
    again = dl2.train(dl2.Settings(**TINY, start=str(path)))
    assert all(np.array_equal(again.arrays[name], each) for name, each in supervised_alone().arrays.items())
    wrong = Model(DL2.name, DL2.version - 1, dict(again.arrays), again.facts)
    model_files.write(wrong, path)
    with pytest.raises(UsageError, match="train it again"):
        dl2.train(dl2.Settings(**TINY, start=str(path)))


@pytest.mark.parametrize("without", [{}, {"critic": False}, {"epsilon": 0.0}, {"replay": 0}, {"learners": 2}])
def test_the_online_stage_goes_on_from_the_supervised_model_and_keeps_it_unless_another_is_better(
    without: dict[str, Any],
) -> None:
    figures: list[tuple[str, dict[str, float]]] = []

    def note(stage: str, _: int, found: Any) -> None:
        figures.append((stage, found))

    settings = dl2.Settings(**TINY, online=Online(**ONLINE | without))
    model = dl2.train(settings, note)
    supervised = supervised_alone()
    online = [found for stage, found in figures if stage == "online"]
    assert len(online) == (1 if "learners" in without else 2)
    assert all(np.isfinite(list(found.values())).all() for found in online)
    ratios = [found["ratio"] for stage, found in figures if stage == "chosen by"]
    moved = any(not np.array_equal(model.arrays[name], supervised.arrays[name]) for name in ARRAYS)
    assert moved == (min(ratios) < 1.0)
    ratio = dl2.chosen_by(settings, model) / dl2.chosen_by(settings, supervised)
    assert ratio.mean() == pytest.approx(min([1.0, *ratios]))


@pytest.mark.parametrize(("episodes", "learners", "chosen"), [(3, 1, [2, 3]), (5, 2, [1, 2, 3]), (2, 2, [1])])
def test_a_model_is_chosen_each_so_many_episodes_and_after_the_last(
    episodes: int, learners: int, chosen: list[int]
) -> None:
    steps: list[int] = []

    def note(stage: str, step: int, _: Any) -> None:
        if stage == "chosen by":
            steps.append(step)

    how = Online(**ONLINE | {"episodes": episodes, "learners": learners, "jobs": 8})
    dl2.train(dl2.Settings(**TINY | {"every": 2, "choosing": 1}, online=how), note)
    assert steps == chosen


@pytest.mark.parametrize(("learners", "clusters"), [(1, set()), (3, {"8x4", "4x8"})])
def test_each_learner_of_a_federated_training_has_a_cluster(learners: int, clusters: set[str]) -> None:
    given = dl2.Settings(**TINY | {"clusters": ("8x4", "4x8")}, online=Online(**ONLINE | {"learners": learners}))
    drawn = [dl2._online_episode(given, number).simulation for number in range(9)]
    of_learner = [{each.settings.cluster for each in drawn[at::learners]} for at in range(learners)]
    assert all(len(each) == 1 for each in of_learner) == bool(clusters)
    assert not clusters or [*of_learner[0], *of_learner[1], *of_learner[2]] == ["8x4", "4x8", "8x4"]
    assert len({each.workload.jobs for each in drawn}) == 9


@pytest.mark.parametrize("federated", [{}, {"learners": 2}])
def test_a_model_knows_the_states_that_it_was_trained_on_online(
    federated: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the daemon would not follow it on the workload for which it was trained."""
    path = tmp_path / "model.safetensors"
    model_files.write(supervised_alone(), path)
    ratios = iter([1.0, 0.9, 0.8])
    monkeypatch.setattr(dl2, "chosen_by", lambda *_: np.array([next(ratios)]))
    elsewhere = TINY | {"workload": "gen:mlfs", "clusters": ("16x4",), "loads": (4.0, 4.0), "start": str(path)}
    given = dl2.Settings(**elsewhere, online=Online(**ONLINE | federated | {"jobs": 30}))
    played, play = list[Played](), Learner.play

    def kept(learner: Learner, episode: Episode) -> Played:
        played.append(play(learner, episode))
        return played[-1]

    monkeypatch.setattr(Learner, "play", kept)
    seen = [SeenStates.from_arrays(each.arrays) for each in (supervised_alone(), dl2.train(given))]
    assert len(played) == 2
    distances = np.array([[each.distance(state) for each in seen] for one in played for state in one.states])
    assert (distances[:, 0] <= 1.0).mean() < 0.5
    assert (distances[:, 1] <= 1.0).mean() > 0.95


def test_the_return_of_a_job_is_what_it_trains_and_with_a_discount_what_it_trains_later() -> None:
    first, second = JobKey("c", 1, 0), JobKey("c", 2, 0)
    state, mask = np.zeros((2, 3), dtype=np.float32), np.ones(3, dtype=bool)
    slots = [
        ([Made(state, mask, 0, None, (first, second))], {first: 0.5}),
        ([], {second: 0.25}),
        ([Made(state[:1], mask[:2], 1, state[:1], (second,))], {second: 0.75}),
    ]
    found = with_returns(slots, 0.9)
    assert [len(each) for each in found] == [1, 0, 1]
    assert found[0][0].returns == pytest.approx([0.5, 0.9 * 0.25 + 0.81 * 0.75])
    assert found[2][0].returns == pytest.approx([0.75])
    assert [found[0][0].reward, found[2][0].reward] == [0.5, 0.75]


def test_the_advantage_of_a_choice_is_what_the_values_rise_by_it_beyond_the_mean() -> None:
    torch.manual_seed(0)
    how, rng = Online(), np.random.default_rng(0)
    features = len(FEATURES)
    actor, critic = Net(features, 4), Net(features + 1, 4)
    learner = Learner(how, Allocator((), 8, 1200.0), actor, critic, actor, rng)
    before = rng.standard_normal((3, 2, features)).astype(np.float32)
    after = [None, *rng.standard_normal((2, 2, features + 1)).astype(np.float32)]
    returns = rng.random((3, 2)).astype(np.float32)
    mask = np.ones(3, dtype=bool)
    batch = [Choice(before[at], mask, 0, after[at], returns[at], 0.0) for at in range(3)]
    advantage, known, error = learner.by_values(batch)

    def values(state: Any) -> Any:
        return critic(torch.from_numpy(state[None]), torch.ones(1, len(state))).detach().numpy()[0, :-1]

    begun = [values(np.append(each, np.zeros((2, 1), dtype=np.float32), axis=1)) for each in before]
    ended = [values(each) for each in after if each is not None]
    rises = np.array([end.sum() - begin.sum() for end, begin in zip(ended, begun[1:], strict=True)])
    assert known.tolist() == [False, True, True]
    assert advantage.tolist() == pytest.approx([0.0, *(rises - rises.mean())], abs=1e-5)
    expected = np.mean(np.square(np.array(begun) - returns)) + np.mean(np.square(np.array(ended) - returns[1:]))
    assert error.item() == pytest.approx(expected, rel=1e-4)


def test_a_replay_comes_back_as_it_was() -> None:
    rng, replay = np.random.default_rng(0), Replay(3)
    assert Replay(3).state_dict() == {}
    for size in (1, 4, 2, 3):
        state, after = (rng.random((size, width)).astype(np.float32) for width in (5, 6))
        returns = rng.random(size).astype(np.float32)
        replay.add([Choice(state, rng.random(size + 1) < 0.5, size, None if size == 2 else after, returns, 0.5)])
    again = Replay(3)
    again.load_state_dict(replay.state_dict())
    assert [each.number for each in again.choices] == [4, 2, 3]
    for one, other in zip(replay.choices, again.choices, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ValueError, match="values are not those of"):
        again.load_state_dict({**replay.state_dict(), "returns": np.zeros(2)})


def test_a_poor_state_is_remedied() -> None:
    rng = np.random.default_rng(0)
    state = np.zeros((3, len(FEATURES)), dtype=np.float32)
    state[:, FEATURES.index("none yet")] = [0, 1, 1]
    state[:, FEATURES.index("log workers")] = np.log1p([4, 0, 0]) / 3
    mask = np.array([True, False, True, True])
    assert remedy(state, mask, 0, rng) == 0
    assert {remedy(state, mask, 3, rng) for _ in range(50)} == {0, 2}  # GPUs are left free
    state[0, FEATURES.index("log workers")] = np.log1p(10) / 3
    assert remedy(state, mask, 0, rng) == 2  # one waits beside another of ten workers
    assert remedy(state, np.array([False, False, False, True]), 3, rng) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"critic_steps": 0},
        {"episodes": -1},
        {"discount": 1.0},
        {"rate": 0.0},
        {"entropy": -1.0},
        {"epsilon": 2.0},
    ],
)
def test_settings_of_the_online_stage_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="online: "):
        Online(**wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": 500}, "1000"),
        ({"choosing": 21}, "20"),
        ({"workload": "mine.csv"}, "gen:"),
        ({"clusters": ()}, "at least one"),
        ({"passes": 0}, "at least 1"),
        ({"slot": float("nan")}, "slot must be at least 1 second"),
        ({"teacher": "dl2"}, "another policy"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dl2.Settings(**wrong)


def test_the_teachers_choices_are_those_that_its_jobs_are_short_of() -> None:
    how = dl2.Settings(**TINY, teacher="drf")
    allocator = Allocator(("ctc",), 8, how.slot)
    slots = list(dl2.taught(how, allocator, 0, np.random.default_rng(0)))
    assert slots
    for of_slot, summary in slots:
        assert np.isfinite(summary).all()
        for sample in of_slot:
            assert sample.target.sum() == pytest.approx(1.0)
            assert (sample.target[~sample.mask] == 0).all()
            assert len(sample.state) <= 8

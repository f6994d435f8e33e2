"""A training that was killed goes on to the same end; a checkpoint of another one, or a damaged one, is refused."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from slurmplug.errors import DataError, UsageError
from slurmplug.ledger import codec
from slurmplug.rl.checkpoint import Checkpoint, generator

ABOUT = {"policy": "mlf-rl", "seed": "1000"}
MLF_RL: dict[str, Any] = {
    "jobs": 8, "clusters": ("4x4",), "also": (), "loads": (6.0, 6.0), "iterations": 3, "workloads": 1, "runs": 2,
    "choosing": 1, "every": 2, "hidden": 4,
}  # fmt: skip
DL2: dict[str, Any] = {
    "jobs": 20, "clusters": ("8x4",), "workloads": 2, "passes": 3, "hidden": 8, "batch": 16, "choosing": 1, "every": 1,
    "online": {"episodes": 3, "jobs": 8, "batch": 16, "held": 1, "critic_steps": 2, "rate": 1e-2},
}  # fmt: skip
FEDERATED: dict[str, Any] = DL2 | {
    "workload": "gen:dl2?servers=on", "clusters": ("8x4x16x131072", "4x4x16x131072"),
    "online": DL2["online"] | {"episodes": 6, "learners": 2},
}  # fmt: skip


class Killed(BaseException):
    """As by a signal: nothing catches it."""


class KilledAfter:
    """Kills the training when it has said so many things."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, stage: str, step: int, figures: Mapping[str, float]) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


def trainer(policy: str) -> tuple[ModuleType, dict[str, Any]]:
    from slurmplug.rl import dl2, mlf_rl

    return {"mlf-rl": (mlf_rl, MLF_RL), "dl2": (dl2, DL2), "federated": (dl2, FEDERATED)}[policy]


@pytest.mark.rl
@pytest.mark.parametrize("policy", ["mlf-rl", "dl2", "federated"])
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_model_bit_for_bit(
    policy: str, tmp_path: Path
) -> None:
    module, given = trainer(policy)
    settings, killed = TypeAdapter(module.Settings).validate_python(given), 0
    whole = module.train(settings)
    models: list[Any] = []
    while not models:
        try:
            models.append(module.train(settings, KilledAfter(3), kept(tmp_path)))
        except Killed:
            killed += 1
    assert killed >= 2
    assert models[0].digest == whole.digest

    def again(stage: str, step: int, figures: Mapping[str, float]) -> None:
        raise AssertionError(f"{stage} {step} was made before")

    checkpoint = kept(tmp_path)
    assert module.train(settings, again, checkpoint).digest == whole.digest
    checkpoint.remove()
    assert list((tmp_path / "model.run").iterdir()) == []


@dataclass(frozen=True)
class State:
    number: int
    rng: dict[str, Any]
    arrays: dict[str, Any]


def state(number: int = 1) -> State:
    rng = np.random.default_rng(7)
    return State(number, dict(rng.bit_generator.state), {"w": np.arange(6.0, dtype=np.float32).reshape(2, 3)})


def kept(folder: Path, about: Mapping[str, str] = ABOUT) -> Checkpoint:
    return Checkpoint(folder / "model.run" / "checkpoint", about, every=0.0)


@pytest.fixture(autouse=True)
def _always_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmplug.rl.checkpoint.SHARE", 0)


def test_a_state_comes_back_as_it_was_and_random_numbers_go_on(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    assert checkpoint.load(State) is None
    checkpoint.keep(state)
    found = kept(tmp_path).load(State)
    assert found is not None
    assert found.number == 1
    assert found.arrays["w"].dtype == np.float32
    np.testing.assert_array_equal(found.arrays["w"], state().arrays["w"])
    assert generator(found.rng).random() == np.random.default_rng(7).random()
    checkpoint.remove()
    assert checkpoint.load(State) is None
    assert list((tmp_path / "model.run").iterdir()) == []


def test_it_is_written_no_more_often_than_it_is_to_be(tmp_path: Path) -> None:
    def unwanted() -> State:
        raise AssertionError("too early")

    checkpoint = Checkpoint(tmp_path / "checkpoint", ABOUT, every=3600.0)
    checkpoint.keep(state)
    checkpoint.keep(unwanted)
    Checkpoint().keep(unwanted)
    assert Checkpoint().load(State) is None


def test_one_that_is_interrupted_while_it_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.keep(state)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slurmplug.rl.checkpoint.os.fsync", full)
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        checkpoint.keep(lambda: state(2))
    found = kept(tmp_path).load(State)
    assert found is not None
    assert found.number == 1
    assert [path.name for path in (tmp_path / "model.run").iterdir()] == ["checkpoint"]


def test_one_of_other_settings_is_refused_and_said_which(tmp_path: Path) -> None:
    kept(tmp_path).keep(state)
    with pytest.raises(UsageError, match=r"other settings \(seed 1000, not 1001\)"):
        kept(tmp_path, {**ABOUT, "seed": "1001"}).load(State)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def other_type(path: Path) -> None:
    path.write_bytes(codec.dumps({"about": ABOUT, "state": {**asdict(state()), "number": "many"}}))


def nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, other_type, nothing])
def test_a_damaged_one_is_said_to_be(damage: Callable[[Path], None], tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.keep(state)
    assert checkpoint.path is not None
    damage(checkpoint.path)
    with pytest.raises(DataError, match="damaged or of another release: remove it to begin anew"):
        checkpoint.load(State)


def test_one_that_everybody_can_write_is_not_used(tmp_path: Path) -> None:
    checkpoint = kept(tmp_path)
    checkpoint.keep(state)
    assert checkpoint.path is not None
    checkpoint.path.chmod(0o666)
    with pytest.raises(DataError, match="everybody can write it"):
        checkpoint.load(State)


@pytest.mark.parametrize(
    "wrong", [{}, {"bit_generator": "MT19937"}, {"bit_generator": "PCG64", "state": {"state": -1}}]
)
def test_random_numbers_of_another_kind_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="cannot be continued"):
        generator(wrong)


@pytest.mark.rl
def test_networks_of_another_size_are_refused() -> None:
    import torch

    from slurmplug.rl.torch_state import plain, restore

    network, larger = torch.nn.Linear(2, 3), torch.nn.Linear(2, 4)
    with pytest.raises(DataError, match="cannot be continued"):
        restore({"network": larger}, plain({"network": network}))
    with pytest.raises(DataError, match="cannot be continued"):
        restore({"network": larger}, {})

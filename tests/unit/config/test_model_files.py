"""Files of models: what is written is read again, and what is not a model is refused with why."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.model import Model
from slurmplug.config import model_files, policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import ConfigError, DataError

ARRAYS = {"first": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.array([0.5], dtype=np.float32)}
MODEL = Model("weighing", 1, ARRAYS, {"seed": "1000", "workload": "gen:mlfs"})
FLOATS = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
ABOUT = {"policy": "weighing", "version": "1"}


def raw(header: Any, data: bytes = b"\0\0\0\0") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    model_files.write(MODEL, tmp_path / "m.safetensors")
    read = model_files.read(tmp_path / "m.safetensors")
    assert (read.policy, read.version, read.facts, read.digest) == ("weighing", 1, MODEL.facts, MODEL.digest)
    assert {name: array.tolist() for name, array in read.arrays.items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }
    assert [each.name for each in tmp_path.iterdir()] == ["m.safetensors"]


HOSTILE = {
    "nothing": (b"", "cut short"),
    "a text": (b"hello, world", "cut short, or its header is too large"),
    "a pickle": (b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix", "cut short, or its header is too large"),
    "a header beyond the file": (raw({"__metadata__": ABOUT})[:-20], "cut short"),
    "a large header": (raw({"__metadata__": {**ABOUT, "fact.x": "x" * 70_000}}), "its header is too large"),
    "no JSON": (raw(b"{nonsense}"), "Expecting property name"),
    "deep JSON": (raw(b"[" * 60_000), "recursion"),
    "not UTF-8": (raw(b"\xff\xfe{}"), "codec can't decode|Expecting value"),
    "a list": (raw([1, 2]), "without a model's metadata"),
    "no metadata": (raw({"a": FLOATS}), "without a model's metadata"),
    "no policy": (raw({"__metadata__": {"version": "1"}, "a": FLOATS}), "its metadata has no policy"),
    "no version": (raw({"__metadata__": {"policy": "p"}, "a": FLOATS}), "its metadata has no version"),
    "a version that is a text": (raw({"__metadata__": {**ABOUT, "version": "1e9"}, "a": FLOATS}), "not a whole number"),
    "a large version": (raw({"__metadata__": {**ABOUT, "version": "9" * 5_000}, "a": FLOATS}), "not a whole number"),
    "no arrays": (raw({"__metadata__": ABOUT}, b""), "it has no arrays"),
    "many arrays": (raw({"__metadata__": ABOUT, **{f"{n}": 0 for n in range(600)}}), "more than 512 arrays"),
    "objects": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "dtype": "O"}}), "array a is not of float32"),
    "doubles": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "dtype": "F64"}}), "array a is not of float32"),
    "an array that is a number": (raw({"__metadata__": ABOUT, "a": 3}), "array a is not of float32"),
    "a name that is a path": (raw({"__metadata__": ABOUT, "../../etc/passwd": FLOATS}), "not a name of an array"),
    "many dimensions": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "shape": [1] * 40}}), "more than 4 dimensions"),
    "a shape beyond its data": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "shape": [2**62, 2**62]}}), ""),
    "a negative shape": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "shape": [-1]}}), ""),
    "no elements": (
        raw({"__metadata__": ABOUT, "a": {**FLOATS, "shape": [0], "data_offsets": [0, 0]}}, b""),
        "has no elements",
    ),
    "offsets beyond the file": (raw({"__metadata__": ABOUT, "a": {**FLOATS, "data_offsets": [4, 8]}}), ""),
    "data cut short": (raw({"__metadata__": ABOUT, "a": FLOATS}, b"\0\0"), ""),
    "data that is left over": (raw({"__metadata__": ABOUT, "a": FLOATS}, b"\0" * 9), ""),
    "not a number": (raw({"__metadata__": ABOUT, "a": FLOATS}, np.float32("nan").tobytes()), "not finite"),
    "infinite": (raw({"__metadata__": ABOUT, "a": FLOATS}, np.float32("inf").tobytes()), "not finite"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_is_no_model_is_refused_with_why(tmp_path: Path, what: str) -> None:
    data, message = HOSTILE[what]
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"^model {re.escape(str(path))} is not used: .*({message})"):
        model_files.read(path)


def test_a_file_that_differs_from_a_model_in_any_byte_is_another_model_or_refused() -> None:
    whole = model_files.encode(MODEL)
    assert model_files.parse(whole, "whole").digest == MODEL.digest
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        try:
            found = model_files.parse(bytes(changed), "changed")
        except DataError:
            continue
        assert found.digest != MODEL.digest


def test_a_model_is_always_written_as_the_same_bytes() -> None:
    model = Model("ours", 1, {name: np.ones(3, np.float32) for name in "badc"}, {name: name for name in "hgfe"})
    assert len({model_files.encode(model) for _ in range(20)}) == 1


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.truncate(model_files.LARGEST * 1_000)
    with pytest.raises(DataError, match="larger than 16 MiB"):
        model_files.read(path)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (Path.mkdir, "cannot be read: Is a directory"),
        (os.mkfifo, "cannot be read: it is not a file"),
    ],
)
def test_what_is_no_file_is_refused_without_waiting(
    tmp_path: Path, prepare: Callable[[Path], Any], message: str
) -> None:
    prepare(tmp_path / "m")
    with pytest.raises(DataError, match=message):
        model_files.read(tmp_path / "m")


def test_a_file_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model_files.write(MODEL, path)
    path.chmod(0o666)
    with pytest.raises(DataError, match="everybody can write it"):
        model_files.read(path)


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "a/b"])
def test_a_model_that_could_not_be_read_again_is_not_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="not a name of an array"):
        model_files.write(Model("weighing", 1, {name: ARRAYS["bias"]}), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written: No such file"):
        model_files.write(MODEL, tmp_path / "none" / "m")


LEARNT = """
from dataclasses import dataclass
from policies.plan import Plan

@dataclass(frozen=True)
class Settings:
    model: str = ""
    weight: float = 1.0

class Weighing:
    name, learnt, version = "weighing", True, 1
    shapes = {"first": (2, 3), "bias": (1,)}

    def __init__(self, settings=None, model=None):
        self.settings, self.model = settings or Settings(), model

    def decide(self, snapshot, forecasts, memory):
        return Plan(self.settings.weight * snapshot.jobs.gpus + self.model.arrays["bias"])
"""


@pytest.fixture
def weighing(tmp_path: Path) -> str:
    path = tmp_path / "weighing.py"
    path.write_text(LEARNT)
    path.chmod(0o644)
    return f"{path}:Weighing"


def made(name: str, **settings: Any) -> Any:
    return policy_registry.policy(Config.from_table({"policy": name, "policies": {"weighing": settings}}))


def test_a_learnt_policy_is_made_with_the_model_that_its_settings_name(tmp_path: Path, weighing: str) -> None:
    model_files.write(MODEL, tmp_path / "m.safetensors")
    policy = made(weighing, model=str(tmp_path / "m.safetensors"), weight=2.0)
    assert (policy.model.digest, policy.settings.weight, policy.learnt) == (MODEL.digest, 2.0, True)


def test_a_learnt_policy_can_be_given_another_model(weighing: str) -> None:
    config = Config.from_table({"policy": weighing})
    given: Any = policy_registry.policy(config, MODEL)
    assert given.model is MODEL


def test_a_learnt_policy_that_comes_with_no_model_asks_for_one(weighing: str) -> None:
    with pytest.raises(
        ConfigError, match=r"policies\.weighing\.model: slurmplug comes with no model of weighing: name"
    ):
        made(weighing)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model("other", 1, ARRAYS), "it is a model of 'other', not of 'weighing'"),
        (Model("weighing", 2, ARRAYS), "it is of version 2 of weighing's features"),
        (Model("weighing", 1, {"bias": ARRAYS["bias"]}), "array first is missing"),
    ],
)
def test_a_model_that_is_not_the_policys_is_an_error_of_the_configuration(
    tmp_path: Path, weighing: str, model: Model, message: str
) -> None:
    model_files.write(model, tmp_path / "m.safetensors")
    with pytest.raises(ConfigError, match=rf"policies\.weighing: {message}"):
        made(weighing, model=str(tmp_path / "m.safetensors"))


def test_a_learnt_policy_without_the_setting_says_which(tmp_path: Path, weighing: str) -> None:
    path = Path(weighing.rsplit(":", 1)[0])
    path.write_text(LEARNT.replace("    model: str", "    modle: str"))
    with pytest.raises(ConfigError, match='give its settings `model: str = ""`'):
        made(weighing)


def test_the_models_that_slurmplug_comes_with_are_read_and_small() -> None:
    folder = Path(model_files.__file__).parents[2] / "policies" / "models"
    for path in folder.glob("*.safetensors"):
        assert path.stat().st_size < 5e6
        shipped = model_files.shipped(path.stem)
        assert shipped is not None
        assert path.stem == shipped.policy or path.stem.startswith(f"{shipped.policy}-")
        assert shipped.policy in policy_names.names()

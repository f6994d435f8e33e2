"""What the ledger keeps comes back as it was, and what is damaged is said to be."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from policies.plan import Action, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecast, Forecasts
from slurmplug.ledger.codec import dumps, loads, rebuild
from tests.builders import CLUSTER, forecasts, jobs, nodes, snapshot


def same(left: object, right: object) -> bool:
    """Equal in value and in type, NaN being equal to NaN."""
    if dataclasses.is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, field.name), getattr(right, field.name)) for field in dataclasses.fields(left)
        )
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype.kind == right.dtype.kind
            and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        )
    return type(left) is type(right) and left == right


def test_a_snapshot_comes_back_whole() -> None:
    before = snapshot(
        jobs(
            3, urgency=[1, np.nan, 9], name=["a", "", "naïve ☃"], accuracies=[[0.1, 0.2], [], [0.3]], parents=[(1, 0)]
        ),
        nodes(2, names=("n1", "n2"), used=[[1, 2, 3], [0, 0, np.nan]]),
        runs_on=np.array([[0, 1, 4]]),
    )
    after = rebuild(Snapshot, loads(dumps(before)))
    assert same(before, after)
    assert all(isinstance(key, JobKey) for key in after.jobs.keys)


def test_an_empty_snapshot_comes_back_whole() -> None:
    assert same(snapshot(jobs(0), nodes(0)), rebuild(Snapshot, loads(dumps(snapshot(jobs(0), nodes(0))))))


def test_forecasts_come_back_whole() -> None:
    before = forecasts(2, total=[60.0, np.nan], final=Forecast.normal([0.5, 0.9], [0.1, 0.0], ["a", "b"]))
    after = rebuild(Forecasts, loads(dumps(before)))
    assert same(before, after)


@dataclass(frozen=True)
class Mixed:
    pair: tuple[str, float]
    many: tuple[Action, ...]
    table: Mapping[str, JobKey]
    perhaps: Reason | None


@pytest.mark.parametrize("perhaps", [None, Reason("rule", {"x": 1.5, "why": "so"})])
def test_tuples_mappings_and_options_are_rebuilt_by_their_types(perhaps: Reason | None) -> None:
    key = JobKey(CLUSTER, 7, 1)
    before = Mixed(("a", 1.0), (Action("stop", key, Reason("target"), nodes=("n1", "n2")),), {"x": key}, perhaps)
    assert rebuild(Mixed, loads(dumps(before))) == before


def test_dimensions_and_types_of_arrays_are_kept() -> None:
    arrays = {
        "table": np.arange(6.0).reshape(2, 3),
        "flags": np.array([[True], [False]]),
        "words": np.array([["one", "two"], ["two", ""]]),
        "none": np.zeros((0, 3)),
        "scalar": np.array(2.5),
    }
    after = loads(dumps(arrays))
    assert {name: array.tolist() for name, array in after.items()} == {n: a.tolist() for n, a in arrays.items()}
    assert after["none"].shape == (0, 3)


@pytest.mark.parametrize("packed", [True, False])
def test_a_table_whose_rows_repeat_is_kept_by_its_distinct_rows_and_comes_back_bit_by_bit(packed: bool) -> None:
    random = np.random.default_rng(3)
    distinct = random.random((20, 33))
    distinct[3], distinct[4], distinct[5] = np.nan, 0.0, -0.0
    table = distinct[random.integers(0, 20, 5_000)]
    data = dumps({"table": table.T.copy().T, "other": random.random((100, 3))}, packed=packed)
    assert loads(data)["table"].tobytes() == table.tobytes()
    assert len(data) < table.nbytes / 10


@pytest.mark.parametrize("value", [object(), b"bytes", np.array([object()]), {"x": np.array(["2026"], "datetime64")}])
def test_what_is_no_value_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="cannot be kept"):
        dumps(value)


@pytest.mark.parametrize("key", ["@array", "@texts"])
def test_a_key_that_would_be_taken_for_an_array_is_refused(key: str) -> None:
    with pytest.raises(TypeError, match="cannot be kept"):
        dumps({key: 0})


def test_nothing_is_unpickled() -> None:
    import io
    import pickle

    archive = io.BytesIO()
    np.savez(archive, skeleton=np.array([print], dtype=object))
    for data in (archive.getvalue(), pickle.dumps({"a": 1})):
        with pytest.raises(ValueError, match="not a value of this codec"):
            loads(data)


@pytest.mark.parametrize("header", ["{'shape': (3,': (3", "{'shape': (3,), 'descr': ' ", "((((" * 500])
def test_an_array_whose_header_is_damaged_is_no_value_of_the_codec(header: str) -> None:
    import io
    import zipfile

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        size = len(header).to_bytes(2, "little")
        written.writestr("skeleton.npy", b"\x93NUMPY\x01\x00" + size + header.encode())
    with pytest.raises(ValueError, match="not a value of this codec"):
        loads(archive.getvalue())


class Optional(NamedTuple):
    number: int
    other: int | None


def test_many_named_tuples_come_back_as_they_were_by_columns_or_not() -> None:
    keys = tuple(JobKey("cluster", 2**40 + at, at) for at in range(100))
    ended = tuple(JobKey("cluster\0", at, 0) for at in range(100))
    beyond = tuple(JobKey("cluster", 2**63 + at, 0) for at in range(100))
    for given in (keys, keys[:3], ended, beyond):
        assert rebuild(tuple[JobKey, ...], loads(dumps(given))) == given
    mixed = tuple(Optional(at, None if at else 0) for at in range(100))
    assert rebuild(tuple[Optional, ...], loads(dumps(mixed))) == mixed


def test_a_tree_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="valid integer"):
        rebuild(tuple[JobKey, ...], [["cluster", "seven", 0]])

"""Any value comes back, and any damage is a ValueError."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from slurmplug.ledger.codec import dumps, loads
from tests.builders import jobs, nodes, snapshot

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
ARRAYS = st.one_of(
    arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, min_side=0)),
    arrays.arrays(np.int64, arrays.array_shapes(min_side=0)),
    arrays.arrays(np.bool_, arrays.array_shapes(min_side=0)),
    st.lists(TEXTS, max_size=5).map(lambda texts: np.array(texts, dtype=np.str_)),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS.map("k{}".format), inner, max_size=4),
    max_leaves=12,
)
INPUTS = dumps([snapshot(jobs(3, accuracies=[[0.1], [], [0.2, 0.3]]), nodes(2)), {"x": np.arange(3)}])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        kind = left.dtype.kind == right.dtype.kind and left.shape == right.shape
        return kind and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))


@given(VALUES)
def test_any_value_comes_back(value: Any) -> None:
    assert same(value, loads(dumps(value)))


def damaged(data: bytes) -> None:
    try:
        loads(data)
    except ValueError as error:
        assert "not a value of this codec" in str(error)  # noqa: PT017 some damage does not show


@given(st.binary(max_size=200))
def test_rubbish_is_a_value_error(data: bytes) -> None:
    damaged(data)


@settings(max_examples=200)
@given(st.integers(0, len(INPUTS) - 1), st.integers(1, 255), st.booleans())
def test_bytes_that_were_cut_or_changed_are_a_value_error(at: int, change: int, cut: bool) -> None:
    damaged(INPUTS[:at] if cut else INPUTS[:at] + bytes([INPUTS[at] ^ change]) + INPUTS[at + 1 :])

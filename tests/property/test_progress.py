"""Whatever a report file holds, folding it ends well."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.spool.report_lines import MAX_CLOCK_AHEAD, MAX_QUANTITIES, Points, fold

NOW = 1_800_000_000.0

values = st.one_of(st.floats(), st.integers(), st.none(), st.booleans(), st.text(max_size=5), st.lists(st.integers()))
reports = st.dictionaries(
    st.sampled_from(["time", "iteration", "checkpoint", "loss", "accuracy"]) | st.text(max_size=5), values, max_size=6
).map(lambda report: json.dumps(report).encode())
good = st.builds(
    lambda iteration, loss: json.dumps({"time": NOW - 1, "iteration": iteration, "loss": loss}).encode(),
    st.integers(0, 20),
    st.floats(-10, 10),
)
files = st.lists(reports | good | st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")), max_size=30).map(
    lambda lines: b"".join(line + b"\n" for line in lines)
)


@given(data=files)
def test_points_are_strictly_increasing_and_finite_whatever_is_reported(data: bytes) -> None:
    points, doubts = fold(Points(), data, now=NOW)
    assert np.all(np.diff(points.iterations) > 0)
    assert np.all((points.times > 0) & (points.times <= NOW + MAX_CLOCK_AHEAD))
    assert len(points.quantities) <= MAX_QUANTITIES
    for name, column in points.quantities.items():
        assert name.isidentifier()
        assert len(column) == len(points)
        assert not np.any(np.isinf(column))
    assert all(count > 0 for count in doubts.values())


@given(data=files, at=st.integers(0, 1_000))
def test_folding_in_two_pieces_is_folding_at_once(data: bytes, at: int) -> None:
    middle = data.rfind(b"\n", 0, at) + 1
    once, _ = fold(Points(), data, now=NOW)
    first, _ = fold(Points(), data[:middle], now=NOW)
    twice, _ = fold(first, data[middle:], now=NOW)
    np.testing.assert_array_equal(once.iterations, twice.iterations)
    np.testing.assert_array_equal(once.times, twice.times)
    assert set(once.quantities) == set(twice.quantities)
    for name, column in once.quantities.items():
        np.testing.assert_array_equal(column, twice.quantities[name])


@given(data=files)
def test_folding_the_same_again_changes_no_iteration(data: bytes) -> None:
    once, _ = fold(Points(), data, now=NOW)
    twice, _ = fold(once, data, now=NOW)
    np.testing.assert_array_equal(once.iterations, twice.iterations)
    assert math.isnan(once.checkpoint) or once.checkpoint == twice.checkpoint

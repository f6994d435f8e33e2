"""Whatever a report file holds, folding it ends well."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.spool.report_lines import MAX_CLOCK_AHEAD, MAX_QUANTITIES, fold
from slurmplug.spool.values import Points

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
    for trial in range(len(points.trials)):
        assert np.all(np.diff(points.of_trial(trial).iterations) > 0)
    assert np.all(np.diff(points.trial_of) >= 0)
    assert np.all((points.trial_of >= 0) & (points.trial_of < max(1, len(points.trials))))
    assert 0 <= points.trial < max(1, len(points.trials))
    assert all(trial.name.isascii() for trial in points.trials)
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
    same(once, twice)


def same(once: Points, twice: Points) -> None:
    np.testing.assert_array_equal(once.keys, twice.keys)
    np.testing.assert_array_equal(once.times, twice.times)
    assert set(once.quantities) == set(twice.quantities)
    for name, column in once.quantities.items():
        np.testing.assert_array_equal(column, twice.quantities[name])
    assert (once.trials, once.trial, str(once.first)) == (twice.trials, twice.trial, str(twice.first))


def timed(lines: list[dict[str, object]]) -> bytes:
    """Each line a moment after the one before, as `report()` writes them."""
    return b"".join(
        json.dumps({"time": NOW - 100.0 + number / 100.0, **line}).encode() + b"\n" for number, line in enumerate(lines)
    )


names = st.integers(0, 3) | st.sampled_from(["a", "lr=0.1", "\u03b1\x1b", "x" * 65, "", 1.5, True])


def lines(trials: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[list[dict[str, object]]]:
    """Reports of a job that names its trials, which may take turns, or of one that does not."""
    report = st.builds(
        lambda iteration, told, trial: {"iteration": iteration, **told, **trial},
        st.integers(0, 4),
        st.dictionaries(st.sampled_from(["loss", "accuracy"]), st.integers(0, 2), max_size=2),
        trials,
    )
    return st.lists(report | st.builds(lambda at: {"checkpoint": at}, st.integers(0, 4)), max_size=40)


@given(told=lines(st.just({})) | lines(st.builds(lambda name: {"trial": name}, names)))
def test_folding_the_same_again_changes_nothing(told: list[dict[str, object]]) -> None:
    once, _ = fold(Points(), timed(told), now=NOW)
    twice, _ = fold(once, timed(told), now=NOW)
    np.testing.assert_array_equal(once.keys, twice.keys)
    assert (once.trials, once.trial, str(once.first)) == (twice.trials, twice.trial, str(twice.first))
    assert str(once.checkpoint) == str(twice.checkpoint)


@given(data=files)
def test_folding_the_same_again_changes_no_iteration_of_a_job_that_trains_one_model(data: bytes) -> None:
    once, _ = fold(Points(), data, now=NOW)
    if not once.several:
        twice, _ = fold(once, data, now=NOW)
        np.testing.assert_array_equal(once.iterations, twice.iterations)
        assert math.isnan(once.checkpoint) or once.checkpoint == twice.checkpoint


@st.composite
def trainings(draw: st.DrawFn) -> list[list[int]]:
    """The iterations of each training in the order of their reports, at least two; it may go back, but to no first."""
    first = draw(st.integers(0, 1))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.integers(2, 6))
        order = [first + at for at in range(length)]
        if length > 2 and draw(st.booleans()):  # resumed from a checkpoint
            order += range(first + draw(st.integers(1, length - 1)), first + length)
        found.append(order)
    return found


@given(told=trainings(), named=st.booleans(), pieces=st.integers(1, 4))
def test_no_iteration_shows_values_of_another_training(told: list[list[int]], named: bool, pieces: int) -> None:
    truth: list[dict[float, float]] = []
    written: list[dict[str, object]] = []
    for number, order in enumerate(told):
        truth.append({})
        for iteration in order:
            value = float(len(written))
            truth[-1][iteration] = value
            written.append({"iteration": iteration, "loss": value, **({"trial": f"fold {number}"} if named else {})})
    points, whole = Points(), timed(written).splitlines(keepends=True)
    for piece in range(pieces):
        chunk = b"".join(whole[len(whole) * piece // pieces : len(whole) * (piece + 1) // pieces])
        points, doubts = fold(points, chunk, now=NOW)
        assert "earlier iteration" not in doubts
    assert (points.trial, len(points.trials)) == (len(told) - 1, len(told))
    assert points.several == (named or len(told) > 1)
    for number, values in enumerate(truth):
        curve = points.of_trial(number)
        assert dict(zip(curve.iterations.tolist(), curve.quantities["loss"].tolist(), strict=True)) == values

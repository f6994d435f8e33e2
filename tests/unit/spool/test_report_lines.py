"""Report lines folded into points."""

import json
import math

import numpy as np
import pytest

from slurmplug.spool.json_lines import MAX_LINE_BYTES
from slurmplug.spool.report_lines import MAX_POINTS, MAX_QUANTITIES, fold
from slurmplug.spool.values import REPORTED_NAN, Points, column_value, json_value

NOW = 1_800_000_000.0


def lines(*reports: object) -> bytes:
    return b"".join(json.dumps(report).encode() + b"\n" for report in reports)


def test_reports_become_columns_in_order_of_iteration() -> None:
    data = lines(
        {"time": NOW - 3, "iteration": 0, "loss": 1.5},
        {"time": NOW - 2, "iteration": 1, "loss": 0.5, "accuracy": 0.75},
    )
    points, doubts = fold(Points(), data, now=NOW)
    assert points.iterations.tolist() == [0, 1]
    assert points.times.tolist() == [NOW - 3, NOW - 2]
    assert points.quantities["loss"].tolist() == [1.5, 0.5]
    assert math.isnan(points.quantities["accuracy"][0])
    assert points.quantities["accuracy"][1] == 0.75
    assert doubts == {}


def test_folding_in_pieces_is_folding_at_once() -> None:
    first = lines(*({"time": NOW - 9, "iteration": i, "loss": 1 / (i + 1)} for i in range(5)))
    second = lines(*({"time": NOW - 8, "iteration": i, "accuracy": i / 10} for i in range(3, 9)))
    at_once, _ = fold(Points(), first + second, now=NOW)
    pieces, _ = fold(fold(Points(), first, now=NOW)[0], second, now=NOW)
    np.testing.assert_array_equal(pieces.iterations, at_once.iterations)
    np.testing.assert_array_equal(pieces.times, at_once.times)
    for name in ("loss", "accuracy"):
        np.testing.assert_array_equal(pieces.quantities[name], at_once.quantities[name])


def test_a_second_report_of_an_iteration_adds_quantities_and_is_no_doubt() -> None:
    points, doubts = fold(Points(), lines({"iteration": 4, "loss": 0.3}, {"iteration": 4, "accuracy": 0.9}), now=NOW)
    assert (points.quantities["loss"].tolist(), points.quantities["accuracy"].tolist()) == ([0.3], [0.9])
    assert doubts == {}


def test_the_last_report_of_an_iteration_wins_and_is_counted() -> None:
    points, doubts = fold(Points(), lines({"iteration": 4, "loss": 0.3}, {"iteration": 4, "loss": 0.2}), now=NOW)
    assert points.quantities["loss"].tolist() == [0.2]
    assert doubts == {"repeated iteration": 1}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NaN", math.nan),
        ('"nan"', math.nan),
        ('"NaN"', math.nan),
        ("Infinity", math.inf),
        ('"-inf"', -math.inf),
        ("1e999", math.inf),
        ("-" + "9" * 5_000, -math.inf),
    ],
)
def test_a_value_that_is_not_finite_is_kept_as_it_was_reported(written: str, value: float) -> None:
    points, doubts = fold(Points(), b'{"iteration": 3, "loss": %s, "accuracy": 0.5}\n' % written.encode(), now=NOW)
    kept = json_value(float(points.quantities["loss"][0]))
    assert float(kept) == value or (math.isnan(float(kept)) and math.isnan(value))
    assert column_value(json.loads(json.dumps(kept, allow_nan=False))) == points.quantities["loss"][0]
    assert points.quantities["accuracy"].tolist() == [0.5]
    assert doubts == {}


def test_the_use_of_gpus_is_summed_up_with_when_they_were_last_in_use() -> None:
    shares = (0.5, 0.9, 0.02, 0.05)
    lines = [json.dumps({"time": NOW + at, "load": {"gpu": share}}) for at, share in enumerate(shares)]
    points, _ = fold(Points(), "".join(f"{line}\n" for line in lines).encode(), now=NOW + 9.0)
    assert list(points.gpu_use) == pytest.approx([1.47, 4, NOW + 1.0], rel=1e-12)
    points, _ = fold(points, b'{"load": {"gpu": 0.06}}\n', now=NOW + 9.0)
    assert points.gpu_use.used_at == NOW + 9.0


def test_a_reported_nan_replaces_the_value_that_was_reported_before() -> None:
    points, _ = fold(Points(), b'{"iteration": 3, "loss": 0.5}\n{"iteration": 3, "loss": NaN}\n', now=NOW)
    assert points.quantities["loss"].tolist() == [REPORTED_NAN]


def test_an_earlier_iteration_takes_its_place_and_is_counted() -> None:
    points, doubts = fold(Points(), lines({"iteration": 4, "loss": 0.3}, {"iteration": 2, "loss": 0.6}), now=NOW)
    assert points.iterations.tolist() == [2, 4]
    assert doubts == {"earlier iteration": 1}


def test_reading_a_file_again_from_its_start_changes_nothing_and_raises_no_doubt() -> None:
    data = lines(*({"time": NOW - 9, "iteration": i, "loss": 1 / (i + 1)} for i in range(5)))
    once, _ = fold(Points(), data, now=NOW)
    twice, doubts = fold(once, data, now=NOW)
    assert doubts == {}
    np.testing.assert_array_equal(twice.quantities["loss"], once.quantities["loss"])


def test_a_checkpoint_is_remembered_with_the_time_of_its_report_and_is_no_point() -> None:
    points, _ = fold(Points(), lines({"time": NOW - 5, "checkpoint": 3}, {"iteration": 4, "loss": 1}), now=NOW)
    assert (points.checkpoint, points.checkpoint_time, len(points)) == (3, NOW - 5, 1)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"\x00\xff\xfe rubbish", "unreadable line"),
        (b'{"iteration": 1', "unreadable line"),
        (b"[1, 2]", "unreadable line"),
        (b"[" * 10_000, "unreadable line"),
        (b'{"iteration": 1, "loss": 2' + b" " * MAX_LINE_BYTES + b"}", "long line"),
        (b'{"loss": 2}', "no iteration"),
        (b'{"iteration": -1, "loss": 2}', "negative iteration"),
        (b'{"iteration": NaN, "loss": 2}', "impossible iteration"),
        (b'{"iteration": 1e999, "loss": 2}', "impossible iteration"),
        (b'{"iteration": "1", "loss": 2}', "impossible iteration"),
        (b'{"iteration": true, "loss": 2}', "impossible iteration"),
        (b'{"checkpoint": -3}', "negative iteration"),
    ],
)
def test_a_line_that_cannot_be_a_report_is_dropped_by_its_rule_and_the_next_counts(line: bytes, rule: str) -> None:
    points, doubts = fold(Points(), line + b"\n" + lines({"iteration": 7, "loss": 1}), now=NOW)
    assert points.iterations.tolist() == [7]
    assert doubts == {rule: 1}


@pytest.mark.parametrize(
    ("quantity", "rule"),
    [
        ('"loss": null', "not a number"),
        ('"loss": "0.1"', "not a number"),
        ('"loss": [1]', "not a number"),
        ('"lo ss": 1', "bad name"),
        ('"\\u001b[2J": 1', "bad name"),
        ('"' + "x" * 65 + '": 1', "bad name"),
    ],
)
def test_a_bad_quantity_is_dropped_by_its_rule_and_the_others_of_the_line_count(quantity: str, rule: str) -> None:
    points, doubts = fold(Points(), f'{{"iteration": 1, {quantity}, "accuracy": 0.5}}\n'.encode(), now=NOW)
    assert list(points.quantities) == ["accuracy"]
    assert doubts == {rule: 1}


@pytest.mark.parametrize("time", ["NaN", "-5", "1e300", '"now"', "0"])
def test_an_impossible_time_becomes_the_time_of_reading(time: str) -> None:
    points, doubts = fold(Points(), f'{{"time": {time}, "iteration": 1}}\n'.encode(), now=NOW)
    assert points.times.tolist() == [NOW]
    assert doubts == {"impossible time": 1}


def test_a_clock_that_is_a_little_ahead_is_believed() -> None:
    points, doubts = fold(Points(), lines({"time": NOW + 2, "iteration": 1}), now=NOW)
    assert (points.times.tolist(), doubts) == ([NOW + 2], {})


def test_a_report_without_a_time_is_of_now() -> None:
    points, doubts = fold(Points(), b'{"iteration": 1, "loss": 2}\n', now=NOW)
    assert (points.times.tolist(), doubts) == ([NOW], {})


def test_quantities_beyond_the_limit_are_dropped_and_counted() -> None:
    report = {"iteration": 1} | {f"q{n}": n for n in range(MAX_QUANTITIES + 3)}
    points, doubts = fold(Points(), lines(report), now=NOW)
    assert len(points.quantities) == MAX_QUANTITIES
    assert doubts == {"too many quantities": 3}


def test_a_run_of_very_many_points_is_thinned_evenly_and_keeps_its_last() -> None:
    many = 5 * MAX_POINTS
    points, doubts = fold(Points(), lines(*({"iteration": i, "loss": i} for i in range(many))), now=NOW)
    assert MAX_POINTS / 2 <= len(points) <= MAX_POINTS
    assert points.iterations[-1] == many - 1
    assert len(set(np.diff(points.iterations))) == 1
    assert doubts == {"thinned": many - len(points)}


def test_a_quantity_told_seldom_survives_thinning() -> None:
    seldom = [{"accuracy": i / 1e6} if i % 50 == 7 else {} for i in range(5 * MAX_POINTS)]
    result = ({"iteration": i, "loss": i} | more for i, more in enumerate(seldom))
    points, _ = fold(Points(), lines(*result), now=NOW)
    accuracies = points.quantities["accuracy"]
    at = ~np.isnan(accuracies)
    assert at.sum() == len(range(7, 5 * MAX_POINTS, 50))
    assert np.all(np.abs(points.iterations[at] - accuracies[at] * 1e6) < 8)

"""compare: what two simulations differ in, seed by seed."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slurmplug.commands import main

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, *results: dict[str, Any], workload: str = "w") -> str:
        path = tmp_path / name
        path.write_text(json.dumps({"workload": workload, "cluster": "1x4", "results": results}))
        return str(path)

    return put


def entry(policy: str, seed: int, jct: float | None, **figures: float | None) -> dict[str, Any]:
    return {"policy": policy, "seed": seed, "jobs": 5, "jct_mean": jct, "launcher": "direct", **figures}


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


def comparisons(*arguments: str) -> list[dict[str, Any]]:
    result = compare(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.output)["compared"]
    return rows


def test_the_same_policy_of_two_files_is_compared_seed_by_seed(write: Write) -> None:
    first = write("a.json", entry("mlfs", 0, 100.0), entry("mlfs", 1, 200.0), entry("fifo", 0, 1.0))
    second = write("b.json", entry("mlfs", 1, 190.0), entry("mlfs", 0, 80.0), entry("mlfs", 2, 5.0))
    (row,) = comparisons(first, second)
    assert (row["figure"], row["policy"], row["against"], row["seeds"]) == ("jct_mean", "mlfs", "mlfs", 2)
    assert (row["before"], row["after"], row["change"]) == (150.0, 135.0, pytest.approx(-0.1))
    # The differences are -20 and -10: their mean -15, its standard error 5, Student's t of one degree 12.706.
    assert (row["low"], row["high"]) == pytest.approx((-0.1 - 12.706 * 5 / 150, -0.1 + 12.706 * 5 / 150), rel=1e-3)
    assert row["p"] is None


def test_one_file_compares_its_policies_with_the_first_or_the_one_named(write: Write) -> None:
    path = write("a.json", entry("tiresias", 0, 100.0), entry("mlf-h", 0, 80.0), entry("mlfs", 0, 60.0))
    assert [(row["policy"], row["against"], row["change"]) for row in comparisons(path)] == [
        ("mlf-h", "tiresias", pytest.approx(-0.2)), ("mlfs", "tiresias", pytest.approx(-0.4)),
    ]  # fmt: skip
    assert [(row["policy"], row["change"]) for row in comparisons(path, "--against", "mlfs")] == [
        ("tiresias", pytest.approx(2 / 3)), ("mlf-h", pytest.approx(1 / 3)),
    ]  # fmt: skip


def test_a_file_of_one_policy_is_compared_with_another_of_another(write: Write) -> None:
    first, second = write("a.json", entry("fifo", 0, 100.0)), write("b.json", entry("mlfs", 0, 50.0))
    assert [row["change"] for row in comparisons(first, second)] == [-0.5]


def test_many_seeds_that_agree_are_significant_and_few_are_not_tested(write: Write) -> None:
    def runs(policy: str, seeds: int) -> list[dict[str, Any]]:
        return [entry(policy, seed, 100.0 + seed - 10 * (policy == "mlfs")) for seed in range(seeds)]

    (row,) = comparisons(write("a.json", *runs("fifo", 8), *runs("mlfs", 8)))
    assert row["p"] < 0.01
    assert row["low"] == row["high"] == pytest.approx(-10 / 103.5)
    (row,) = comparisons(write("b.json", *runs("fifo", 5), *runs("mlfs", 5)))
    assert row["p"] is None


def test_a_figure_that_a_run_does_not_tell_is_left_out_of_its_pairs(write: Write) -> None:
    path = write(
        "a.json",
        entry("a", 0, None, u=1.0),
        entry("a", 1, 10.0, u=None),
        entry("b", 0, 5.0, u=None),
        entry("b", 1, 5.0),
    )
    (row,) = comparisons(path)
    assert (row["figure"], row["seeds"], row["change"]) == ("jct_mean", 1, -0.5)


def test_a_figure_of_nothing_has_no_relative_change(write: Write) -> None:
    path = write("a.json", entry("a", 0, 1.0, stops=0, moves=0), entry("b", 0, 1.0, stops=3, moves=0))
    changes = {row["figure"]: row["change"] for row in comparisons(path)}
    assert changes == {"jct_mean": 0.0, "stops": None, "moves": 0.0}


def test_the_table_shows_change_and_interval_and_says_what_one_seed_cannot(write: Write) -> None:
    many = write("a.json", *(entry(policy, seed, 100.0 * (1 + seed)) for policy in "ab" for seed in (0, 1)))
    result = compare(many)
    assert "jct_mean" in result.output
    assert "+0.0%" in result.output
    assert "one seed" not in result.output
    one = compare(write("b.json", entry("a", 0, 100.0, stops=2), entry("b", 0, 50.0, stops=3)), "--figure", "jct_mean")
    assert "-50.0%" in one.output
    assert "stops" not in one.output
    assert "one seed gives no confidence interval" in one.output


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is not what `slurmplug simulate --json` writes"),
        ('{"workload": "w", "cluster": "c", "results": [{"policy": "a"}]}', "is not what"),
        ('{"workload": "w", "cluster": "c", "results": [3]}', "is not what"),
        ('{"workload": "w", "cluster": "c", "results": []}', "has no results"),
    ],
)
def test_what_is_no_result_of_simulate_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    result = compare(str(path))
    assert result.exit_code == 1
    assert complaint in result.output


def test_runs_that_cannot_be_compared_are_refused(write: Write) -> None:
    first = write("a.json", entry("a", 0, 1.0), entry("b", 1, 1.0))
    other = write("b.json", entry("a", 0, 1.0), workload="another")
    twice = write("c.json", entry("a", 0, 1.0), entry("a", 0, 1.0))
    alone = write("d.json", entry("a", 0, 1.0))
    assert "only runs of one workload" in compare(first, other).output
    assert "no seed in common" in compare(first).output
    assert "two results of one policy and seed" in compare(twice).output
    assert "no two policies to compare" in compare(alone).output
    assert "has no policy 'z'" in compare(first, "--against", "z").output
    assert "cannot be read" in compare("/nonexistent/a.json").output
    beauty = compare(first, alone, "--figure", "jct_mean", "--figure", "beauty")
    assert "no such figure: 'beauty'; known: jct_mean" in beauty.output


def test_numbers_that_are_none_are_null_in_json(write: Write) -> None:
    (row,) = comparisons(write("a.json", entry("a", 0, 2.0), entry("b", 0, 1.0)))
    assert row["low"] is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())

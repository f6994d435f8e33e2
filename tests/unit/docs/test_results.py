"""The machinery of docs/results.md: every table has its place, and what was run is not run again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs import make_results
from docs.measure_plain import turnarounds
from docs.results import first, plots
from docs.results.cases import Runs, run
from docs.results.store import Store

PAGE = make_results.PAGE.read_text(encoding="utf-8")
calls: list[int] = []


def doubled(number: int) -> list[int]:
    """Twice the number; fails for a negative one."""
    if number < 0:
        raise ValueError(number)
    calls.append(number)
    return [2 * number]


def test_every_table_has_one_place_on_the_page_and_every_place_its_table() -> None:
    places = re.findall(r"<!-- made by python -m docs\.make_results (\S+) -->", PAGE)
    assert sorted(places) == sorted([*make_results.TABLES, *make_results.CLOCKED])


def test_a_table_is_put_into_its_place_and_nothing_else_changes() -> None:
    page = "a\n<!-- made by python -m docs.make_results t -->\n\nold\n\n<!-- end -->\nb\n<!-- end -->\n"
    assert make_results.renewed(page, "t", "new") == page.replace("old", "new")


def test_a_result_is_kept_by_its_arguments_and_its_data(tmp_path: Path) -> None:
    calls.clear()
    data = tmp_path / "data"
    data.mkdir()
    (data / "jobs.csv").write_text("time\n", encoding="utf-8")
    store = Store(tmp_path / "kept", str(data))
    assert [store.result(doubled, (each,)) for each in (1, 2, 1)] == [[2], [4], [2]]
    assert calls == [1, 2]
    assert Store(tmp_path / "kept", "").result(doubled, (1,)) == [2]
    assert calls == [1, 2, 1]


def test_a_run_that_failed_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-1"):
        Store(tmp_path, "").result(doubled, (-1,))
    assert not list(tmp_path.iterdir())


class MadeUp(Runs):
    """Runs whose figures are drawn."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def each(self, function: Any, arguments: Any) -> list[Any]:
        wanted = list(arguments)
        if function is run:
            return [{**dict.fromkeys(FIGURES, 0.5 + self._rng.random()), "jct": [60.0, 600.0]} for _ in wanted]
        return [tuple(1 + self._rng.random(3 if function is turnarounds else 2)) for _ in wanted]


FIGURES = (
    "jct_mean wait_mean makespan deadline_ratio accuracy_ratio accuracy_by_deadline bandwidth_bytes overload_s utility"
    " urgent_deadline_ratio loss_integral time_to_90_loss time_to_95_loss resizes unfair_ratio rho_max slowdown_max"
).split()


@pytest.mark.parametrize(
    "name", sorted({*make_results.TABLES} - {"parity", "ml-sjf", "oasis-published", "oasis-bounds", "slaq-allocation"})
)
def test_each_row_of_a_table_has_a_cell_for_every_column(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plots, "FIGURES", tmp_path)
    monkeypatch.setattr(first, "DATA", "data")
    lines = make_results.TABLES[name](MadeUp()).splitlines()
    if name == "headline":
        assert len(lines) == 10
        assert all(line.startswith("- **") for line in lines)
    else:
        assert len({line.count("|") for line in lines}) == 1
        assert len(lines) > 4

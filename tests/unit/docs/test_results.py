"""The machinery of docs/results.md: every table has its place, and what was run is not run again."""

import re
from pathlib import Path

import pytest

from docs import make_results
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

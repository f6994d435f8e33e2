"""The tables of docs/results.md that `tests.bench.live` makes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.bench import live
from tests.bench.live_runs import ALONE, Figures

PAGE = live.PAGE.read_text(encoding="utf-8")
COMMANDS = re.findall(r"<!-- made by (python -m tests\.bench\.live [^>]*) -->", PAGE)


def test_a_table_is_written_where_the_page_names_its_command_and_nowhere_else() -> None:
    page = "a\n<!-- made by x --seeds 3 -->\n\nold\n\n<!-- end -->\nb\n<!-- end -->\n"
    assert live.written(page, "x --seeds 3", "new") == page.replace("old", "new")
    assert live.written(page, "x --seeds 6", "new") == page


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_the_page_names_writes_there(command: str) -> None:
    assert live.command(live.options().parse_args(shlex.split(command)[3:])) == command


def test_a_run_that_fails_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def measured(_: Any, policy: str, *__: Any, **___: Any) -> Figures:
        ran.append(policy)
        if policy == "fair" and ran.count("fair") == 1:
            raise RuntimeError("its daemon has ended")
        return {"turnaround": [1.0]}

    monkeypatch.setattr(live, "measured", measured)
    (tmp_path / "elastic.db").touch()
    rows = [(ALONE, None), ("fair", None), ("mlfs", None)]
    with pytest.raises(RuntimeError, match="its daemon"):
        live.Kept("elastic", tmp_path).runs(rows, [1], at_once=1)
    assert list(live.Kept("elastic", tmp_path).runs(rows, [1], at_once=1)) == [ALONE, "fair", "mlfs"]
    assert ran == [ALONE, "fair", "mlfs", "fair"]

"""The machinery of docs/results.md: every table has its place, and what was run is not run again."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs import make_results
from docs.measure_plain import priced, turnarounds
from docs.results import first, papers, plots, simulator
from docs.results.cases import POLLUX, Runs, ideal, run
from docs.results.headline import headline, rivals, table
from docs.results.lanes import Lanes
from docs.results.learnt import evaluated
from docs.results.states import states_known
from docs.results.store import ROOT, Store, needed
from slurmplug.ledger.policy_models import FOLLOWED
from slurmplug.sim.experiment import evaluation
from slurmplug.sim.experiment.comparison import RunFigures

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
    assert sorted(places) == sorted([*make_results.TABLES, *make_results.CLOCKED, make_results.HEADLINE])


def test_a_table_is_put_into_its_place_and_nothing_else_changes() -> None:
    page = "a\n<!-- made by python -m docs.make_results t -->\n\nold\n\n<!-- end -->\nb\n<!-- end -->\n"
    assert make_results.renewed(page, "t", "new") == page.replace("old", "new")


def test_a_result_is_kept_by_its_arguments_and_its_data(tmp_path: Path) -> None:
    calls.clear()
    data = tmp_path / "data"
    data.mkdir()
    (data / "jobs.csv").write_text("time\n", encoding="utf-8")
    store = Store(tmp_path / "kept", str(data))
    assert [store.result(doubled, (each,)).value for each in (1, 2, 1)] == [[2], [4], [2]]
    assert calls == [1, 2]
    assert Store(tmp_path / "kept", "").result(doubled, (1,)).value == [2]
    assert calls == [1, 2, 1]


def test_what_a_result_took_is_kept_with_it(tmp_path: Path) -> None:
    first, again = (Store(tmp_path, "").result(doubled, (3,)) for _ in range(2))
    assert first.seconds == again.seconds >= 0


def test_a_run_that_failed_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-1"):
        Store(tmp_path, "").result(doubled, (-1,))
    assert not list(tmp_path.iterdir())


class MadeUp(Runs):
    """Runs whose figures are drawn, on this scale."""

    def __init__(self, scale: float = 1.0) -> None:
        self._rng, self._scale = np.random.default_rng(int(scale)), scale

    def each(self, function: Any, arguments: Any) -> list[Any]:
        return [self._made(function, given) for given in arguments]

    def _made(self, function: Any, given: tuple[Any, ...]) -> Any:
        if function in (states_known, states_known):
            return int(self._scale * self._draw() * 10), 100
        if function is evaluated:
            names = (*evaluation.FIGURES, FOLLOWED)
            return tuple(RunFigures("", given[2], {name: self._draw() for name in names}) for _ in range(2))
        if function is run:
            return {**dict.fromkeys(FIGURES, self._draw()), "jct": [60.0, 600.0]}
        if function is papers.oasis_run:
            return papers.Served(self._draw(), int(self._draw() * 10), *(self._scale * np.ones((2, 2))))
        if function is papers.ml_sjf_runs:
            return {("mixed", "SJF"): (self._draw(), self._draw())}
        lengths = {turnarounds: 3, priced: 6, ideal: 2, papers.allocation_run: 3}
        return [self._draw() for _ in range(lengths[function] if function in lengths else 1 + len(given[2]))]

    def _draw(self) -> float:
        return float(self._scale * (0.5 + self._rng.random()))


FIGURES = (
    "jct_mean wait_mean makespan deadline_ratio accuracy_ratio accuracy_by_deadline bandwidth_bytes overload_s utility"
    " urgent_deadline_ratio loss_integral time_to_90_loss time_to_95_loss resizes resized_starts unfair_ratio rho_max"
    " slowdown_max"
).split()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, float], list[list[str]]]:
    """The cells of a table, by its name, with figures on this scale, and with the workloads that are not ours."""
    monkeypatch.setattr(plots, "FIGURES", tmp_path)
    for module in (first, simulator):
        monkeypatch.setattr(module, "DATA", str(tmp_path))

    def table(name: str, scale: float) -> list[list[str]]:
        published = [
            f"{policy},{load},{each},{100 * scale}"
            for policy in ("tiresias", "optimus")
            for load in (0.5, 1, 1.5, 2)
            for each in POLLUX
        ]
        file = tmp_path / "workloads" / "pollux_fig8a_jct.csv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(["policy,relative_load,workload,avg_jct_s", *published]), encoding="utf-8")
        return _cells(make_results.TABLES[name](MadeUp(scale)))

    return table


@pytest.mark.parametrize("name", sorted(make_results.TABLES))
def test_the_page_has_the_columns_and_the_rows_that_its_code_makes(name: str, made_up: Any) -> None:
    """What stands in a table whatever the figures are: its head, and the columns that say what a row is of."""
    one, other = made_up(name, 1.0), made_up(name, 1e15)
    assert len({len(row) for row in one}) == 1
    there = _cells(PAGE.partition(f"<!-- made by python -m docs.make_results {name} -->")[2].partition("<!-- end")[0])
    assert there[0] == one[0]
    labels = [at for at in range(len(one[0])) if sorted(row[at] for row in one) == sorted(row[at] for row in other)]
    assert labels
    if name != "ml-sjf":  # whose rows come from its runs
        assert sorted([row[at] for at in labels] for row in there) == sorted([row[at] for at in labels] for row in one)


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]


def test_the_page_begins_with_ten_lines_that_its_tables_say() -> None:
    lines = headline(PAGE)
    assert len(lines.splitlines()) == 10
    assert f"\n\n{lines}\n\n" in PAGE


def test_what_was_not_made_yet_is_no_result() -> None:
    """A row or a policy of which the page has empty cells: the ten lines are of the others."""
    rows = "| MLFS' | x = 1 | 50 ± 3 | 60 (+20% ± 3) |{} |\n| MLFS' | x = 3 | | |{} |\n"
    head = "| workload | load | mlfs | fair | srtf |\n|---|---|---|---|---|\n"
    begin = "<!-- made by python -m docs.make_results first -->\n\n"
    found = table(begin + head + rows.format(" ", " ") + "\n<!-- end -->", "first")
    assert [row["load"] for row in found] == ["x = 1"]
    assert rivals(found) == ["fair"]


def test_results_depend_on_what_their_code_imports_and_on_no_more() -> None:
    files = {str(path.relative_to(ROOT)) for path in needed([ROOT / "docs/results/cases.py"])}
    assert {"slurmplug/sim/engine/engine.py", "slurmplug/cycle/scheduler.py", "policies/__init__.py"} <= files
    assert not {"slurmplug/daemon/daemon.py", "slurmplug/ledger/ledger.py", "docs/results/first.py"} & files


def counted(group: str) -> tuple[int, str]:
    """The number of this call among those of its process, and its group."""
    calls.append(0)
    return len(calls), group


def meet(here: Path, there: Path) -> bool:
    """Leave a mark here, and wait for the other."""
    here.touch()
    for _ in range(600):
        if there.exists():
            return True
        time.sleep(0.1)
    return False


def test_calls_of_one_workload_follow_each_other_the_most_first() -> None:
    lanes = Lanes(1)
    futures = [lanes.submit(group, counted, group) for group in "abcacaa"]  # taken once all of them wait
    with lanes:
        made = sorted(future.result() for future in futures)
    assert [group for _, group in made] == list("aaaaccb")


def test_processes_call_side_by_side_also_of_one_workload(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    with Lanes(2) as lanes:
        assert all(each.result() for each in [lanes.submit("a", meet, one, two), lanes.submit("a", meet, two, one)])


def test_an_error_of_a_call_reaches_who_waits_for_it() -> None:
    with Lanes(1) as lanes:
        failing, going_on = lanes.submit("a", doubled, -1), lanes.submit("a", doubled, 1)
        with pytest.raises(ValueError, match="-1"):
            failing.result()
        assert going_on.result() == [2]

"""What stands first on the page: ten lines, each made from the runs of a table, so that none of them grows stale."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docs.results.cases import Case, Runs
from docs.results.cells import change
from docs.results.first import OURS, RIVALS, Group, groups, whole

PAGE = Path(__file__).parents[1] / "results.md"
KEPT = {
    "deadline_ratio": ("Deadlines met", 0.01, 100.0, " of 100 jobs"),
    "accuracy_ratio": ("Targets met", 0.01, 100.0, " of 100 jobs"),
    "accuracy_by_deadline": ("Accuracy by deadline", 0.002, 1.0, ""),
}
"""what is to be within how much of the best, and how it is written"""
RIVAL_NAMES = {"fair": "equal shares (`fair`)", "srtf": "shortest-first that is told the truth (`srtf`)"}
Compared = Sequence[tuple[Group, dict[str, list[Case]]]]


def headline(runs: Runs) -> str:
    """Ten lines: what is gained, where not, against whom, and what others pay."""
    stopping = [(group, group.entrants(stopping=True)) for group in groups()]
    unstopped = [(group, group.entrants(stopping=False)) for group in whole()]
    lines = [
        *(_against(runs, stopping, rival) for rival in ("fair", "srtf")),
        _ranks(runs, stopping, "The same stopping for all", "first"),
        _ranks(runs, unstopped, "Nobody stopped", "first-whole"),
        *(_kept(runs, stopping, figure) for figure in KEPT),
        _unfair(runs, stopping),
        _plain(),
        _live(),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _mean(runs: Runs, cases: list[Case], figure: str) -> float:
    return float(runs.column(cases, figure).mean())


def _name(group: Group) -> str:
    return f"{group.workload} ({group.load})"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _against(runs: Runs, compared: Compared, rival: str) -> str:
    cells = [f"{_name(group)} {_changed(runs, there, rival)}" for group, there in compared]
    told = RIVAL_NAMES[rival]
    return f"**Mean JCT of MLFS against {told}**, everybody with the same stopping: {', '.join(cells)} (`first`)."


def _changed(runs: Runs, there: dict[str, list[Case]], rival: str) -> str:
    return change(runs.column(there[OURS], "jct_mean"), runs.column(there[rival], "jct_mean"))


def _ranks(runs: Runs, compared: Compared, what: str, table: str) -> str:
    ahead: list[str] = []
    behind: list[str] = []
    for group, there in compared:
        jct = {label: _mean(runs, there[label], "jct_mean") for label in (OURS, *RIVALS)}
        best = min(RIVALS, key=lambda label: jct[label])
        cell = f"{_name(group)} {_changed(runs, there, best)} against {best}"
        (ahead if jct[OURS] < jct[best] else behind).append(cell)
    return f"**{what}**: MLFS is first in mean JCT on {_list(ahead)}; not first on {_list(behind)} (`{table}`)."


def _kept(runs: Runs, compared: Compared, figure: str) -> str:
    short = []
    what, within, scale, unit = KEPT[figure]
    for group, there in compared:
        values = {label: _mean(runs, there[label], figure) for label in (OURS, *RIVALS)}
        best = max(values, key=lambda label: values[label])
        if values[OURS] < values[best] - within:
            less = (values[best] - values[OURS]) * scale
            short.append(f"{_name(group)}: {less:.3g}{unit} below {best}")
    exceptions = f" but for {', '.join(short)}" if short else " everywhere"
    return f"**{what}** under MLFS: within {within * scale:.3g}{unit} of the best{exceptions} (`first-kept`)."


def _unfair(runs: Runs, compared: Compared) -> str:
    def mean(label: str, figure: str) -> float:
        return float(np.mean([_mean(runs, there[label], figure) for _, there in compared]))

    cells = [
        f"{100 * mean(label, 'unfair_ratio'):.1f}% of the jobs, at worst {mean(label, 'rho_max'):.1f}, under {label}"
        for label in (OURS, "fair", "srtf")
    ]
    text = "; ".join(cells)
    what = "**What others pay**: finish-time fairness is above 1.1, in the mean over the workloads, for"
    return f"{what} {text} (`first-fairness`)."


def _plain() -> str:
    cells = [f"{share} without: {jct}" for share, _, jct, *_ in _rows("python -m docs.make_results plain")]
    return (
        f"**Users without directives** under MLF-H, their mean JCT against Slurm alone: {', '.join(cells)} (`plain`)."
    )


def _live() -> str:
    change, worst = next(cells[2:4] for cells in _rows("make bench-live") if cells[0] == "mlfs")
    return f"**On a live cluster** mean JCT under MLFS is {change} against Slurm alone; the worst job: {worst} as long."


def _rows(command: str) -> list[list[str]]:
    """The cells of the table that this command has put on the page."""
    table = PAGE.read_text(encoding="utf-8").partition(f"<!-- made by {command} -->")[2].partition("<!-- end -->")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]

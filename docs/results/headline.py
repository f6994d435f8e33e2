"""What stands first on the page: ten lines, each made from the runs of a table, so that none of them grows stale."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from docs.results.cases import Case, Runs
from docs.results.cells import half
from docs.results.first import OURS, RIVALS, Group, groups, whole
from docs.results.users import beside_others

PAGE = Path(__file__).parents[1] / "results.md"
KEPT = {
    "deadline_ratio": ("Deadlines met", 0.01, 100.0, " points"),
    "accuracy_ratio": ("Targets met", 0.01, 100.0, " points"),
    "accuracy_by_deadline": ("Accuracy by deadline", 0.002, 1.0, ""),
}
"""what is to be within how much of the best, and how it is written"""
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
        _plain(runs),
        _live(),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _mean(runs: Runs, cases: list[Case], figure: str) -> float:
    return float(runs.column(cases, figure).mean())


def _name(group: Group) -> str:
    return f"{group.workload} ({group.load})"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "nowhere"


def _against(runs: Runs, compared: Compared, rival: str) -> str:
    changes = {}
    for group, there in compared:
        ratios = 100 * (runs.column(there[OURS], "jct_mean") / runs.column(there[rival], "jct_mean") - 1)
        changes[_name(group)] = f"{ratios.mean():+.0f}%" + (f" ± {half(ratios):.0f}" if len(ratios) > 1 else "")
    cells = ", ".join(f"{name} {change}" for name, change in changes.items())
    return f"**Mean JCT of MLFS against {rival}**, everybody with the same stopping: {cells} (`first`)."


def _ranks(runs: Runs, compared: Compared, what: str, table: str) -> str:
    ahead: list[str] = []
    behind: list[str] = []
    for group, there in compared:
        jct = {label: _mean(runs, there[label], "jct_mean") for label in (OURS, *RIVALS)}
        best = min(jct, key=lambda label: jct[label])
        if best == OURS:
            ahead.append(_name(group))
        else:
            behind.append(f"{_name(group)}, where {best} is {100 * (1 - jct[best] / jct[OURS]):.0f}% faster")
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
    bound = f"{within * scale:.3g}{unit}"
    return f"**{what}** under MLFS: within {bound} of the best, except {_list(short)} (`first-kept`)."


def _unfair(runs: Runs, compared: Compared) -> str:
    def mean(label: str, figure: str) -> float:
        return float(np.mean([_mean(runs, there[label], figure) for _, there in compared]))

    cells = [
        f"{100 * mean(label, 'unfair_ratio'):.1f}% of the jobs, at worst {mean(label, 'rho_max'):.1f}, under {label}"
        for label in (OURS, "fair", "srtf")
    ]
    text = "; ".join(cells)
    return f"**What others pay**: above 1.1 in finish-time fairness, over all workloads, are {text} (`first-fairness`)."


def _plain(runs: Runs) -> str:
    cells = [f"{share} without: {jct}" for share, _, jct, *_ in beside_others(runs)]
    return (
        f"**Users without directives** under MLF-H, their mean JCT against Slurm alone: {', '.join(cells)} (`plain`)."
    )


def _live() -> str:
    """From the table of `make bench-live`."""
    table = (
        PAGE.read_text(encoding="utf-8").partition("<!-- made by make bench-live -->")[2].partition("<!-- end -->")[0]
    )
    row = next(line for line in table.splitlines() if line.startswith("| mlfs |"))
    _, _, _, change, worst, *_ = (cell.strip() for cell in row.split("|"))
    return f"**On a live cluster** mean JCT under MLFS is {change} against Slurm alone; the worst job: {worst} as long."

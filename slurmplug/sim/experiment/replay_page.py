"""A replay as one HTML page with its plots inside: no script, and nothing that is loaded; needs Matplotlib.

Users choose the names in it: they are escaped, and Matplotlib does not read them as formulas.
"""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from predictors.arrays import Floats
from slurmplug.console.table import printable
from slurmplug.sim.experiment import plot, replay_report
from slurmplug.sim.experiment.replay import Difference, Group, Sample
from slurmplug.sim.experiment.replay_report import ReplayReport, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Write: TypeAlias = Callable[[ReplayReport, Sequence[Sample], "Notes"], None]
HOUR = 3600.0
LONGEST_LABEL = 24
"""characters of a name in a plot"""
_ALONE, _POLICY = "0.6", "tab:blue"
"""the colours of runs under Slurm alone, and under the policy"""
_POINTS = 500
"""of a curve"""
_STYLE = (
    "body{font-family:sans-serif;margin:2em auto;max-width:60em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}"
    "th,td{padding:.15em .7em;text-align:right;overflow-wrap:anywhere}"
    "th{border-bottom:1px solid #999}td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
)
_LOADS = "default-src 'none'; style-src 'unsafe-inline'"


class Notes(NamedTuple):
    """What a page says in words: statements of what was replayed and what it cannot know, a sentence each; warnings of
    what limits the figures; and a legend of the figures."""

    statements: Sequence[str]
    warnings: Sequence[str]
    legend: str


def writing(path: Path) -> Write:
    """What writes the page of a replay into this file.

    Raises:
        UsageError: without Matplotlib, before anything is simulated; or the file cannot be written, also when writing.
    """
    plot.require("--html")
    plot.write(path, b"", "ab", "--html")

    def write(made: ReplayReport, found: Sequence[Sample], notes: Notes) -> None:
        plot.write(path, page(made, found, notes).encode("utf-8", "backslashreplace"), "wb", "--html")

    return write


def page(made: ReplayReport, found: Sequence[Sample], notes: Notes) -> str:
    """The page."""
    title = _safe(f"Replay of {made.workload} on {made.cluster}, under Slurm alone and {made.policy}")
    described = "".join(f"<li>{_safe(each)}</li>" for each in notes.statements)
    warned = "".join(f"<p><strong>{_safe(each)}</strong></p>" for each in notes.warnings)
    not_followed = "".join(f"<li>{_safe(each)}</li>" for each in made.not_followed)
    of_all, *of_groups = map(_table, replay_report.tables(made))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content='
        f'"{_LOADS}"><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>\n'
        + (_table(replay_report.waits_table(made.waits)) if made.waits else "")
        + warned
        + of_all
        + f"<p>{_safe(notes.legend)}</p>\n"
        + _plots(made, found)
        + "".join(of_groups)
        + f"<h2>What was replayed, and what it cannot know</h2><ul>{described}</ul>\n"
        + (f"<h2>Settings of the site that are not followed</h2><ul>{not_followed}</ul>\n" if not_followed else "")
        + "</html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{_safe(each)}</th>" for each in table.headings)
    rows = "".join("<tr>" + "".join(f"<td>{_safe(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    return f"<h2>{_safe(table.title)}</h2><table><tr>{head}</tr>\n{rows}</table>\n"


def _safe(text: str) -> str:
    return escape(printable(text))


def _plots(made: ReplayReport, found: Sequence[Sample]) -> str:
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra, which takes a second to load

    times = Figure(figsize=(10.0, 3.6), layout="constrained")
    left, right = times.subplots(1, 2)
    _jct(left, made, found)
    _changes(right, found)
    parts = [_titled("Time from submission to end, and who gains and who loses", times)]
    for what, groups in (("user", made.users), ("account", made.accounts)):
        figure = Figure(figsize=(10.0, 1.2 + 0.35 * max(len(groups), 1)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _waits(left, made, groups)
        _gains(right, groups)
        parts.append(_titled(f"Waiting, and who gains and who loses, by {what}", figure))
    return "".join(parts)


def _titled(title: str, figure: "Figure") -> str:
    return f"<h2>{_safe(title)}</h2>\n{plot.svg(figure)}\n"


def _jct(axes: "Axes", made: ReplayReport, found: Sequence[Sample]) -> None:
    for name, color, values in (
        ("slurm", _ALONE, np.concatenate([each.alone.jct for each in found])),
        (made.policy, _POLICY, np.concatenate([each.policy.jct for each in found])),
    ):
        x, share = _cumulative(values / HOUR)
        axes.plot(np.maximum(x, 1 / HOUR), share, color=color, label=printable(name), linewidth=1.2)
    axes.set(xscale="log", xlabel="hours from submission to end, at most", ylabel="share of the jobs", ylim=(0, 1.02))
    axes.legend(loc="lower right", fontsize="small")


def _changes(axes: "Axes", found: Sequence[Sample]) -> None:
    x, share = _cumulative(np.concatenate([each.policy.jct - each.alone.jct for each in found]) / HOUR)
    axes.plot(x, share, color="tab:green", linewidth=1.2)
    axes.axvline(0.0, color="0.6", linestyle=":", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set(xlabel="hours later than under Slurm alone, at most", ylim=(0, 1.02))


def _waits(axes: "Axes", made: ReplayReport, groups: Sequence[Group]) -> None:
    places = np.arange(len(groups), dtype=np.float64)
    alone, policy = (np.array([getattr(each.wait, of) for each in groups]) / HOUR for of in ("alone", "policy"))
    axes.barh(places - 0.2, alone, 0.38, color=_ALONE, label="slurm")
    axes.barh(places + 0.2, policy, 0.38, color=_POLICY, label=printable(made.policy))
    axes.set_yticks(places, [_label(each.name) for each in groups], parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel="mean hours waited")
    axes.legend(fontsize="small")


def _gains(axes: "Axes", groups: Sequence[Group]) -> None:
    places = np.arange(len(groups), dtype=np.float64)
    middle = np.array([each.jct.difference for each in groups]) / HOUR
    colors = ["tab:red" if value > 0 else "tab:green" for value in middle]
    axes.barh(places, middle, 0.6, color=colors, xerr=_half_widths([each.jct for each in groups]))
    axes.axvline(0.0, color="0.6", linewidth=0.8)
    axes.set(xlabel="mean hours later (+) or earlier (-)")


def _half_widths(rows: Sequence[Difference]) -> Floats:
    found: Floats = np.nan_to_num(np.array([each.high - each.difference for each in rows])) / HOUR
    return found


def _label(name: str) -> str:
    text = printable(name)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _cumulative(values: Floats) -> tuple[Floats, Floats]:
    """Points of the distribution function of the values that are known."""
    share = np.linspace(0.0, 1.0, _POINTS)
    known = values[~np.isnan(values)]
    return (np.quantile(known, share), share) if len(known) else (np.empty(0), np.empty(0))

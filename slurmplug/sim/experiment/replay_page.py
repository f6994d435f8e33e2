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
from slurmplug.sim.experiment.comparison import half_width
from slurmplug.sim.experiment.replay import CONFIDENCE, Difference, Group, Sample
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
_INTERVAL = f"{CONFIDENCE:.0%} interval"
_TOTALS = {"gpu_hours": "GPU hours", "deadlines_met": "share of the deadlines that are met"}
_POINTS = 500
"""of a curve"""
_SHARES = np.linspace(0.0, 1.0, _POINTS)
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
    totals = Figure(figsize=(10.0, 1.6), layout="constrained")
    for axes, name in zip(totals.subplots(1, 2), _TOTALS, strict=True):
        _total(axes, made, name)
    parts = [
        _titled("Time from submission to end, and who gains and who loses", times),
        _titled("GPU hours and deadlines", totals),
    ]
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
    alone, *_ = _distribution([each.alone.jct for each in found], 1 / HOUR)
    axes.plot(alone, _SHARES, color=_ALONE, label="slurm", linewidth=1.2)
    _curve(axes, _distribution([each.policy.jct for each in found], 1 / HOUR), _POLICY, printable(made.policy))
    axes.set(xscale="log", xlabel="hours from submission to end, at most", ylabel="share of the jobs", ylim=(0, 1.02))
    axes.legend(loc="lower right", fontsize="small")


def _changes(axes: "Axes", found: Sequence[Sample]) -> None:
    later = _distribution([each.policy.jct - each.alone.jct for each in found])
    _curve(axes, later, "tab:green", f"mean of {len(found)} samples" if len(found) > 1 else "one sample")
    axes.axvline(0.0, color="0.6", linestyle=":", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set(xlabel="hours later than under Slurm alone, at most", ylim=(0, 1.02))
    axes.legend(loc="lower right", fontsize="small")


def _total(axes: "Axes", made: ReplayReport, name: str) -> None:
    """One figure of all jobs."""
    [row] = [each for each in made.figures if each.figure == name]
    half = np.nan_to_num(row.high - row.difference)
    axes.barh([0, 1], np.nan_to_num([row.alone, row.policy]), 0.6, color=[_ALONE, _POLICY], xerr=[0.0, half])
    axes.set_yticks([0, 1], ["slurm", _label(made.policy)], parse_math=False)
    axes.invert_yaxis()
    known = row.alone == row.alone or row.policy == row.policy
    axes.set(xlabel=_TOTALS[name] + (f", with its {_INTERVAL}" if known else ": no job has one"))


def _waits(axes: "Axes", made: ReplayReport, groups: Sequence[Group]) -> None:
    places = np.arange(len(groups), dtype=np.float64)
    alone, policy = (np.array([getattr(each.wait, of) for each in groups]) / HOUR for of in ("alone", "policy"))
    axes.barh(places - 0.2, alone, 0.38, color=_ALONE, label="slurm")
    half = _half_widths([each.wait for each in groups])  # of the policy, as Slurm alone is the same in every sample
    axes.barh(places + 0.2, policy, 0.38, color=_POLICY, label=printable(made.policy), xerr=half)
    axes.set_yticks(places, [_label(each.name) for each in groups], parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel=f"mean hours waited, with its {_INTERVAL}")
    axes.legend(fontsize="small")


def _gains(axes: "Axes", groups: Sequence[Group]) -> None:
    places = np.arange(len(groups), dtype=np.float64)
    middle = np.array([each.jct.difference for each in groups]) / HOUR
    colors = ["tab:red" if value > 0 else "tab:green" for value in middle]
    axes.barh(places, middle, 0.6, color=colors, xerr=_half_widths([each.jct for each in groups]))
    axes.axvline(0.0, color="0.6", linewidth=0.8)
    axes.set(xlabel=f"mean hours later (+) or earlier (-), with its {_INTERVAL}")


def _half_widths(rows: Sequence[Difference]) -> Floats:
    found: Floats = np.nan_to_num(np.array([each.high - each.difference for each in rows])) / HOUR
    return found


def _label(name: str) -> str:
    text = printable(name)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


class _Distribution(NamedTuple):
    """(points,) the hours that each of `_SHARES` has at most: the mean of the samples, and its interval."""

    middle: Floats
    low: Floats
    high: Floats


def _distribution(samples: Sequence[Floats], least: float = -np.inf) -> _Distribution:
    """That of seconds by sample, without those that are not known. least: hours."""
    known = [values[~np.isnan(values)] / HOUR for values in samples]
    if not all(map(len, known)):
        return _Distribution(*np.full((3, _POINTS), np.nan))
    table = np.stack([np.quantile(values, _SHARES) for values in known])
    middle = table.mean(axis=0)
    half = np.nan_to_num([half_width(level, CONFIDENCE) for level in table.T])
    return _Distribution(*(np.maximum(hours, least) for hours in (middle, middle - half, middle + half)))


def _curve(axes: "Axes", of: _Distribution, color: str, label: str) -> None:
    axes.plot(of.middle, _SHARES, color=color, label=label, linewidth=1.2)
    if (of.high > of.low).any():
        axes.fill_betweenx(_SHARES, of.low, of.high, color=color, alpha=0.25, linewidth=0.0, label=_INTERVAL)

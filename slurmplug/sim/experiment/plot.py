"""A picture of simulated runs: each job's wait and run, the GPUs in use, and how long jobs waited; needs Matplotlib."""

import io
import warnings
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from slurmplug.errors import UsageError
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.result import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Draw: TypeAlias = Callable[[Sequence[RunResult]], None]
FORMATS = (".html", ".png")
HOUR = 3600.0
_WAITS, _MANAGED, _PLAIN = "0.85", "tab:blue", "tab:gray"


def drawing(path: Path) -> Draw:
    """What draws runs of one workload under several policies into this file: one page (HTML), or PNG.

    Raises:
        UsageError: for another ending, or without Matplotlib, before anything is simulated; or the file cannot be
            written, also when drawing.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"--plot {path}: name a file that ends in {' or '.join(FORMATS)}")
    require("--plot")
    write(path, b"", "ab", "--plot")

    def draw(results: Sequence[RunResult]) -> None:
        write(path, _picture(results, path.suffix), "wb", "--plot")

    return draw


def _picture(results: Sequence[RunResult], suffix: str) -> bytes:
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra, which takes a second to load

    figure = Figure(figsize=(6.0 * max(len(results), 1), 10.0), layout="constrained")
    axes = figure.subplots(3, len(results), squeeze=False, sharex="row", sharey="row", height_ratios=[3, 1, 1])
    for column, result in zip(axes.T, results, strict=True):
        _jobs(column[0], result)
        _use(column[1], result)
        _waits(column[2], result)
    for row, label in zip(axes, ("jobs, in order of submission", "GPUs in use", "share of the jobs"), strict=True):
        row[0].set_ylabel(label)
    if suffix == ".html":
        return _page(results, svg(figure))
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=120)
    return made.getvalue()


def _jobs(axes: "Axes", result: RunResult) -> None:
    """A line for each job: waiting, then from its first start to its end."""
    end = float(result.in_use[-1, 0]) if len(result.in_use) else 0.0
    submitted, started, ended = (
        np.array([getattr(job, name) for job in result.finished]) / HOUR for name in ("submitted", "started", "ended")
    )
    started, ended = np.where(np.isnan(started), end / HOUR, started), np.where(np.isnan(ended), end / HOUR, ended)
    managed = np.array([result.launcher == "direct" or job.job.managed for job in result.finished], dtype=bool)
    places, width = np.arange(len(submitted)), max(0.3, min(4.0, 400 / max(len(submitted), 1)))
    axes.hlines(places, submitted, started, color=_WAITS, linewidth=width, label="waits")
    for rows, color, label in ((managed, _MANAGED, "runs, managed"), (~managed, _PLAIN, "runs, not managed")):
        if rows.any():
            axes.hlines(places[rows], started[rows], ended[rows], color=color, linewidth=width, label=label)
    axes.set(title=f"{result.policy}, {result.launcher}", xlabel="hours")
    axes.legend(loc="lower right", fontsize="small")


def _use(axes: "Axes", result: RunResult) -> None:
    gpus = sum(parse(result.cluster).gpus)
    if len(result.in_use):
        axes.step(result.in_use[:, 0] / HOUR, result.in_use[:, 1], where="post", linewidth=0.8)
    axes.axhline(gpus, color="0.6", linestyle=":", linewidth=0.8)
    axes.set(ylim=(0, 1.05 * gpus), xlabel="hours")


def _waits(axes: "Axes", result: RunResult) -> None:
    waits = np.sort([job.wait for job in result.finished]) / HOUR
    axes.plot(waits, np.arange(1, len(waits) + 1) / max(len(waits), 1))
    axes.set(xlabel="hours waited, at most", ylim=(0, 1.02))


def _page(results: Sequence[RunResult], picture: str) -> bytes:
    title = escape(f"{results[0].workload} on {results[0].cluster}" if results else "nothing")
    return f'<!doctype html><meta charset="utf-8"><title>{title}</title><h1>{title}</h1>\n{picture}'.encode()


def svg(figure: "Figure") -> str:
    """The figure as an element of a page: the same figure gives the same text, which refers to nothing elsewhere."""
    from matplotlib import rc_context  # noqa: PLC0415  an extra, which takes a second to load

    made = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "slurmplug", "svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", "Glyph")  # the browser draws the texts, with fonts of its own
        figure.savefig(made, format="svg", metadata=nothing)
    text = made.getvalue()
    return text[text.index("<svg") :]


def require(option: str) -> None:
    """Raises UsageError where Matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise UsageError(f"{option} needs Matplotlib: pip install 'slurmplug[plot]'")


def write(path: Path, content: bytes, mode: Literal["ab", "wb"], option: str) -> None:
    """Raises UsageError where the file, which the option named, cannot be written."""
    try:
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be written: {error.strerror}") from error

"""A job's learning curve on a terminal: what it reported, what is predicted, its target and its stop."""

import locale
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from slurmplug.console.plot import MARGIN, Plot, Span
from slurmplug.console.table import printable

HEIGHT = 16
"""lines of the plot itself"""
FEWEST, MOST = 30, 110
"""columns of it"""
WITHOUT_TERMINAL = 80


def shows_unicode() -> bool:
    """Whether both the locale and the output are UTF-8: Python may write UTF-8 in a locale that is another."""
    encodings = (locale.getencoding(), getattr(sys.stdout, "encoding", None) or "")
    return all(name.lower().replace("-", "") == "utf8" for name in encodings)


def lines(job: str, curve: Mapping[str, Any], width: int | None, *, unicode: bool) -> Iterator[str]:
    """The plot of a `reports.curve.Curve` of the job with this id. width: the terminal's columns, None without one."""
    quantity, points, forecast = printable(curve["quantity"]), curve["points"], curve["forecast"]
    if not points:
        yield f"Job {job} has reported no {quantity}."
        return
    target, stop = curve["target"], curve["stop"]
    columns = min(max((width or WITHOUT_TERMINAL) - MARGIN, FEWEST), MOST)
    plot = Plot(columns, HEIGHT, *_spans(curve), braille=unicode)
    across, upright = ("─", "│") if unicode else ("-", "|")
    if target is not None:
        plot.horizontal(target, across)
    if stop is not None:
        plot.vertical(stop["iteration"], upright)
    for bound in (1, 3):
        plot.curve([(each[0], each[bound]) for each in forecast], ".")
    plot.curve(points, "*")
    plot.marks([(each[0], each[2]) for each in forecast[1:]], "o")
    yield f"Job {job}: {quantity}"
    yield from plot.lines()
    yield f"{'':{MARGIN}}iteration"
    last, value = points[-1]
    yield f"{'line' if unicode else '*'}: reported, last {value:.4g} at iteration {last:.15g}"
    if forecast:
        end, low, median, high = forecast[-1]
        fan = "o between two lines" if unicode else "o between .."
        yield f"{fan}: predicted, {median:.4g} (90 %: {low:.4g} to {high:.4g}) at iteration {end:.15g}"
    if target is not None:
        yield f"{across * 2}: target {target:.15g}"
    if stop is not None:
        yield f"{upright}: predicted stop at iteration {stop['iteration']:.0f} (--stop={printable(stop['option'])})"


def _spans(curve: Mapping[str, Any]) -> tuple[Span, Span]:
    """Of the iterations and of the values that are to be seen."""
    points, forecast, target = curve["points"], curve["forecast"], curve["target"]
    values = [value for _, value in points]
    values += [bound for each in forecast for bound in each[1:]]
    values += [] if target is None else [target]
    last = max(points[-1][0], forecast[-1][0] if forecast else 0.0, curve["last_iteration"] or 0.0)
    return (min(points[0][0], last), last), (min(values), max(values))

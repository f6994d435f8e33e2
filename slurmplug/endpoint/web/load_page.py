"""The page of the load: pending and running jobs, who waits, when the cluster was overloaded, and the stops."""

from collections import Counter
from typing import Any

from markupsafe import Markup

from slurmplug.console.table import counted
from slurmplug.console.times import format_time
from slurmplug.endpoint.web.svg import Chart, number, steps
from slurmplug.endpoint.web.time_axis import Window
from slurmplug.ledger import overloads, page_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.page_queries import Load, Stop
from slurmplug.reports.viewer import Viewer

PARTS, STOP_PARTS = 240, 30
"""into which the time is divided"""
DONE, PREVENTED = "done", "prevented"


def values(ledger: LedgerFile, viewer: Viewer, window: Window) -> dict[str, Any]:
    """What the page shows."""
    found = page_queries.loads(ledger, window.start, window.end, PARTS)
    spans = overloads.between(ledger, window.start, window.end)
    owner = None if viewer.sees_all else viewer.uid
    stops = page_queries.stops(ledger, window.start, window.end, owner)
    return {
        "load": _load(found, spans, window) if found else None,
        "stop_chart": _stops(stops, window) if stops else None,
        "waiting": page_queries.waiting(ledger, window.end, owner),
        "spans": spans,
        "overloaded_seconds": sum(min(last, window.end) - max(began, window.start) for began, last in spans),
        "stops": sorted(Counter((each.rule, each.done, each.overload) for each in stops).items()),
    }


def _load(found: list[Load], spans: list[tuple[float, float]], window: Window) -> Markup:
    most = max(max(each.pending, each.running) for each in found)
    y = (0.0, max(most * 1.05, 1.0))
    chart = Chart("Pending and running jobs, and overload, by time", (window.start, window.end), y)
    for began, last in spans:
        chart.box("overload", (began, last), y, f"overloaded from {format_time(began)} to {format_time(last)}")
    chart.axes(window.axis(), steps(y), ("time", "jobs"), (window.text, number))
    chart.line("pending", [(each.start, each.pending) for each in found])
    chart.line("running", [(each.start, each.running) for each in found])
    return chart.markup()


def _stops(found: list[Stop], window: Window) -> Markup:
    """A bar for each part of the time: stops that ended a job, and on top of them those that were prevented."""
    width = (window.end - window.start) / STOP_PARTS
    last = STOP_PARTS - 1
    by_part = Counter(
        (min(int((each.at - window.start) / width), last), DONE if each.done else PREVENTED) for each in found
    )
    y = (0.0, max(by_part[part, DONE] + by_part[part, PREVENTED] for part in range(STOP_PARTS)) * 1.05)
    chart = Chart("Stops by time", (window.start, window.end), y, height=220)
    chart.axes(
        window.axis(), [each for each in steps(y) if each == int(each)], ("time", "stops"), (window.text, number)
    )
    for part in range(STOP_PARTS):
        x, below = window.start + part * width, 0
        for kind in (DONE, PREVENTED):
            if count := by_part[part, kind]:
                text = f"{counted(count, 'stop')} {kind}, {format_time(x)} to {format_time(x + width)}"
                chart.box(kind, (x + width * 0.1, x + width * 0.9), (below, below + count), text)
                below += count
    return chart.markup()

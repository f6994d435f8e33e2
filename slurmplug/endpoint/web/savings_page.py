"""The page of what stops saved: GPU hours by week and by rule, as `slurmplug savings` has them."""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from slurmplug.endpoint.web.svg import Chart, number, steps
from slurmplug.ledger import stop_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.processes.background import in_thread
from slurmplug.reports import savings
from slurmplug.reports.savings import Saving, Sum
from slurmplug.reports.viewer import Viewer

WEEKS = 12
WEEK = 7 * 86_400.0
FRESH_SECONDS = 600.0
"""after which savings are computed again, when somebody asks for them"""
READ_SECONDS = 300.0
"""for that"""


class KeptSavings:
    """What the stops of the last weeks saved, computed beside the requests: that takes seconds for 10,000 stops."""

    def __init__(self, path: Path) -> None:
        """path: the ledger's."""
        self._path = path
        self._lock = threading.Lock()
        self._asked: Future[_Found] | None = None
        self._found: _Found | None = None

    def found(self, now: float) -> "_Found | None":
        """The savings as they were computed last; None while that is done the first time. Raises LedgerError."""
        with self._lock:
            asked = self._asked
            if asked is not None and asked.done():
                self._asked = None
                self._found = asked.result()
            if self._asked is None and (self._found is None or now - self._found.at > FRESH_SECONDS):
                self._asked = in_thread("savings", lambda: self._read(now))
            return self._found

    def _read(self, now: float) -> "_Found":
        """Week by week, without the reports, which would fill the memory."""
        found: list[Saving] = []
        with closing(LedgerFile(self._path, readonly=True)) as ledger:
            ledger.finish_within(READ_SECONDS)
            for week in range(WEEKS, 0, -1):
                began = now - week * WEEK
                stops = stop_queries.decided_stops(ledger, began, math.nextafter(began + WEEK, began))
                found += [replace(each, stop=replace(each.stop, reports=())) for each in savings.savings(stops)]
        return _Found(now, found)


class _Found(NamedTuple):
    """at: when, in seconds since the epoch."""

    at: float
    savings: Sequence[Saving]


def values(kept: KeptSavings, viewer: Viewer, now: float) -> dict[str, Any]:
    """What the page shows."""
    known = kept.found(now)
    found = known.savings if known else ()
    seen = [each for each in found if viewer.sees_all or each.stop.record.facts.uid == viewer.uid]
    parts = []
    for title, done in (("Stopped", True), ("Would have been stopped", False)):
        these = [each for each in seen if each.stop.done is done]
        by_week = savings.summed(these, ("week",))
        parts.append(
            {
                "title": title,
                "done": done,
                "total": next(iter(savings.summed(these, ())), None),
                "rules": savings.summed(these, ("rule",)),
                "weeks": by_week,
                "chart": _drawn(title, by_week, "done" if done else "prevented") if by_week else None,
            }
        )
    as_of = known.at if known else None
    return {"parts": parts, "as_of": as_of, "weeks": WEEKS, "confidence": savings.CONFIDENCE}


def _drawn(title: str, weeks: Sequence[Sum], kind: str) -> Markup:
    """A bar for each week, and its interval."""
    y = (0.0, max(max(each.gpu_hours.high for each in weeks) * 1.05, 1e-9))
    chart = Chart(f"{title}: GPU hours by week", (0.0, float(len(weeks))), y, height=240)
    places = [place + 0.5 for place in range(len(weeks))]
    chart.axes(places, steps(y), ("week", "GPU hours"), (lambda at: weeks[int(at)].by[0], number))
    for at, each in zip(places, weeks, strict=True):
        hours = each.gpu_hours
        text = f"{each.by[0]}: {hours.value:.6g} GPU hours ({number(hours.low)} to {number(hours.high)})"
        chart.box(kind, (at - 0.35, at + 0.35), (0.0, hours.value), text)
        chart.line("interval", [(at, hours.low), (at, hours.high)])
    return chart.markup()

"""The page of the forecasts: what was predicted beside what came."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from slurmplug.console.times import format_duration
from slurmplug.endpoint.web.svg import Chart, number, powers, spanned, steps
from slurmplug.ledger import page_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.reports import job_view, savings
from slurmplug.reports.comparisons import Comparison, comparisons
from slurmplug.reports.viewer import Viewer

MOST = 500
"""jobs, the last ones"""
_TITLES = {"run_time": "Run times", "final_value": "Final values"}


class Known(NamedTuple):
    """A job's comparison, of which both values are known."""

    job: str
    forecast: float
    actual: float
    inside: bool


def values(ledger: LedgerFile, viewer: Viewer) -> dict[str, Any]:
    """What the page shows."""
    rows = page_queries.predicted(ledger, None if viewer.sees_all else viewer.uid, MOST)
    found: dict[str, list[Known]] = {quantity: [] for quantity in _TITLES}
    for job in job_view.jobs_in_rows(ledger, rows):
        for each in comparisons(job):
            known = _known(job.id, each)
            if known is not None:
                found[each.quantity].append(known)
    drawn = {"run_time": _run_times, "final_value": _final_values}
    return {
        "most": MOST,
        "parts": [
            {"title": title, "chart": drawn[name](found[name]), **_judged(found[name])}
            for name, title in _TITLES.items()
            if found[name]
        ],
    }


def _known(job: str, each: Comparison) -> Known | None:
    inside = each.forecast.holds(each.actual)
    if each.forecast.value is None or each.actual is None or inside is None:
        return None
    if not (math.isfinite(each.forecast.value) and math.isfinite(each.actual)):
        return None
    return Known(job, each.forecast.value, each.actual, inside)


def _judged(found: Sequence[Known]) -> dict[str, Any]:
    errors = [abs(each.forecast - each.actual) / abs(each.actual) for each in found if each.actual]
    return {
        "jobs": len(found),
        "error": median(errors) if errors else None,
        "inside": savings.share(sum(each.inside for each in found), len(found)),
    }


def _run_times(found: Sequence[Known]) -> Markup:
    """By the logarithms of both."""
    points = [(each, math.log10(max(each.forecast, 1.0)), math.log10(max(each.actual, 1.0))) for each in found]
    span = spanned([value for _, *both in points for value in both])
    chart = Chart("Run times that came, by those that were predicted", span, span, height=420)

    def text(value: float) -> str:
        return format_duration(10.0**value)

    chart.axes(powers(span), powers(span), ("predicted", "actual"), (text, text))
    chart.line("same", [(span[0], span[0]), (span[1], span[1])])
    for each, x, y in points:
        told = f"{each.job}: predicted {format_duration(each.forecast)}, took {format_duration(each.actual)}"
        chart.dot("inside" if each.inside else "outside", (x, y), told)
    return chart.markup()


def _final_values(found: Sequence[Known]) -> Markup:
    span = spanned([value for each in found for value in (each.forecast, each.actual)])
    chart = Chart("Final values that came, by those that were predicted", span, span, height=420)
    chart.axes(steps(span), steps(span), ("predicted", "actual"))
    chart.line("same", [(span[0], span[0]), (span[1], span[1])])
    for each in found:
        told = f"{each.job}: predicted {number(each.forecast)}, reached {number(each.actual)}"
        chart.dot("inside" if each.inside else "outside", (each.forecast, each.actual), told)
    return chart.markup()

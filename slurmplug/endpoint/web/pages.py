"""What the pages hold, from the ledger, for who asks: values for the templates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slurmplug.config.schema import Config
from slurmplug.console.table import Field, Value
from slurmplug.endpoint.web import curve_chart, forecasts_page, load_page, nodes_page, savings_page, time_axis
from slurmplug.endpoint.web.savings_page import KeptSavings
from slurmplug.endpoint.web.time_axis import WINDOWS, Window
from slurmplug.errors import UsageError
from slurmplug.ledger import cycle_queries, queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.asked_job import NOT_KNOWN, asked_job
from slurmplug.reports.deadlines import MARKS
from slurmplug.reports.queue_fields import FIELDS as QUEUE_FIELDS
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer

ROWS = 200
"""jobs on one page of the queue"""
MOST_ELEMENTS = 5_000
"""elements of an array on its page"""
_LINK = "jobid"
"""the field that names a job"""
_QUEUE = {
    "position": "Rank", _LINK: "Job", "user": "User", "jobname": "Name", "state": "State", "gpus": "GPUs",
    "iteration": "Iteration", "judged": "Value", "rank": "Score", "remaining": "Left", "starttime": "Start",
    "endtime": "End", "deadline": "Deadline", "reasonlist": "Nodes or reason", "doing": "What is done",
}  # fmt: skip
_ELEMENTS = {
    _LINK: "Job", "state": "State", "gpus": "GPUs", "elapsed": "Elapsed", "waited": "Waited", "iterations": "Iteration",
    "target": "Target", "value": "Value", "stop": "Stop",
}  # fmt: skip
_FACTS = (
    "user", "account", "partition", "qos", "state", "gpus", "gputype", "nodelist", "submit", "start", "end", "elapsed",
    "timelimit", "waited", "attained", "predicted", "remaining", "stop", "saved", "charge",
)  # fmt: skip
_BY_NAME: Mapping[str, Field[Any]] = {field.name.lower(): field for field in FIELDS}


class Cell(NamedTuple):
    """A cell of a table. job: the id of the job to which it leads, or empty. more: what is shown when it is opened."""

    text: str
    job: str = ""
    more: str = ""


class Pages:
    """The pages for one asker, from an open ledger."""

    def __init__(
        self, ledger: LedgerFile, config: Config, viewer: Viewer, now: float, kept_savings: KeptSavings
    ) -> None:
        self._ledger, self._config, self._viewer, self._now = ledger, config, viewer, now
        self._savings = kept_savings

    def state(self) -> dict[str, Any]:
        """What every page says of the daemon."""
        cycle = queries.last_cycle(self._ledger)
        return {
            "cycle": cycle,
            "dead_since": self._reports().dead_since(self._now),
            "paused": bool(cycle_queries.control(self._ledger, "paused")),
            "sees_all": self._viewer.sees_all,
        }

    def queue(self, user: str, first: int) -> dict[str, Any]:
        """A page of the queue, of one user or of all: from the job at place `first`, from 0, on."""
        which = Selection(live=True, users=(user,) if user else ())
        names = [*_QUEUE, "chance", "terms"]
        found = self._reports().queue(which, names, slice(first, first + ROWS + 1))
        rows = [dict(zip(names, row, strict=True)) for row in zip(*found, strict=True)]
        return {
            "headings": list(_QUEUE.values()),
            "rows": [_queue_row(row) for row in rows[:ROWS]],
            "user": user,
            "first": first,
            "before": max(0, first - ROWS) if first else None,
            "after": first + ROWS if len(rows) > ROWS else None,
        }

    def job(self, asked: str) -> dict[str, Any]:
        """A job, or the elements of an array. Raises UsageError where it is not known, or no id."""
        wanted = JobId.parse(asked)
        found = asked_job(self._reports(MOST_ELEMENTS), wanted, list(_ELEMENTS), curves=True)
        if found is None:
            raise UsageError(f"slurmplug knows no job {asked}: {NOT_KNOWN}")
        elements = _table(_ELEMENTS, found.values, _BY_NAME) if found.several else []
        told = [*found.explained, *found.together]
        return {
            "asked": asked,
            "headings": list(_ELEMENTS.values()),
            "elements": elements,
            "together": bool(found.together),
            "component": found.component,
            "jobs": [self._told(each.job, each.story) for each in told],
        }

    def nodes(self, last: str) -> dict[str, Any]:
        """Which jobs ran where, in a time that ends now."""
        return self._of_time(nodes_page.values, last)

    def load(self, last: str) -> dict[str, Any]:
        """The load and the stops, in a time that ends now."""
        return self._of_time(load_page.values, last)

    def savings(self) -> dict[str, Any]:
        """What stops saved."""
        return savings_page.values(self._savings, self._viewer, self._now)

    def forecasts(self) -> dict[str, Any]:
        """What was predicted beside what came."""
        return forecasts_page.values(self._ledger, self._viewer)

    def _of_time(self, values: Callable[[LedgerFile, Viewer, Window], dict[str, Any]], last: str) -> dict[str, Any]:
        window = time_axis.window(last, self._now)
        return {"windows": WINDOWS, "window": window, **values(self._ledger, self._viewer, window)}

    def _told(self, job: Mapping[str, Value], story: Mapping[str, Any]) -> dict[str, Any]:
        curve = story.get("curve")
        chart = curve_chart.drawn(str(job["jobid"]), curve) if curve else None
        facts = [(_BY_NAME[name].name, _text(_BY_NAME[name], job[name])) for name in _FACTS]
        return {
            "id": job["jobid"],
            "name": job["jobname"],
            "facts": [(name, text) for name, text in facts if text],
            "story": story["story"],
            "chart": chart,
            "curve": curve,
            "legend": curve_chart.legend(curve) if curve and chart else [],
        }

    def _reports(self, most: int = 0) -> LedgerReports:
        return LedgerReports(self._ledger, self._config.ledger.path, self._config, self._viewer, most)


def _table(
    names: Mapping[str, str], columns: Sequence[Sequence[Value]], fields: Mapping[str, Field[Any]]
) -> list[list[Cell]]:
    """The rows of a table."""
    cells = [
        [Cell(_text(fields[name], value), str(value) if name == _LINK else "") for value in column]
        for name, column in zip(names, columns, strict=True)
    ]
    return [list(row) for row in zip(*cells, strict=True)]


def _queue_row(row: Mapping[str, Any]) -> list[Cell]:
    marks = {"deadline": MARKS.get(row["chance"], "")}
    terms = {"rank": ", ".join(f"{name} {value:.4g}" for name, value in row["terms"].items())}
    return [
        Cell(
            _text(QUEUE_FIELDS[name], row[name]) + marks.get(name, ""),
            str(row[name]) if name == _LINK else "",
            terms.get(name, ""),
        )
        for name in _QUEUE
    ]


def _text(field: Field[Any], value: Value) -> str:
    """A value for people; nothing for one that is not known."""
    if value is None:
        return ""
    text = field.texts([value])[0]
    return text.replace("T", " ") if field.kind == "time" else text

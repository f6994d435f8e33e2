"""The fields of a job in the live queue: those of `slurmplug acct`, and what only a queue has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slurmplug.console.table import Field, Value, ordinal
from slurmplug.ledger.selection import QUEUE_STATE_CODES, WAITING
from slurmplug.reports import acct, deadlines
from slurmplug.reports.fact_fields import OfFacts, fact

if TYPE_CHECKING:
    from slurmplug.reports.job_view import Job
    from slurmplug.reports.queue_entry import QueueEntry

BAR = 10
_CODES = {name: code for code, name in QUEUE_STATE_CODES.items()}


def _progress(job: Job) -> str | None:
    if job.iteration is None:
        return None
    given = job.directives
    done = f"{job.iteration:.0f}/{given.max_iterations}" if given and given.max_iterations else f"{job.iteration:.0f}"
    return f"{ordinal(job.trial_number + 1)}: {done}" if job.several_trials else done


def _bar(job: Job) -> str | None:
    given = job.directives
    if job.iteration is None or not given or not given.max_iterations:
        return None
    done = round(BAR * min(1.0, job.iteration / given.max_iterations))
    return "#" * done + "." * (BAR - done)


def _quantity(job: Job) -> str:
    return job.quantity if job.value is not None else "loss"


def _number(job: Job) -> str | None:
    """The value, with its iteration where that is not the job's last one: 0.93@7."""
    if not job.quantities:
        return None
    name = _quantity(job)
    value, at = job.quantities.get(name), job.reported_at.get(name)
    if value is None:
        return None
    return f"{value:.4g}" + ("" if at is None or at == job.iteration else f"@{at:.0f}")


def _value(job: Job) -> str | None:
    number = _number(job)
    return None if number is None else f"{_quantity(job)} {number}"


def _final(job: Job) -> str | None:
    final = job.final
    if final.value is None or final.low is None or final.high is None:
        return None
    return f"{final.value:.4g} ({final.low:.4g} to {final.high:.4g})"


def _time_left(job: Job) -> float | None:
    return None if job.time_limit is None else job.time_limit - job.elapsed


def _start(job: Job) -> float | None:
    if not job.waits:
        return job.started
    outlook = job.outlook
    return job.expected if outlook is None or outlook.start is None else max(outlook.start, job.seen)


def _of_outlook(name: str) -> Callable[[Job], float | None]:
    """A value of the forecast of the queue of a job that waits."""

    def value(job: Job) -> float | None:
        outlook = job.outlook if job.waits else None
        found = None if outlook is None else getattr(outlook, name)
        return None if found is None else max(found, job.seen)

    return value


def _forecast_at(job: Job) -> float | None:
    outlook = job.outlook if job.waits else None
    return None if outlook is None or outlook.start is None else job.forecast_at


def _nodes_or_reason(state: str, reason: str, node_list: str) -> str:
    return f"({reason})" if state in WAITING else node_list


def _terms(job: Job) -> Value:
    return job.ranking.terms if job.ranking else {}


def _rank(entry: QueueEntry) -> int | None:
    return entry.rank


def _doing(entry: QueueEntry) -> str:
    return entry.doing


def _code(state: str) -> str:
    return _CODES.get(state, state)


OF_ENTRIES: tuple[Field[Any], ...] = (
    Field("Position", "integer", 5, "its rank among the ranked pending jobs, 1 first", _rank),
    Field("Doing", "text", 60, "what is being done to it, or would be", _doing, left=True),
)
"""The fields of a `QueueEntry`; all others are of its job."""
FIELDS: dict[str, Field[Any]] = {
    field.name.lower(): field
    for field in (
        *acct.FIELDS,
        *OF_ENTRIES,
        Field("StateCompact", "text", 2, "squeue's code of its state", OfFacts(_code, ("state",))),
        Field("Iteration", "text", 13, "iterations done, of how many; the trial, if several", _progress),
        Field("Judged", "text", 24, "the value by which it is judged, else its loss", _value, left=True),
        Field("JudgedValue", "text", 10, "the number of Judged", _number),
        Field("FinalRange", "text", 26, "Final, with its 90 % interval", _final, left=True),
        Field("Progress", "text", BAR, "the share of its iterations, as a bar", _bar, left=True),
        Field("Chance", "text", 13, "whether its deadline can be met", deadlines.chance),
        Field(
            "ReasonList",
            "text",
            20,
            "its nodes, or why it waits",
            OfFacts(_nodes_or_reason, ("state", "reason", "node_list")),
            left=True,
        ),
        Field("StartTime", "time", 19, "when it started, or is expected to", _start, "N/A"),
        Field(
            "StartLow",
            "time",
            19,
            "of a job that waits, the 10 % quantile of its start",
            _of_outlook("start_low"),
        ),
        Field("StartHigh", "time", 19, "its 90 % quantile", _of_outlook("start_high")),
        Field("EndTime", "time", 19, "when it is expected to end", deadlines.expected_end, "N/A"),
        Field("EndLow", "time", 19, "of a job that waits, the 10 % quantile of its end", _of_outlook("end_low")),
        Field("EndHigh", "time", 19, "its 90 % quantile", _of_outlook("end_high")),
        Field("ForecastAt", "time", 19, "the time of the queue state behind the forecast", _forecast_at),
        Field("TimeLeft", "span", 10, "the rest of its time limit", _time_left, "UNLIMITED"),
        Field("ArrayTasks", "text", 12, "elements of an array that wait together", fact("array_tasks")),
        Field("Dependency", "text", 20, "its --dependency", fact("dependency"), left=True),
        Field("Terms", "text", 0, "the terms of its score", _terms),
    )
}
"""By their names in lower case, as in JSON."""

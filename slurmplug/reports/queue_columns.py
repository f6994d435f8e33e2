"""The fields of the live queue a column at a time: what takes long for many jobs is done for all of them at once.

Whole jobs (`job_view.Job`) are read only of those that have what a field shows, such as a reported value, and of all
where a field is wanted that this module does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from slurmplug.console.table import Field
from slurmplug.directives.parser import Directives
from slurmplug.ledger import queries, queue_forecasts
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.queue_forecasts import Outlook
from slurmplug.ledger.rankings import CycleRankings
from slurmplug.ledger.stored_directives import directives_from
from slurmplug.reports import explain, job_view
from slurmplug.reports.acct import whole
from slurmplug.reports.fact_fields import OfFacts
from slurmplug.reports.job_ranking import JobRanking
from slurmplug.reports.job_view import expected_start, leaving_rule, recent, run_time
from slurmplug.reports.live_order import LiveQueue
from slurmplug.reports.predicted_value import UNPREDICTED, PredictedValue


class QueuedJob(NamedTuple):
    """A live job, with what the fields of `_OF_QUEUED` ask of a `Job`: the same names, the same values."""

    waits: bool
    seen: float
    started: float | None
    elapsed: float
    time_limit: float | None
    directives: Directives | None
    expected: float | None
    outlook: Outlook | None
    forecast_at: float | None
    remaining: PredictedValue

    @property
    def live(self) -> bool:
        """Always."""
        return True


_OF_QUEUED = frozenset({
    "allowdowngrade", "chance", "deadline", "elapsed", "elapsedraw", "endhigh", "endlow", "endtime", "expected",
    "forecastat", "gpurange", "maxiterations", "mljob", "problems", "remaining", "remaininghigh", "remaininglow",
    "requiretarget", "seen", "start", "starthigh", "startlow", "starttime", "stopat", "target", "timeleft",
    "trialstorun", "type", "urgency",
})  # fmt: skip
"""The fields whose `value` takes a `QueuedJob`."""
_QUEUED_READS = ("start", "suspended", "last_seen", "time_limit", "directives")
_OF_REPORTS = frozenset({
    "accuracy", "accuracyat", "iteration", "iterations", "judged", "judgedvalue", "loss", "lossat", "progress", "trial",
    "value", "valueat",
})  # fmt: skip
"""None of a job that has reported nothing."""
_OF_FINAL = frozenset({"final", "finalhigh", "finallow", "finalrange"})
"""None of a job whose final value is not forecast."""
_LEFT_READS = ("given_back", "in_doubt", "directives")


def reads(names: Iterable[str], fields: Mapping[str, Field[Any]]) -> list[str] | None:
    """The columns of the ledger's jobs that these fields need; None where they need whole jobs."""
    wanted: dict[str, None] = {}
    for name in names:
        value = fields[name].value
        if isinstance(value, OfFacts):
            needed: Sequence[str] = value.facts
        elif name in _OF_QUEUED:
            needed = _QUEUED_READS
        elif name in _OF_REPORTS:
            needed = ("first_iteration",)
        elif name in _COLUMNS:
            needed = _COLUMNS[name][0]
        elif name in _OF_FINAL:
            needed = ()
        else:
            return None
        wanted.update(dict.fromkeys(needed))
    return list(wanted)


class QueueColumns:
    """The values of the fields for which `reads` tells the columns."""

    def __init__(
        self, ledger: LedgerFile, rankings: CycleRankings, queue: LiveQueue, fields: Mapping[str, Field[Any]]
    ) -> None:
        """queue: with these columns."""
        self._ledger, self._rankings, self._fields = ledger, rankings, fields
        self.queue = queue
        self.read = queue.columns

    def values(self, name: str) -> list[Any]:
        """The values of a field, by its name in JSON."""
        value = self._fields[name].value
        if isinstance(value, OfFacts):
            return value.of_column(self.read)
        if name in _OF_QUEUED:
            return list(map(value, self._queued))
        if name in _COLUMNS:
            return _COLUMNS[name][1](self)
        chosen = self._reporting if name in _OF_REPORTS else self._final
        found: list[Any] = [None] * len(self.queue.rows)
        for place, row in chosen:
            if row in self._whole:
                found[place] = value(self._whole[row])
        return found

    def _ranked(self, column: Mapping[int, Any]) -> list[Any]:
        """A column of the last cycle's rankings."""
        return list(map(column.__getitem__, self.queue.rows))

    @cached_property
    def _reporting(self) -> list[tuple[int, int]]:
        """The places and rows of the jobs that have reported."""
        firsts = self.read.get("first_iteration", ())
        return [(place, self.queue.rows[place]) for place, first in enumerate(firsts) if first is not None]

    @cached_property
    def _final(self) -> list[tuple[int, int]]:
        """The places and rows of the jobs whose final value is forecast."""
        finals = self._ranked(self._rankings.forecasts["final"])
        return [(place, self.queue.rows[place]) for place, final in enumerate(finals) if final is not None]

    @cached_property
    def _whole(self) -> dict[int, job_view.Job]:
        """These jobs, by row."""
        rows = list(dict.fromkeys(row for _, row in (*self._reporting, *self._final)))
        return {job.row: job for job in job_view.jobs_in_rows(self._ledger, rows)}

    @cached_property
    def directives(self) -> list[Directives | None]:
        """Those in force."""
        return list(map(directives_from, self.read["directives"]))

    @cached_property
    def left_to_slurm_by(self) -> list[str]:
        """As `Job.left_to_slurm_by`."""
        rules, backs = self._ranked(self._rankings.columns["spared"]), self.read["given_back"]
        return [
            leaving_rule(bool(back), rule, unread=directives is None or bool(doubt)) if back or rule else ""
            for back, rule, directives, doubt in zip(backs, rules, self.directives, self.read["in_doubt"], strict=True)
        ]

    @cached_property
    def _queued(self) -> list[QueuedJob]:
        waits = self.queue.waits
        cycle = self._rankings.started or 0.0
        seen = [max(last, cycle) for last in self.read["last_seen"]]
        started = [None if wait else start for wait, start in zip(waits, self.read["start"], strict=True)]
        elapsed = list(map(run_time, started, seen, self.read["suspended"]))
        starts = self._ranked(self._rankings.forecasts["start"])
        expected = [
            None if start is None else expected_start(start, at, waits=wait)
            for start, at, wait in zip(starts, seen, waits, strict=True)
        ]
        outlooks, forecast_at = self._outlooks(seen)
        names = ("remaining", "remaining_low", "remaining_high")
        forecasts = (self._ranked(self._rankings.forecasts[name]) for name in names)
        remaining = [
            UNPREDICTED if value is None else PredictedValue(value, low, high)
            for value, low, high in zip(*forecasts, strict=True)
        ]
        limits = self.read["time_limit"]
        return list(
            map(
                QueuedJob, waits, seen, started, elapsed, limits, self.directives, expected, outlooks, forecast_at,
                remaining,
            )
        )  # fmt: skip

    def _outlooks(self, seen: Sequence[float]) -> tuple[list[Outlook | None], list[float | None]]:
        """What the last forecast of the queue says of each job, and when the queue was as that goes by."""
        rows, forecast = self.queue.rows, queue_forecasts.last(self._ledger)
        if forecast is None:
            return [None] * len(rows), [None] * len(rows)
        outlooks = [
            None if outlook is None else recent(outlook, at - forecast.at, waits=wait)
            for outlook, at, wait in zip(forecast.of_each(rows), seen, self.queue.waits, strict=True)
        ]
        return outlooks, [None if outlook is None else forecast.at for outlook in outlooks]

    def scores(self) -> list[float | None]:
        """As `Job.score`."""
        scores = self._ranked(self._rankings.columns["rank"])
        return [None if rule else score for rule, score in zip(self.left_to_slurm_by, scores, strict=True)]

    def priorities(self) -> list[int | float | None]:
        """Slurm's own."""
        return list(map(whole, self._ranked(self._rankings.columns["priority"])))

    def terms(self) -> list[dict[str, float]]:
        """What each score adds up."""
        return list(map(self._rankings.terms, self.queue.rows))

    def doing(self) -> list[str]:
        """What is being done to each job, or why nothing is."""
        actions = actions_in(self._ledger)
        told = {rule: explain.left_to_slurm(rule, None) for rule in set(self.left_to_slurm_by)}
        found = [told[rule] for rule in self.left_to_slurm_by]
        backs = self.read["given_back"]
        for place, row in enumerate(self.queue.rows):
            if row in actions:
                found[place] = actions[row]
            elif self._rankings.note(row) is not None and not backs[place]:
                note = JobRanking(self._rankings, row, others=True).note
                found[place] = explain.left_to_slurm(self.left_to_slurm_by[place], note)
        return found


def actions_in(ledger: LedgerFile) -> dict[int, str]:
    """What is being done to jobs, or would be, by their rows."""
    doing = {action.job: explain.forbidden(action) for action in queries.forbidden_actions(ledger)}
    return doing | {step.job: explain.open_step(step) for step in queries.open_steps(ledger)}


_COLUMNS: Mapping[str, tuple[Sequence[str], Callable[[QueueColumns], list[Any]]]] = {
    "position": ((), lambda columns: list(columns.queue.ranks)),
    "doing": (_LEFT_READS, QueueColumns.doing),
    "rank": (_LEFT_READS, QueueColumns.scores),
    "priority": ((), QueueColumns.priorities),
    "terms": ((), QueueColumns.terms),
    "label": (("label",), lambda columns: list(map(whole, columns.read["label"]))),
}
"""Other fields, each with the columns of the ledger's jobs that it needs, and how it is made."""

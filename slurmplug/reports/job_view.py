"""A job as the reports show it: one value a job, with all that the ledger has about it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from policies.mlfs.load_control import NOT_FINITE_REPORTS
from policies.snapshot import JobKey
from slurmplug.console.table import ordinal
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import NO_DIRECTIVES, JobRecord, JudgedBy, is_managed, judged_by
from slurmplug.ledger import job_rows, queries, queue_forecasts
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.queue_forecasts import OLDEST, KeptForecast, Outlook
from slurmplug.ledger.selection import WAITING, Selection
from slurmplug.ledger.sqlite import Row
from slurmplug.ledger.stored_directives import directives_from
from slurmplug.reports.job_ranking import JobRanking
from slurmplug.reports.predicted_value import UNPREDICTED, PredictedValue
from slurmplug.rules.guardrails import GivenBack, Unmanaged
from slurmplug.spool.trials import Trial

NOT_READ = "script not read"
"""The rule of a job that is not managed since its script was not read, so that its directives, or which job it is, are
not known."""


NOTHING: Mapping[str, float] = MappingProxyType({})


class Job:
    """One job. `row`: its row in the ledger; `facts`: Slurm's; `ranking`: in the last cycle, None if that did not have
    the job; `columns`: those of the ledger. What takes long is read from these only when it is asked for."""

    first: float | None
    """the lowest iteration that it ever reported"""
    quantities: Mapping[str, float] = NOTHING
    """the last value of each, which may be NaN or infinite"""
    reported_at: Mapping[str, float] = NOTHING
    """the iteration of each of these, counted as `iteration`"""
    _outlook: Outlook | Literal["not read"] | None = "not read"
    _left_to_slurm_by: str | None = None
    _record: JobRecord | None = None
    _judgement: JudgedBy | None = None
    _elapsed: float | None = None
    _remaining: PredictedValue | None = None
    _final: PredictedValue | None = None

    def __init__(
        self, columns: Mapping[str, Any], ranking: JobRanking | None, forecast: KeptForecast | None = None
    ) -> None:
        """columns: as `queries.jobs` returns them. forecast: the last one of the queue."""
        self.row: int = columns["id"]
        self.columns = columns
        self.facts: JobFacts = columns["facts"]
        self.directives = directives_from(columns["directives"])
        self.ranking = ranking
        self.seen: float = columns["seen"]
        """when it was last seen"""
        self.waits: bool = self.facts.state in WAITING
        """whether it is pending, in any of Slurm's ways"""
        self.first = columns["first_iteration"]
        if self.first is not None:
            before = self._before
            self.quantities = {name: float(value) for name, value in columns["quantities"].items()}
            self.reported_at = {name: at + before for name, at in columns["quantities_at"].items()}
        self._kept_forecast = forecast

    @property
    def record(self) -> JobRecord:
        """All that the ledger has of it, without its points; of a job that was read whole."""
        if self._record is None:
            self._record = self.record_with(())
        return self._record

    def record_with(self, points: Iterable[Row]) -> JobRecord:
        """The same with these of its points (`job_rows.record_from_row`)."""
        return job_rows.record_from_row({**self.columns, **self.facts._asdict()}, points)

    @property
    def key(self) -> JobKey:
        """What it is."""
        return JobKey(self.columns["cluster"], self.facts.job_id, self.columns["first_submit"])

    @property
    def given_back(self) -> bool:
        """Whether an operator excluded it."""
        return bool(self.columns["given_back"])

    @property
    def managed(self) -> bool:
        """Whether slurmplug may act on it."""
        return is_managed(bool(self.facts.batch), self.directives, in_doubt=bool(self.columns["in_doubt"]))

    @property
    def stop(self) -> str:
        """The rule of its stop, or empty."""
        return self.columns["stop"] or ""

    @property
    def predicted(self) -> PredictedValue:
        """Its run time in seconds, when it was first seen."""
        return PredictedValue(*(self.columns[name] for name in ("predicted", "predicted_low", "predicted_high")))

    @property
    def foreseen(self) -> PredictedValue:
        """Its final value, by the last prediction before half of its iterations were done, else by the first after."""
        columns = self.columns
        if columns["foreseen"] is None:
            return UNPREDICTED
        value = PredictedValue(columns["foreseen"], columns["foreseen_low"], columns["foreseen_high"])
        return value.signed(self.sign)

    @property
    def foreseen_at(self) -> float | None:
        """The iterations done when that was predicted."""
        at: float | None = self.columns["foreseen_at"]
        return at

    @property
    def iteration(self) -> float | None:
        """The last one reported, counted from 1 also where the program counts from 0."""
        last = None if self.first is None else self.columns["iteration"]
        return None if last is None else last + self._before

    @property
    def checkpoint(self) -> float | None:
        """The iteration of its last checkpoint, counted the same way."""
        at = self.columns["checkpoint"]
        return None if at is None else at + self._before

    @property
    def site_factor(self) -> float | None:
        """The SiteFactor in place, None where not known."""
        factor: float | None = self.columns["label"]
        return factor

    @property
    def trials(self) -> list[Trial]:
        """The trainings that it has reported."""
        stored = self.columns["trials"]
        return [] if stored == "[]" else [Trial(name, began) for name, began in json.loads(stored)]

    @property
    def trial_number(self) -> int:
        """The number of its present trial, from 0."""
        number: int = self.columns["trial"]
        return number

    @property
    def several_trials(self) -> bool:
        """Whether it trains several models."""
        trials = self.trials
        return len(trials) > 1 or any(trial.name for trial in trials)

    @property
    def _before(self) -> int:
        return int(self.first == 0)

    @property
    def id(self) -> str:
        """Its id as squeue shows it."""
        return self.facts.shown_id

    @property
    def live(self) -> bool:
        """Whether it had not ended when last seen."""
        return self.facts.live

    @property
    def started(self) -> float | None:
        """When this run started. Slurm's field is something else for a pending job (when it might start) and for one
        that was cancelled while pending (when that was)."""
        facts = self.facts
        never = not facts.live and not facts.node_list and facts.start == facts.end
        return None if self.waits or never else facts.start

    @property
    def expected(self) -> float | None:
        """When Slurm expects to start it; None unless the job waits and that time is in the future."""
        return expected_start(self.ranking.forecast("start") if self.ranking else None, self.seen, waits=self.waits)

    @property
    def time_limit(self) -> float | None:
        """In seconds; None for no limit."""
        return self.facts.time_limit

    @property
    def outlook(self) -> Outlook | None:
        """What the last forecast of the queue says of it; None where that is too old, or of when it did not wait yet or
        still waited."""
        if self._outlook == "not read":
            forecast = self._kept_forecast
            known = forecast.of(self.row) if self.ranking is not None and forecast is not None else None
            self._outlook = None if forecast is None else recent(known, self.seen - forecast.at, waits=self.waits)
        return self._outlook

    @property
    def forecast_at(self) -> float | None:
        """When the queue was as that goes by, in seconds since the epoch; None without one."""
        return None if self._kept_forecast is None or self.outlook is None else self._kept_forecast.at

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds since the epoch; None while it lives."""
        return None if self.live else self.facts.end

    @property
    def elapsed(self) -> float:
        """Seconds of this run, as sacct has them: without those in which it was suspended."""
        if self._elapsed is None:
            self._elapsed = run_time(self.started, self.seen if self.live else self.ended, self.facts.suspended)
        return self._elapsed

    @property
    def waited(self) -> float:
        """Seconds eligible and pending, in this run and those before it."""
        facts = self.facts
        until = self.started if self.started is not None else self.seen if self.live else self.ended
        last = max(0.0, until - facts.eligible) if facts.eligible is not None and until is not None else 0.0
        before: float = self.columns["waited_before"]
        return before + last

    @property
    def trial(self) -> str | None:
        """The present one of several trials, by its name, else as 3rd; None for a job with one."""
        if self.first is None or not self.several_trials:
            return None
        return self.trials[self.trial_number].name or ordinal(self.trial_number + 1)

    @property
    def value(self) -> float | None:
        """The last value of the quantity by which it is judged."""
        return self.quantities.get(self.quantity) if self.quantities else None

    @property
    def value_at(self) -> float | None:
        """The iteration of `value`."""
        return self.reported_at.get(self.quantity) if self.reported_at else None

    @property
    def diverged(self) -> bool:
        """Whether its training has diverged: it was stopped for that, or its last losses are NaN or infinite."""
        not_finite = self.columns.get("not_finite")
        if not not_finite:
            return self.stop == "diverged"
        quantity = "loss" if "loss" in self.quantities else self.quantity
        return self.stop == "diverged" or not_finite.get(quantity, 0) >= NOT_FINITE_REPORTS

    @property
    def quantity(self) -> str:
        """The quantity by which it is judged."""
        return self._judged_by.quantity

    @property
    def sign(self) -> float:
        """-1 where that quantity is better when lower."""
        return self._judged_by.sign

    @property
    def _judged_by(self) -> JudgedBy:
        if self._judgement is None:
            self._judgement = judged_by(self.directives or NO_DIRECTIVES, self.quantities)
        return self._judgement

    @property
    def score(self) -> float | None:
        """The policy's score, higher first; None where only Slurm decides."""
        return None if self.ranking is None or self.left_to_slurm_by else self.ranking.score

    @property
    def left_to_slurm_by(self) -> str:
        """The rule by which only Slurm decides about it, or empty."""
        if self._left_to_slurm_by is None:
            rule = self.ranking.protected_by if self.ranking else ""
            unread = self.directives is None or bool(self.columns["in_doubt"])
            self._left_to_slurm_by = leaving_rule(self.given_back, rule, unread)
        return self._left_to_slurm_by

    @property
    def remaining(self) -> PredictedValue:
        """The run time left, in seconds."""
        if self._remaining is None:
            self._remaining = self._forecast("remaining")
        return self._remaining

    @property
    def final(self) -> PredictedValue:
        """The quantity of its target after its last iteration."""
        if self._final is None:
            final = self._forecast("final")
            self._final = final if final is UNPREDICTED else final.signed(self.sign)
        return self._final

    @property
    def reach(self) -> float | None:
        """The probability that its value after the last iteration meets its target."""
        return self.ranking.forecast("reach") if self.ranking else None

    @property
    def saved(self) -> float | None:
        """Iterations that a stop saved."""
        most = self.directives.max_iterations if self.directives else None
        if not self.stop or not most or self.iteration is None:
            return None
        return max(0.0, most - self.iteration)

    @property
    def did_all(self) -> bool:
        """Whether it reported its value after all its iterations, so that this is the final one. One may be missing
        where the first reported iteration was a later one, as the job may count from 0."""
        most = self.directives.max_iterations if self.directives else None
        if self.value is None or self.iteration is None or self.value_at != self.iteration or not most:
            return False
        return self.iteration >= most - int((self.first or 0.0) > 1)

    def _forecast(self, name: str) -> PredictedValue:
        ranking = self.ranking
        if ranking is None or (value := ranking.forecast(name)) is None:
            return UNPREDICTED
        return PredictedValue(value, ranking.forecast(f"{name}_low"), ranking.forecast(f"{name}_high"))


def jobs(ledger: LedgerFile, which: Selection, *, others: bool = True, whole: bool = False) -> list[Job]:
    """The jobs in order of id, the elements of an array together.

    Args:
        others: whether facts about other jobs are shown
        whole: with all that `Job.record` needs

    Raises:
        LedgerError
        UsageError: more than `which.most` jobs match.
    """
    return _ranked(ledger, queries.jobs(ledger, which, whole=whole), others=others)


def jobs_in_rows(ledger: LedgerFile, rows: Sequence[int], *, others: bool = True) -> list[Job]:
    """The jobs in these rows of the ledger, in their order. Raises LedgerError."""
    return _ranked(ledger, queries.jobs_in_rows(ledger, rows), others=others)


def _ranked(ledger: LedgerFile, found: Iterable[Row], *, others: bool) -> list[Job]:
    rankings, forecast = queries.cycle_rankings(ledger), queue_forecasts.last(ledger)
    ranked_rows = rankings.jobs if rankings else ()
    return [
        Job(
            columns,
            JobRanking(rankings, columns["id"], others=others) if rankings and columns["id"] in ranked_rows else None,
            forecast,
        )
        for columns in found
    ]


def expected_start(start: float | None, seen: float, *, waits: bool) -> float | None:
    """When Slurm expects to start a job, by what it said; None unless that is in the future and the job waits."""
    return start if waits and start is not None and start > seen else None


def run_time(started: float | None, until: float | None, suspended: float) -> float:
    """Seconds of a run up to a time, without those in which it was suspended."""
    return 0.0 if started is None or until is None else max(0.0, until - started - suspended)


def recent(outlook: Outlook | None, age: float, *, waits: bool) -> Outlook | None:
    """What a forecast of the queue says of a job, unless it is too old, or the job waited then and does not any more,
    or the other way round. age: seconds from when the queue was so to when the job was last seen."""
    return outlook if outlook is not None and age <= OLDEST and outlook.waits == waits else None


def leaving_rule(given_back: bool, rule: str, unread: bool) -> str:
    """The rule by which only Slurm decides about a job, or empty. `rule`: that of the last cycle."""
    if given_back:
        return GivenBack.rule
    return NOT_READ if rule == Unmanaged.rule and unread else rule

"""A job as the reports show it: one value a job, with all that the ledger has about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from policies.mlfs.load_control import NOT_FINITE_REPORTS
from policies.plan import Reason
from slurmplug.console.table import ordinal
from slurmplug.intake.job_record import NO_DIRECTIVES, JobRecord, JudgedBy, judged_by
from slurmplug.ledger import queries, rows
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import WAITING, Selection
from slurmplug.rules.guardrails import GivenBack, Unmanaged

NOT_READ = "script not read"
"""The rule of a job that is not managed since its script was not read, so that its directives, or which job it is, are
not known."""


class PredictedValue(NamedTuple):
    """A prediction and the ends of its 90 % interval; None where nothing was predicted."""

    value: float | None
    low: float | None
    high: float | None

    def signed(self, sign: float) -> "PredictedValue":
        """With the job's own sign: predictors get the negative of a quantity that is better when lower (sign -1)."""
        if sign > 0 or self.value is None or self.low is None or self.high is None:
            return self
        return PredictedValue(-self.value, -self.high, -self.low)

    def holds(self, actual: float | None) -> bool | None:
        """Whether the actual value lies in the interval; None where either is not known."""
        if actual is None or self.low is None or self.high is None:
            return None
        return self.low <= actual <= self.high


@dataclass(frozen=True)
class JobRanking:
    """How the last cycle ranked a job. `score`: the policy's, higher first; `allowed`: whether it may be written
    to Slurm; `protected_by`: the rule by which only Slurm decides, or empty; `terms`: what the score adds up; `note`:
    what the policy found wrong."""

    cycle: int
    score: float | None
    allowed: bool
    protected_by: str
    priority: float | None
    terms: Mapping[str, float]
    forecast: Mapping[str, Any]
    note: Reason | None


@dataclass(frozen=True)
class Job:
    """One job. `row`: its row in the ledger; `record`: without the points; `quantities`: the last value of each, which
    may be NaN or infinite; `reported_at`: the iteration of each of these, counted as `iteration`."""

    row: int
    record: JobRecord
    seen: float
    given_back: bool
    predicted: PredictedValue
    """its run time in seconds, when it was first seen"""
    foreseen: PredictedValue
    """its final value, by the last prediction before half of its iterations were done, else by the first one after"""
    foreseen_at: float | None
    """the iterations done when that was predicted"""
    stop: str
    iteration: float | None
    """the last one reported, counted from 1 also where the program counts from 0"""
    checkpoint: float | None
    """the iteration of its last checkpoint, counted the same way"""
    quantities: Mapping[str, float]
    reported_at: Mapping[str, float]
    ranking: JobRanking | None
    """in the last cycle; None if that cycle did not have the job"""
    columns: Mapping[str, Any] = field(compare=False, repr=False)
    """the ledger's columns: the endpoint sends these, and its client makes the job again by `from_columns`"""

    @property
    def id(self) -> str:
        """Its id as squeue shows it."""
        return self.record.facts.shown_id

    @property
    def live(self) -> bool:
        """Whether it had not ended when last seen."""
        return self.record.facts.live

    @property
    def waits(self) -> bool:
        """Whether it is pending, in any of Slurm's ways."""
        return self.record.facts.state in WAITING

    @property
    def started(self) -> float | None:
        """When this run started. Slurm's field is something else for a pending job (when it might start) and for one
        that was cancelled while pending (when that was)."""
        facts = self.record.facts
        never = not facts.live and not facts.node_list and facts.start == facts.end
        return None if self.waits or never else facts.start

    @property
    def expected(self) -> float | None:
        """When Slurm expects to start it; None unless the job waits and that time is in the future."""
        start = self.ranking.forecast.get("start") if self.ranking and self.waits else None
        return start if start is not None and start > self.seen else None

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds since the epoch; None while it lives."""
        return None if self.live else self.record.facts.end

    @property
    def elapsed(self) -> float:
        """Seconds of this run."""
        until = self.seen if self.live else self.ended
        return max(0.0, until - self.started) if self.started is not None and until is not None else 0.0

    @property
    def waited(self) -> float:
        """Seconds eligible and pending, in this run and those before it."""
        facts = self.record.facts
        until = self.started if self.started is not None else self.seen if self.live else self.ended
        last = max(0.0, until - facts.eligible) if facts.eligible is not None and until is not None else 0.0
        return self.record.waited_before + last

    @property
    def trial(self) -> str | None:
        """The present one of several trials, by its name, else as 3rd; None for a job with one."""
        points = self.record.points
        if not points.several:
            return None
        return points.trials[points.trial].name or ordinal(points.trial + 1)

    @property
    def value(self) -> float | None:
        """The last value of the quantity by which it is judged."""
        return self.quantities.get(self.quantity)

    @property
    def value_at(self) -> float | None:
        """The iteration of `value`."""
        return self.reported_at.get(self.quantity)

    @property
    def diverged(self) -> bool:
        """Whether its training has diverged: it was stopped for that, or its last losses are NaN or infinite."""
        not_finite = self.columns.get("not_finite") or {}
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
        return judged_by(self.record.directives or NO_DIRECTIVES, self.quantities)

    @property
    def score(self) -> float | None:
        """The policy's score, higher first; None where only Slurm decides."""
        return None if self.ranking is None or self.left_to_slurm_by else self.ranking.score

    @property
    def left_to_slurm_by(self) -> str:
        """The rule by which only Slurm decides about it, or empty."""
        if self.given_back:
            return GivenBack.rule
        rule = self.ranking.protected_by if self.ranking else ""
        unread = self.record.directives is None or self.record.in_doubt
        return NOT_READ if rule == Unmanaged.rule and unread else rule

    @property
    def remaining(self) -> PredictedValue:
        """The run time left, in seconds."""
        return self._forecast("remaining")

    @property
    def final(self) -> PredictedValue:
        """The quantity of its target after its last iteration."""
        return self._forecast("final").signed(self.sign)

    @property
    def reach(self) -> float | None:
        """The probability that its value after the last iteration meets its target."""
        return self.ranking.forecast.get("reach") if self.ranking else None

    @property
    def saved(self) -> float | None:
        """Iterations that a stop saved."""
        most = self.record.directives.max_iterations if self.record.directives else None
        if not self.stop or not most or self.iteration is None:
            return None
        return max(0.0, most - self.iteration)

    @property
    def did_all(self) -> bool:
        """Whether it reported its value after all its iterations, so that this is the final one. One may be missing
        where the first reported iteration was a later one, as the job may count from 0."""
        most = self.record.directives.max_iterations if self.record.directives else None
        if self.value is None or self.iteration is None or self.value_at != self.iteration or not most:
            return False
        return self.iteration >= most - int(self.record.points.first > 1)

    def _forecast(self, name: str) -> PredictedValue:
        found = self.ranking.forecast if self.ranking else {}
        return PredictedValue(found.get(name), found.get(f"{name}_low"), found.get(f"{name}_high"))


def jobs(ledger: Ledger, which: Selection) -> list[Job]:
    """The jobs in order of id, the elements of an array together.

    Raises:
        LedgerError
        UsageError: more than `which.most` jobs match.
    """
    return [from_columns(columns) for columns in queries.jobs(ledger, which)]


def from_columns(columns: Mapping[str, Any]) -> Job:
    """A job, made from its columns as `queries.jobs` returns them."""
    record = rows.record_from_row(dict(columns), ())
    before = int(record.points.first == 0)
    checkpoint = record.points.checkpoint
    quantities = {name: float(value) for name, value in columns["quantities"].items()}
    sign = judged_by(record.directives or NO_DIRECTIVES, quantities).sign
    return Job(
        row=columns["id"],
        record=record,
        seen=columns["seen"],
        given_back=bool(columns["given_back"]),
        predicted=PredictedValue(columns["predicted"], columns["predicted_low"], columns["predicted_high"]),
        foreseen=PredictedValue(columns["foreseen"], columns["foreseen_low"], columns["foreseen_high"]).signed(sign),
        foreseen_at=columns["foreseen_at"],
        stop=columns["stop"] or "",
        iteration=None if columns["iteration"] is None else columns["iteration"] + before,
        checkpoint=None if checkpoint != checkpoint else checkpoint + before,
        quantities=quantities,
        reported_at={name: at + before for name, at in columns["quantities_at"].items()},
        ranking=_ranking(columns) if columns["cycle"] is not None else None,
        columns=columns,
    )


def ranked(queue: Iterable[Job]) -> list[Job]:
    """The pending jobs that slurmplug ranks, the first to go first."""
    waiting = [job for job in queue if job.waits and job.score is not None]
    return sorted(waiting, key=lambda job: (-(job.score or 0.0), job.record.key.first_submit, job.record.key.job_id))


def _ranking(columns: Mapping[str, Any]) -> JobRanking:
    note = columns["note"]
    return JobRanking(
        cycle=columns["cycle"],
        score=columns["rank"],
        allowed=bool(columns["allowed"]),
        protected_by=columns["spared"],
        priority=columns["priority"],
        terms=columns["terms"],
        forecast=columns["forecast"],
        note=Reason(note["rule"], rows.facts_from(note["facts"])) if note else None,
    )

"""The live queue as `slurmplug queue` and `slurmplug prio` show it: the rank of each job, and their columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurmplug.console import table, times
from slurmplug.console.table import Field, Value, ordinal, printable
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import LIVE_STATE_CODES, Selection
from slurmplug.reports import explain, job_view
from slurmplug.reports.job_view import Job

BAR = 10


@dataclass(frozen=True)
class QueueEntry:
    """A job in the queue. `rank`: its place among the ranked pending jobs, from 1. `doing`: what is being done to it,
    or would be."""

    job: Job
    rank: int | None
    doing: str


def queue_view(ledger: Ledger, which: Selection) -> list[QueueEntry]:
    """The live jobs of this selection: those that run, those that are ranked in order, and the rest by id."""
    everything = job_view.jobs(ledger, Selection(live=True))
    ranks = {job.row: rank for rank, job in enumerate(job_view.ranked(everything), start=1)}
    narrow = replace(which, most=0) != Selection(live=True)
    shown = job_view.jobs(ledger, which) if narrow else everything
    doing = {action.job: explain.forbidden(action) for action in queries.forbidden_actions(ledger)}
    doing |= {step.job: explain.open_step(step) for step in queries.open_steps(ledger)}
    entries = [QueueEntry(job, ranks.get(job.row), doing.get(job.row) or _left_to_slurm(job)) for job in shown]
    return sorted(entries, key=_order)


def _left_to_slurm(job: Job) -> str:
    ranking = job.ranking
    return explain.left_to_slurm(job.left_to_slurm_by, note=ranking.note if ranking and not job.given_back else None)


def _order(entry: QueueEntry) -> tuple[bool, float, float, int]:
    job = entry.job
    score = job.score if job.score is not None else float("-inf")
    return job.waits, entry.rank or float("inf"), -score, job.record.key.job_id


def _progress(entry: QueueEntry) -> str | None:
    job = entry.job
    if job.iteration is None:
        return None
    given, points = job.record.directives, job.record.points
    done = f"{job.iteration:.0f}/{given.max_iterations}" if given and given.max_iterations else f"{job.iteration:.0f}"
    return f"{ordinal(points.trial + 1)}: {done}" if points.several else done


def _bar(entry: QueueEntry) -> str | None:
    given = entry.job.record.directives
    if entry.job.iteration is None or not given or not given.max_iterations:
        return None
    done = round(BAR * min(1.0, entry.job.iteration / given.max_iterations))
    return "#" * done + "." * (BAR - done)


def _value(entry: QueueEntry) -> str | None:
    job = entry.job
    number = _number(entry)
    return None if number is None else f"{_quantity(job)} {number}"


def _quantity(job: Job) -> str:
    return job.quantity if job.value is not None else "loss"


def _final(entry: QueueEntry) -> str | None:
    final = entry.job.final
    if final.value is None or final.low is None or final.high is None:
        return None
    return f"{final.value:.4g} ({final.low:.4g} to {final.high:.4g})"


def _deadline(entry: QueueEntry) -> Value:
    given = entry.job.record.directives
    return given.deadline if given else None


def _score(entry: QueueEntry) -> Value:
    return entry.job.score


def _priority(entry: QueueEntry) -> Value:
    return entry.job.ranking.priority if entry.job.ranking else None


def _site_factor(entry: QueueEntry) -> Value:
    site_factor = entry.job.record.site_factor
    return None if site_factor != site_factor else int(site_factor)


_CODES = {name: code for code, name in LIVE_STATE_CODES.items()} | {
    "COMPLETING": "CG", "CONFIGURING": "CF", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "RESV_DEL_HOLD": "RD",
    "SIGNALING": "SI", "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
"""squeue(1), JOB STATE CODES."""


def _code(entry: QueueEntry) -> str:
    state = entry.job.record.facts.state
    return _CODES.get(state, state)


def _number(entry: QueueEntry) -> str | None:
    """The value, with its iteration where that is not the job's last one: 0.93@7."""
    job = entry.job
    name = _quantity(job)
    value, at = job.quantities.get(name), job.reported_at.get(name)
    if value is None:
        return None
    return f"{value:.4g}" + ("" if at is None or at == job.iteration else f"@{at:.0f}")


def _day(entry: QueueEntry) -> str | None:
    at = _deadline(entry)
    return None if at is None else times.format_day(float(at), entry.job.seen)


QUEUE_FIELDS: tuple[Field[QueueEntry], ...] = (
    Field("RANK", "integer", 5, "among the ranked pending jobs, 1 first", lambda e: e.rank),
    Field("JOBID", "text", 14, "", lambda e: e.job.id, left=True),
    Field("USER", "text", 12, "", lambda e: e.job.record.facts.user, left=True),
    Field("NAME", "text", 20, "", lambda e: e.job.record.facts.name, left=True),
    Field("STATE", "text", 10, "", lambda e: e.job.record.facts.state, left=True),
    Field("GPUS", "integer", 5, "", lambda e: e.job.record.facts.gpus),
    Field("ITERATION", "text", 13, "reached, of how many; of which trial, if it reports several", _progress),
    Field(
        "VALUE",
        "text",
        24,
        "by which it is judged, else its loss; @ an earlier iteration",
        _value,
        left=True,
    ),
    Field("SCORE", "number", 12, "the policy's, higher first", _score),
    Field("LEFT", "span", 11, "run time left, predicted", lambda e: e.job.remaining.value),
    Field("START", "time", 19, "when Slurm expects it to start", lambda e: e.job.expected),
    Field("AT LEAST", "span", 11, "its 5 % quantile", lambda e: e.job.remaining.low),
    Field("AT MOST", "span", 11, "its 95 % quantile", lambda e: e.job.remaining.high),
    Field("FINAL", "text", 26, "value after the last iteration, predicted, with its 90 % interval", _final, left=True),
    Field("PROGRESS", "text", BAR, "", _bar, left=True),
    Field("DEADLINE", "time", 19, "", _deadline),
    Field("DOING", "text", 60, "what is being done to it, or would be", lambda e: e.doing, left=True),
)
_NARROWER: tuple[tuple[int, Mapping[str, Field[QueueEntry] | None]], ...] = (
    (60, {"START": None, "AT LEAST": None, "AT MOST": None, "FINAL": None}),
    (30, {"PROGRESS": None}),
    (20, {"SCORE": None}),
    (20, {"NAME": Field("NAME", "text", 8, "", lambda e: e.job.record.facts.name, left=True)}),
    (20, {"USER": Field("USER", "text", 8, "", lambda e: e.job.record.facts.user, left=True)}),
    (20, {"STATE": Field("ST", "text", 4, "", _code, left=True)}),
    (20, {"DEADLINE": Field("DEADLINE", "text", 11, "", _day, left=True)}),
    (20, {"ITERATION": Field("ITER", "text", 13, "", _progress)}),
    (12, {"VALUE": Field("VALUE", "text", 10, "", _number)}),
    (8, {"VALUE": None}),
    (0, {"USER": None}),
    (0, {"GPUS": None}),
)
"""How the table is narrowed, step by step, until so many terminal columns are left for the last field."""
_PRIO_FIRST: tuple[Field[QueueEntry], ...] = (
    Field("RANK", "integer", 5, "among the ranked pending jobs, 1 first", lambda e: e.rank),
    Field("JOBID", "text", 14, "", lambda e: e.job.id, left=True),
    Field("USER", "text", 12, "", lambda e: e.job.record.facts.user, left=True),
)
_PRIO_LONG: tuple[Field[QueueEntry], ...] = (
    Field("ACCOUNT", "text", 12, "", lambda e: e.job.record.facts.account, left=True),
    Field("PARTITION", "text", 12, "", lambda e: e.job.record.facts.partition, left=True),
    Field("QOS", "text", 10, "", lambda e: e.job.record.facts.qos, left=True),
    Field("SITEFACTOR", "integer", 11, "the SiteFactor in place", _site_factor),
    Field("PRIORITY", "integer", 10, "Slurm's own", _priority),
)


def queue_fields(entries: Sequence[QueueEntry], width: int) -> list[Field[QueueEntry]]:
    """The columns of `queue` for a terminal of `width` columns: the least important are left out, the last is cut."""
    *fields, last = table.fit_widths(QUEUE_FIELDS, entries)
    for wanted, less in _NARROWER:
        if sum(field.width + 1 for field in fields) + min(last.width, wanted) <= width:
            break
        kept = [less.get(field.name, field) for field in fields]
        fields = table.fit_widths([field for field in kept if field is not None], entries)
    room = width - sum(field.width + 1 for field in fields)
    return [*fields, replace(last, width=min(last.width, room))] if room >= len(last.name) else fields


def prio_fields(entries: Sequence[QueueEntry], *, long: bool) -> list[Field[QueueEntry]]:
    """The columns of `prio`: rank, score, and each term of the score in the order of the policy."""
    score: Field[QueueEntry] = Field("SCORE", "number", 12, "", _score)
    return [*_PRIO_FIRST, *(_PRIO_LONG if long else ()), score, *map(_term, _terms(entries))]


def term_names(entries: Sequence[QueueEntry]) -> list[str]:
    """The names of the columns of the terms."""
    return [_term(name).name for name in _terms(entries)]


def _terms(entries: Sequence[QueueEntry]) -> Sequence[str]:
    return list(dict.fromkeys(name for entry in entries if entry.job.ranking for name in entry.job.ranking.terms))


def _term(name: str) -> Field[QueueEntry]:
    def value(entry: QueueEntry) -> Value:
        return entry.job.ranking.terms.get(name) if entry.job.ranking else None

    return Field(printable(name).upper(), "number", 12, "", value)

"""The live queue as slurmplug sees it: who stands where, and what is done or would be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurmplug.console import table, times
from slurmplug.console.table import Field, Value, printable
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports import job_view as reports
from slurmplug.reports.job_view import Job, Selection

BAR = 10


@dataclass(frozen=True)
class Entry:
    """A job in the queue. `position`: among the pending jobs that are ranked, from 1. `doing`: what is done to it, or
    would be."""

    job: Job
    position: int | None
    doing: str


def queue(ledger: Ledger, which: Selection) -> list[Entry]:
    """The live jobs of this selection: those that run, those that are ranked in order, and the rest by id."""
    everything = reports.jobs(ledger, Selection(live=True))
    places = {job.row: place for place, job in enumerate(reports.ranked(everything), start=1)}
    narrow = replace(which, most=0) != Selection(live=True)
    shown = reports.jobs(ledger, which) if narrow else everything
    doing = _doing(ledger)
    entries = [Entry(job, places.get(job.row), doing.get(job.row) or _left_alone(job)) for job in shown]
    return sorted(entries, key=_order)


def _order(entry: Entry) -> tuple[bool, float, float, int]:
    job = entry.job
    rank = job.rank if job.rank is not None else float("-inf")
    return job.waits, entry.position or float("inf"), -rank, job.record.key.job_id


def _doing(ledger: Ledger) -> dict[int, str]:
    """By the job's row: the step of its open operation, or what was decided in the last cycle and not let through."""
    wanted = {row["job"]: _unlived(row) for row in ledger.query(_DECIDED)}
    return wanted | {
        row["job"]: f"{printable(row['kind'])} ({printable(row['rule'])}): {_STEPS.get(row['step'], row['step'])}"
        for row in ledger.query("SELECT job, kind, rule, step FROM operations WHERE step != 'ended' ORDER BY opened")
    }


def _unlived(row: Mapping[str, Any]) -> str:
    mode = json.loads(row["veto_facts"]).get("mode")
    veto = f"mode {mode}" if mode else row["veto"]
    return f"would {printable(row['kind'])} ({printable(row['rule'])}), but {printable(veto)}"


def _left_alone(job: Job) -> str:
    if job.given_back:
        return "Slurm's (given back)"
    if job.standing and job.standing.note is not None:
        return printable(job.standing.note.rule)
    return f"Slurm's ({printable(job.standing.spared)})" if job.standing and job.standing.spared else ""


def _progress(entry: Entry) -> str | None:
    job = entry.job
    if job.iteration is None:
        return None
    given = job.record.directives
    return f"{job.iteration:.0f}/{given.max_iterations}" if given and given.max_iterations else f"{job.iteration:.0f}"


def _bar(entry: Entry) -> str | None:
    given = entry.job.record.directives
    if entry.job.iteration is None or not given or not given.max_iterations:
        return None
    done = round(BAR * min(1.0, entry.job.iteration / given.max_iterations))
    return "#" * done + "." * (BAR - done)


def _value(entry: Entry) -> str | None:
    job = entry.job
    name = job.record.quantity if job.value is not None else "loss"
    value = job.quantities.get(name)
    return None if value is None else f"{name} {value:.4g}"


def _final(entry: Entry) -> str | None:
    final = entry.job.final
    if final.value is None or final.low is None or final.high is None:
        return None
    return f"{final.value:.4g} ({final.low:.4g} to {final.high:.4g})"


def _deadline(entry: Entry) -> Value:
    given = entry.job.record.directives
    return given.deadline if given else None


def _rank(entry: Entry) -> Value:
    return entry.job.rank


def _priority(entry: Entry) -> Value:
    return entry.job.standing.priority if entry.job.standing else None


def _label(entry: Entry) -> Value:
    label = entry.job.record.label
    return None if label != label else int(label)


_CODES = {name: code for code, name in reports.LIVE_STATES.items()} | {
    "COMPLETING": "CG", "CONFIGURING": "CF", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "RESV_DEL_HOLD": "RD",
    "SIGNALING": "SI", "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
"""squeue(1), JOB STATE CODES."""


def _code(entry: Entry) -> str:
    state = entry.job.record.facts.state
    return _CODES.get(state, state)


def _number(entry: Entry) -> str | None:
    named = _value(entry)
    return None if named is None else named.rpartition(" ")[2]


def _day(entry: Entry) -> str | None:
    at = _deadline(entry)
    return None if at is None else times.day(float(at), entry.job.seen)


QUEUE: tuple[Field[Entry], ...] = (
    Field("POS", "integer", 5, "position among the ranked pending jobs", lambda e: e.position),
    Field("JOBID", "text", 14, "", lambda e: e.job.id, left=True),
    Field("USER", "text", 12, "", lambda e: e.job.record.facts.user, left=True),
    Field("NAME", "text", 20, "", lambda e: e.job.record.facts.name, left=True),
    Field("STATE", "text", 10, "", lambda e: e.job.record.facts.state, left=True),
    Field("GPUS", "integer", 5, "", lambda e: e.job.record.facts.gpus),
    Field("ITERATION", "text", 13, "reached, of how many", _progress),
    Field("VALUE", "text", 24, "of its target's quantity, else its loss", _value, left=True),
    Field("RANK", "number", 12, "", _rank),
    Field("LEFT", "span", 11, "run time left, predicted", lambda e: e.job.remaining.value),
    Field("START", "time", 19, "when Slurm expects it to start", lambda e: e.job.expected),
    Field("AT LEAST", "span", 11, "its 5 % quantile", lambda e: e.job.remaining.low),
    Field("AT MOST", "span", 11, "its 95 % quantile", lambda e: e.job.remaining.high),
    Field("FINAL", "text", 26, "value after the last iteration, predicted, with its 90 % interval", _final, left=True),
    Field("PROGRESS", "text", BAR, "", _bar, left=True),
    Field("DEADLINE", "time", 19, "", _deadline),
    Field("DOING", "text", 60, "what is done to it, or would be", lambda e: e.doing, left=True),
)
_NARROWER: tuple[tuple[int, Mapping[str, Field[Entry] | None]], ...] = (
    (60, {"START": None, "AT LEAST": None, "AT MOST": None, "FINAL": None}),
    (30, {"PROGRESS": None}),
    (20, {"RANK": None}),
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
"""What a terminal does without next, or gets in a narrower form, where so much of the last column does not fit."""
_PRIO_FIRST: tuple[Field[Entry], ...] = (
    Field("POS", "integer", 5, "", lambda e: e.position),
    Field("JOBID", "text", 14, "", lambda e: e.job.id, left=True),
    Field("USER", "text", 12, "", lambda e: e.job.record.facts.user, left=True),
)
_PRIO_LONG: tuple[Field[Entry], ...] = (
    Field("ACCOUNT", "text", 12, "", lambda e: e.job.record.facts.account, left=True),
    Field("PARTITION", "text", 12, "", lambda e: e.job.record.facts.partition, left=True),
    Field("QOS", "text", 10, "", lambda e: e.job.record.facts.qos, left=True),
    Field("SITEFACTOR", "integer", 11, "the label in place", _label),
    Field("PRIORITY", "integer", 10, "Slurm's own", _priority),
)


def fitting(entries: Sequence[Entry], width: int) -> list[Field[Entry]]:
    """The columns of the queue for a terminal of that many: the least important ones give way, the last is cut."""
    *fields, last = table.as_wide_as_needed(QUEUE, entries)
    for wanted, less in _NARROWER:
        if sum(field.width + 1 for field in fields) + min(last.width, wanted) <= width:
            break
        kept = [less.get(field.name, field) for field in fields]
        fields = table.as_wide_as_needed([field for field in kept if field is not None], entries)
    room = width - sum(field.width + 1 for field in fields)
    return [*fields, replace(last, width=min(last.width, room))] if room >= len(last.name) else fields


def prio_fields(entries: Sequence[Entry], *, long: bool) -> list[Field[Entry]]:
    """The rank and each of its terms, in the order of the policy."""
    rank: Field[Entry] = Field("RANK", "number", 12, "", _rank)
    return [*_PRIO_FIRST, *(_PRIO_LONG if long else ()), rank, *map(_term, _terms(entries))]


def term_names(entries: Sequence[Entry]) -> list[str]:
    """What the columns of the terms are called."""
    return [_term(name).name for name in _terms(entries)]


def _terms(entries: Sequence[Entry]) -> Sequence[str]:
    return list(dict.fromkeys(name for entry in entries if entry.job.standing for name in entry.job.standing.terms))


def _term(name: str) -> Field[Entry]:
    def value(entry: Entry) -> Value:
        return entry.job.standing.terms.get(name) if entry.job.standing else None

    return Field(printable(name).upper(), "number", 12, "", value)


_STEPS = {"ask": "asked", "signal": "signalled", "cancel": "cancelled", "withdraw": "taken back"}
_DECIDED = """
SELECT decisions.* FROM decisions
WHERE verdict IN ('vetoed', 'notice') AND veto != 'placement'
    AND last_cycle = (SELECT max(cycle) FROM standing) ORDER BY last
"""
"""Where Slurm places the jobs, that a policy would have is told by their rank."""

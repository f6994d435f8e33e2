"""What a job requests in sentences: its directives, those that are ignored, and how they were changed since."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.directives.changes import Change, in_force
from slurmplug.directives.parser import NAMES, Directives, Problem
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import job_rows
from slurmplug.ledger.sqlite import Row
from slurmplug.reports.job_view import Job

if TYPE_CHECKING:
    from slurmplug.ledger.directive_changes import ChangedJobs

MOST_CHANGES = 10
"""The most changes that are told, the last ones."""
MOST_JOBS = 20
"""The most jobs that are named of those that one request changed."""


def sentences(job: Job, coming: Sequence[Row]) -> Iterator[str]:
    """What is in force and what of it was changed. `coming`: `JobAudit.changes`."""
    record = job.record
    yield from given_sentences(record.directives)
    if len(record.changes) > MOST_CHANGES:
        yield f"Changed {counted(len(record.changes), 'time')}; the last changes are these."
    for number in range(max(0, len(record.changes) - MOST_CHANGES), len(record.changes)):
        yield _made(record, number)
    for change in job_rows.changes_from(coming):
        when = "from the next cycle on" if job.live else "too late: the job ended before that took effect"
        yield f"{_by(change)} {_given(change)}, {when}."


def changed_sentences(changed: "ChangedJobs", interval: float) -> list[str]:
    """What a request changed, for its author. `interval`: seconds from one cycle to the next."""
    named = ", ".join(changed.jobs[:MOST_JOBS])
    others = len(changed.jobs) - MOST_JOBS
    jobs = f"{'job' if len(changed.jobs) == 1 else 'jobs'} {named}{f' and {others} more' if others > 0 else ''}"
    told = [f"{jobs}: {_given(changed.change)}, from the next cycle on (at most {interval:g} s from now)"]
    if changed.stopping:
        told.append(f"left as they are, since they are being stopped: {', '.join(changed.stopping[:MOST_JOBS])}")
    return told


def _made(record: JobRecord, number: int) -> str:
    """The change of that number, with what was in force before it."""
    change = record.changes[number]
    submitted = record.submitted_directives or Directives()
    before, after = (in_force(submitted, record.changes[:count]) for count in (number, number + 1))
    now = [f"{_text(name, after)} ({_before(name, before)})" for name in change.names]
    return f"{_by(change)} {', '.join(now)}."


def _by(change: Change) -> str:
    return f"Changed {times.format_time(change.at)} by {printable(change.user)}:"


def _given(change: Change) -> str:
    return ", ".join(
        f"{_option(name)} as submitted" if name in change.taken_back else _text(name, change.given)
        for name in change.names
    )


def _text(name: str, directives: Directives) -> str:
    value = getattr(directives, name)
    return f"no {_option(name)}" if value is None else f"{_option(name)}={_directive(name, value)}"


def _before(name: str, directives: Directives) -> str:
    value = getattr(directives, name)
    return "none before" if value is None else f"{_directive(name, value)} before"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def given_sentences(given: Directives | None) -> Iterator[str]:
    """The valid directives, and those that are ignored, each in a sentence."""
    if given is None:
        yield "Its script has not been read yet."
        return
    valid = [
        f"--{name.replace('_', '-')}={_directive(name, getattr(given, name))}"
        for name in NAMES
        if getattr(given, name) is not None
    ]
    yield f"{', '.join(valid)}." if valid else "Nothing valid." if given.problems else "Nothing."
    for problem in map(str, sorted(given.problems, key=_in_order)):
        yield f"Ignored: {problem}{'' if problem.endswith('?') else '.'}"


def _in_order(problem: Problem) -> tuple[bool, int]:
    """Sort key: by line, the comment first; the count of further problems comes last."""
    return problem.rule == "more", problem.line


def _directive(name: str, value: Any) -> str:
    if name == "deadline":
        return times.format_time(value)
    if name == "target":
        return f"{value.quantity}{value.relation}{value.value:g}"
    if name == "gpus":
        return f"{value.least}..{value.most}" if value.most > value.least else str(value.least)
    if name == "checkpoint":
        how = f"{value.signal}:{value.way}" if value.signal else "file"
        return how if value.grace is None else f"{how}@{value.grace:g}"
    if name == "utility":
        return f"{value.worth:g},{value.steepness:g},{value.target:g}"
    return f"{value:g}" if isinstance(value, float) else printable(str(value))

"""Models of learnt policies as `status` and `policy list` show them: what they did, and how they were evaluated."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.ledger import model_outcomes, policy_models
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.model_outcomes import ModelRecord
from slurmplug.ledger.policy_models import Decided, ModelEvaluation, ModelEvent
from slurmplug.reports.viewer import Viewer, shown_error

_ROLES: tuple[Literal["acting", "shadow"], ...] = ("acting", "shadow")
_WHY: Mapping[str, str] = {
    "worse outcomes": "its jobs took {took:.2f} times as long as was forecast of them (the {jobs:.0f} that ended), and "
    "{took_before:.2f} times before it ({jobs_before:.0f}); by chance with a probability of {p:.1g}",
    "not followed": "it could not be followed in {cycles} cycles of an hour, the last time: {last_error}",
    "by the site's rule": "its mean JCT is shorter by {gain:.1%} at least on every workload, and it decided without an "
    "error in {cycles} cycles in shadow",
}
"""Sentences of the reasons of decisions by rule, from their evidence."""


def not_compared(configured: str, ended: int, needed: int) -> str:
    """Says that a promoted model cannot be compared yet: too few jobs have ended under the configured policy."""
    return (
        f"Its outcomes cannot be compared with those before it: {ended} jobs that {configured} ranked while a model "
        f"was in shadow have ended, and {needed} are needed. "
        "Only cycles in which it cannot be followed end its promotion. "
        "`slurmplug policy shadow` before a promotion provides them."
    )


def failed_in_shadow(done: ModelRecord) -> str:
    """Says that a model, now promoted, could not be followed in some of its cycles in shadow."""
    return (
        f"In shadow it had an error in {done.errors} of {counted(done.cycles, 'cycle')}, "
        f"in which it could not have been followed; the last: {printable(done.last_error)}."
    )


def in_charge(ledger: LedgerFile, now: float, viewer: Viewer) -> list[dict[str, Any]]:
    """The model that acts and the one in shadow, as JSON has them."""
    found = []
    for role in _ROLES:
        if (kept := policy_models.in_role(ledger, role)) is not None:
            given = policy_models.events(ledger, kept.digest)[-1].decided
            done = model_outcomes.record(ledger, kept.digest, role)
            figures = done._replace(last_error=shown_error(done.last_error, viewer))._asdict()
            takes = model_outcomes.outcomes(ledger, kept.digest, now) if role == "acting" else None
            jobs = {"jobs": int(takes.ended.sum()), "took": _known(takes.typical)} if takes else {}
            found.append(
                {"model": kept.digest, "policy": kept.policy, "role": role, "by": given.by, "at": given.at}
                | figures
                | jobs
            )
    return found


def in_charge_lines(models: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of `status`."""
    for each in models:
        acts = each["role"] == "acting"
        name = printable(f"{each['policy']} {each['model'][:12]}")
        since = f"by {printable(each['by'])}, {times.format_time(each['at'])}"
        yield f"model       {name} {'promoted' if acts else 'in shadow'} ({since})"
        decided = counted(each["cycles"], "cycle")
        failed = f", {'not followed' if acts else 'with an error'} in {each['errors']}" if each["errors"] else ""
        yield f"            {decided}{failed}{_figures(each)}"
        if each["errors"]:
            yield f"            last: {printable(each['last_error'])}"


def _figures(each: Mapping[str, Any]) -> str:
    if each["role"] == "acting":
        took = "" if each["took"] is None else f", which took {each['took']:.2f} times as long as was forecast of them"
        return f"; {counted(each['jobs'], 'job')} ended{took}"
    told = [
        text.format(each[name])
        for name, text in (
            ("ranks", "rank correlation {:.2f}"),
            ("actions", "{:.0%} of the actions the same"),
            ("gain", "mean time to the end forecast to be shorter by {:.1%}"),
        )
        if each[name] is not None
    ]
    return "".join(f"; {text}" for text in told)


def event_line(told: ModelEvent) -> str:
    """One thing that happened to a model."""
    by, at = told.decided.by, told.decided.at
    why = reason(told.decided)
    return f"{times.format_time(at)}  {told.event} by {printable(by)}{': ' if why else ''}{why}"


def reason(decided: Decided) -> str:
    """Why a model was given its role: a sentence with the figures, where a rule decided."""
    known = decided.reason in _WHY and decided.evidence
    return printable(_WHY[decided.reason].format(**decided.evidence) if known else decided.reason)


def evaluation_lines(made: ModelEvaluation) -> Iterator[str]:
    """By how much a model and the policy differ on one workload."""
    by = f"by {printable(made.by)}, {times.format_time(made.at)}"
    yield f"evaluated against {printable(made.against)} on {printable(made.workload)}, {made.cluster} ({by})"
    for name, of in made.figures.items():
        if name == policy_models.FOLLOWED:
            continue
        before, after, change, low, high = (of[key] for key in ("before", "after", "change", "low", "high"))
        if None in (before, after, change):
            continue
        interval = "no interval" if None in (low, high) else f"{low:+.1%} to {high:+.1%} with 95%, {of['seeds']} pairs"
        yield f"  {printable(name):<22} {before:>12.6g} {after:>12.6g}  {change:+.1%} ({interval})"
    share = made.figures.get(policy_models.FOLLOWED, {}).get("after")
    if share is not None:
        others = "" if share == 1.0 else ". In the others it was not followed, as it would not be on the live cluster"
        yield f"  The model decided in {share:.1%} of the cycles{others}."


def not_followed(policy: str, seed: int, errors: Sequence[str]) -> Iterator[str]:
    """Says in how many cycles of a simulation a policy was not followed, and why in the last of them; nothing where it
    always was. errors: of each cycle, empty where it was followed."""
    found = [each for each in errors if each]
    if found:
        cycles = f"{len(found)} of {counted(len(errors), 'cycle')}"
        yield f"{printable(policy)}, seed {seed}: not followed in {cycles}; the last: {printable(found[-1])}"


def _known(value: float) -> float | None:
    return None if value != value else value

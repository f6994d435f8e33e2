"""`slurmplug why` in sentences: what a job requested and reported, its predictions, its rank, the actions on it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from policies.plan import Reason
from policies.snapshot import JobKey
from slurmplug.console import times
from slurmplug.console.table import counted, ordinal, printable
from slurmplug.ledger.queries import JobAudit, LastCycle
from slurmplug.reports import explain, not_done, requested
from slurmplug.reports.acct import exit_code
from slurmplug.reports.explain import About
from slurmplug.reports.job_view import Job
from slurmplug.reports.predictions import predictions
from slurmplug.reports.viewer import QueuePlace
from slurmplug.rules.guardrails import SET_BY_OTHERS
from slurmplug.spool.json_lines import UNMATCHED

_STEPS = {
    "ask": "a stop was requested, by a file that its report() checks for",
    "signal": "it was sent the signal that it declared",
    "save": "a checkpoint was requested, by a file that its checkpoint_requested() checks for",
    "reserve": "its nodes were reserved",
    "requeue": "it was requeued",
    "settle": "it waited for its last run to end",
    "rewrite": "its resource request was changed",
    "confirm": "it waited to start with the new request",
    "watch": "it ran again, and its first report had to go on from its checkpoint",
    "undo": "its resource request was changed back",
    "free": "it was taken out of the reservation",
    "unreserve": "the reservation was deleted",
    "bound": "its required or excluded nodes are cleared when it is pending again",
    "lift": "its required or excluded nodes were cleared",
    "hold": "it was held, as an operator holds a job",
    "release": "it was released",
    "cancel": "it was cancelled, as it did not stop by itself",
    "withdraw": "the request was withdrawn",
}
_SILENT = frozenset({"settle", "confirm", "watch", "bound"})
"""The steps in which no command is sent."""


@dataclass(frozen=True)
class Paragraph:
    """Some sentences under a heading."""

    about: str
    sentences: tuple[str, ...]


def explain_job(
    job: Job,
    place: QueuePlace | None,
    cycle: LastCycle | None,
    audit: JobAudit,
    sees: Callable[[JobKey], bool],
    *,
    no_sizes: str,
) -> list[Paragraph]:
    """The whole explanation. `place`: among the jobs that the last cycle ranked. `sees`: whether the reader sees
    another job; only those are named. `no_sizes`: as `not_done.sentences`."""
    vetoes = {decision["veto"] for decision in audit.decisions}
    unmatched = any(each["rule"] == UNMATCHED for each in audit.faults)
    about = About(job.quantity, job.sign, sees)
    paragraphs = [
        Paragraph("Job", tuple(_introduction(job))),
        Paragraph("Requested", tuple(requested.sentences(job, audit.changes))),
        Paragraph("Reported", (*_reported(job), *_earlier_trials(job, audit.trials))),
        Paragraph(
            "Not done, and why",
            tuple(not_done.sentences(job, cycle.modes if cycle else {}, vetoes, no_sizes, unmatched=unmatched)),
        ),
        Paragraph("Predicted", tuple(predictions(job))),
        Paragraph("Rank", tuple(_rank(job, place, cycle, about))),
        Paragraph("Actions", tuple(sentence for _, sentence in sorted(_actions(audit, about), key=itemgetter(0)))),
        Paragraph("Script", tuple(_faults((each for each in audit.faults if each["rule"] == "script"), about))),
        Paragraph(
            "Reports not believed",
            tuple(_faults((each for each in audit.faults if each["rule"] not in ("script", UNMATCHED)), about)),
        ),
    ]
    return [paragraph for paragraph in paragraphs if paragraph.sentences]


def _introduction(job: Job) -> Iterator[str]:
    facts, key = job.facts, job.key
    where = f" on {printable(facts.node_list)}" if facts.node_list else ""
    yield (
        f"Job {job.id}, '{printable(facts.name)}' of {printable(facts.user)} (account {printable(facts.account)}, "
        f"partition {printable(facts.partition)}), requests {counted(facts.gpus, 'GPU')}: {facts.state}{where}."
    )
    limit, waited, elapsed = map(times.format_duration, (facts.time_limit, job.waited, job.elapsed))
    ran = f", {'has run' if job.live else 'ran'} for {elapsed}" if job.started is not None else ""
    may = f"may run for {limit}" if facts.time_limit is not None else "has no time limit"
    again = f", was requeued {counted(facts.restarts, 'time')}" if facts.restarts else ""
    yield f"It was submitted {times.format_time(key.first_submit)}, waited {waited}{ran}, {may}{again}."
    if job.ended is not None:
        status = f", with exit code {exit_code(facts.exit_code)}" if facts.exit_code else ""
        yield f"It ended {times.format_time(job.ended)}{status}."
    if job.waits and facts.reason not in {"", "None"}:
        yield f"Slurm's reason why it waits: {printable(facts.reason)}."
    if job.expected is not None:
        expected = times.format_time(job.expected)
        yield f"Slurm expects to start it {expected}, if the jobs ahead use all of their time limits."


def _reported(job: Job) -> Iterator[str]:
    if job.iteration is None:
        if job.started is not None:
            yield (
                "Nothing yet: does its training loop call report()?"
                if job.live
                else "Nothing: its training loop did not call report(), or its reports could not be read."
            )
        return
    given = job.directives
    most = f" of {given.max_iterations}" if given and given.max_iterations else ""
    trial = f" of its {_trial(job, job.trial_number)}" if job.several_trials else ""
    yield f"Iteration {job.iteration:.15g}{most}{trial}{_values(job.quantities, job.reported_at, job.iteration)}."
    if job.diverged:
        yield "Its training has diverged."
    if job.checkpoint is not None:
        yield f"Its last checkpoint holds iteration {job.checkpoint:.15g}."
    if job.saved:
        yield f"{counted(round(job.saved), 'iteration')} {'was' if job.saved == 1 else 'were'} saved."


def _values(quantities: Mapping[str, float], reported_at: Mapping[str, float], iteration: float) -> str:
    """The last values, each with its iteration where that is not this last one."""
    values = (
        f"{name} {value:.4g}{_earlier(reported_at.get(name, iteration), iteration)}"
        for name, value in quantities.items()
    )
    listed = ", ".join(values)
    return f": {listed}" if listed else ""


def _earlier(at: float, iteration: float) -> str:
    return "" if at == iteration else f" at iteration {at:.15g}"


def _trial(job: Job, number: int) -> str:
    """A trial by its place and its name, such as: 3rd trial ('fold 2')."""
    name = job.trials[number].name
    return f"{ordinal(number + 1)} trial" + (f" ('{printable(name)}')" if name else "")


def _earlier_trials(job: Job, trials: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from_0 = int(job.first == 0)
    for trial in trials:
        iteration = f"iteration {trial['iteration'] + from_0:.15g}"
        values = {name: float(value) for name, value in trial["quantities"].items()}
        at = {name: number + from_0 for name, number in trial["quantities_at"].items()}
        said = _values(values, at, trial["iteration"] + from_0)
        yield f"Before, its {_trial(job, trial['trial'])} came to {iteration}{said}."


def _rank(job: Job, place: QueuePlace | None, cycle: LastCycle | None, about: About) -> Iterator[str]:
    ranking = job.ranking
    if not job.live:
        yield "Not ranked: the job has ended."
        return
    if ranking is None:
        yield "Not ranked: the last cycle did not see the job."
        return
    if ranking.note is not None and not job.given_back:
        yield f"{explain.sentence(ranking.note, about)}."
    if rule := job.left_to_slurm_by:
        yield f"Left to Slurm. {explain.sentence(Reason(rule, _protection_facts(rule, job)), about)}."
        return
    if ranking.score is not None:
        yield from _score(job, ranking.score, place)
    if cycle is not None:
        yield from _not_in_effect(job, cycle)


def _protection_facts(rule: str, job: Job) -> Mapping[str, float]:
    if rule != SET_BY_OTHERS:
        return {}
    return {"job": job.facts.job_id, "site_factor": math.nan if job.site_factor is None else job.site_factor}


def _score(job: Job, score: float, place: QueuePlace | None) -> Iterator[str]:
    """Its rank and score, and the jobs next to it."""
    terms = " + ".join(f"{name} {value:.4g}" for name, value in _terms(job).items() if value)
    rank = f"Rank {place.rank} of {place.of} pending jobs, by a score of" if place is not None else "A score of"
    yield f"{rank} {score:.5g}{' = ' if terms else ''}{terms}."
    if place is None:
        return
    for ahead in place.ahead:
        yield _ahead(job, ahead) if ahead is not None else f"Ahead of it: {explain.HIDDEN}."
    yield from _slurms_order(job, place)


def _ahead(job: Job, other: Job) -> str:
    score = other.score or 0.0
    return f"Ahead of it: job {other.id} of {printable(other.facts.user)}, score {score:.5g}{_lead(job, other)}."


def _lead(job: Job, other: Job) -> str:
    """The term of the score by which the other job is furthest ahead, in words."""
    mine, theirs = _terms(job), _terms(other)
    lead = {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in {**mine, **theirs}}
    most = max(lead, key=lambda name: lead[name], default="")
    if most and lead[most] > 0:
        values = [f"{terms.get(most, 0.0):.4g}" for terms in (theirs, mine)]
        if values[0] == values[1]:
            return ", ahead by very little"
        return f", ahead most by {explain.term(most)} ({' against '.join(values)})"
    return ", which was submitted first" if other.score == job.score else ""


def _terms(job: Job) -> Mapping[str, float]:
    return job.ranking.terms if job.ranking else {}


def _slurms_order(job: Job, place: QueuePlace) -> Iterator[str]:
    """How Slurm orders the job: by its own priority, of which the SiteFactor is one part."""
    own = job.ranking.priority if job.ranking else None
    site_factor = job.site_factor
    factor = "not known" if site_factor is None else f"{site_factor:.0f}"
    yield f"Its SiteFactor is {factor}" + (f", its priority in Slurm {own:.0f}." if own is not None else ".")
    if place.above:
        has = "has" if place.above == 1 else "have"
        yield f"{counted(place.above, 'pending job')} without a rank {has} a higher priority in Slurm."
    if place.overtaken_by:
        yield (
            f"Slurm's priority puts {counted(place.overtaken_by, 'job')} of lower rank ahead of it, as it also counts "
            "fairshare, age, size, partition and QOS."
        )


def _not_in_effect(job: Job, cycle: LastCycle) -> Iterator[str]:
    """Why what was decided in the last cycle was not carried out."""
    if cycle.error:
        yield f"In the last cycle the {printable(cycle.error)}."
    if cycle.frozen:
        yield f"No commands were sent in the last cycle. {explain.sentence(Reason(cycle.frozen))}."
    mode = cycle.modes.get("rank") or cycle.modes.get("default")
    if job.waits and mode and mode != "act":
        yield f"The rank is not written to Slurm: the mode for ranks is {mode}."
    elif job.waits and job.ranking and not job.ranking.allowed:
        yield "The rank is not written to Slurm: an operator paused slurmplug."


def _actions(audit: JobAudit, about: About) -> Iterator[tuple[float, str]]:
    """Sentences on what was decided and done, each with its time."""
    for decision in audit.decisions:
        if sentence := _decision(decision, about):
            yield decision["first"], sentence
    for operation in audit.operations:
        yield from _operation(operation, audit, about)
    written = [command for command in audit.commands if not command["operation"]]
    if written:
        last = written[-1]
        values = ", ".join(f"{name} {value}" for name, value in last["fields"].items())
        yield (
            last["at"],
            f"{times.format_time(last['at'])}: its priority was written, {counted(len(written), 'time')} in all, last "
            f"{printable(values)}: {_outcome(last)}.",
        )


def _decision(decision: Mapping[str, Any], about: About) -> str:
    """A decision of a guardrail or an operator in words; empty for actions that were carried out, as their operation is
    shown, and for placements left to Slurm, which the ranks show."""
    if decision["verdict"] == "allowed" or (decision["kind"], decision["veto"]) == ("place", "placement"):
        return ""
    reason = explain.sentence(_reason(decision), about)
    if decision["verdict"] == "done":
        return f"{_when(decision)}: {reason}; its SiteFactor was set to 0."
    veto = explain.sentence(Reason(decision["veto"], decision["veto_facts"]), about)
    result = "Notice only" if decision["verdict"] == "notice" else "Not done"
    return f"{_when(decision)}: {_rule(decision)}. {reason}. {result}: {_lower(veto)}."


def _operation(operation: Mapping[str, Any], audit: JobAudit, about: About) -> Iterator[tuple[float, str]]:
    reason, opened = _reason(operation), operation["opened"]
    yield opened, f"{times.format_time(opened)}: {_rule(operation)}. {explain.sentence(reason, about)}."
    if background := explain.background(reason):
        yield opened, f"{background}."
    commands = [command for command in audit.commands if command["operation"] == operation["id"]]
    for step in audit.steps:
        if step["operation"] == operation["id"] and step["step"] != "ended":
            yield step["at"], f"{times.format_time(step['at'])}: {_step(step, commands)}."
    if operation["step"] == "ended":
        ended = operation["since"]
        yield ended, f"{times.format_time(ended)}: finished: {printable(operation['result'])}."


def _step(step: Mapping[str, Any], commands: Iterable[Mapping[str, Any]]) -> str:
    """A step in words, and the outcome of its commands."""
    name = step["step"]
    text = _STEPS.get(name, printable(name))
    if name in _SILENT:
        return text
    outcomes = [_outcome(each) for each in commands if each["id"].startswith(f"{step['operation']}-{name}-")]
    return f"{text}: {', '.join(outcomes) or 'not sent yet'}"


def _faults(faults: Iterable[Mapping[str, Any]], about: About) -> Iterator[str]:
    for fault in faults:
        reason = Reason(fault["rule"], {"detail": fault["detail"]} if fault["detail"] else {})
        count, last = counted(fault["count"], "time"), times.format_time(fault["last"])
        yield f"{explain.sentence(reason, about)} ({count}, last {last})."


def _rule(row: Mapping[str, Any]) -> str:
    return f"{printable(row['kind'])}, by the rule {printable(row['rule'])}"


def _reason(row: Mapping[str, Any]) -> Reason:
    return Reason(row["rule"], row["facts"])


def _when(decision: Mapping[str, Any]) -> str:
    first, last = times.format_time(decision["first"]), times.format_time(decision["last"])
    return first if first == last else f"{first} to {last}"


def _outcome(command: Mapping[str, Any]) -> str:
    message = f" ({printable(command['message'])})" if command["message"] else ""
    return f"{command['status']}{message}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]

"""The story of one job, for `slurmplug why`: what it asked, what is predicted, where it stands, what was done to it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from policies.plan import Reason
from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.directives.parser import Directives, Problem
from slurmplug.reports import explain
from slurmplug.reports import predictions as prospects
from slurmplug.reports.acct import exit_code
from slurmplug.reports.explain import About
from slurmplug.reports.job_audit import Deeds
from slurmplug.reports.job_view import Job

AHEAD = 3
"""How many of the jobs before it are named."""
_STEPS = {
    "ask": "it was asked to stop, by a file that its report() looks for",
    "signal": "it was sent the signal that it declared",
    "save": "it was asked for a checkpoint, by a file that its checkpoint_requested() looks for",
    "reserve": "its place was secured by a reservation",
    "requeue": "it was requeued",
    "settle": "it waited for its last run to be over",
    "rewrite": "what it asks for was rewritten",
    "confirm": "it was to start in its place",
    "watch": "it ran, and had to report where it went on",
    "undo": "what it asks for was given back",
    "free": "it left the reservation",
    "unreserve": "the reservation was removed",
    "bound": "nodes that it is kept from or to are let go when it waits again",
    "lift": "nodes that it was kept from or to were let go",
    "hold": "it was held as an operator holds",
    "release": "it was let go",
    "cancel": "it was cancelled, as it did not stop by itself",
    "withdraw": "the request was taken back",
}

_SILENT = frozenset({"settle", "confirm", "watch", "bound"})
"""The steps that say nothing to Slurm."""


@dataclass(frozen=True)
class Paragraph:
    """Some sentences under a heading."""

    about: str
    sentences: tuple[str, ...]


def tell(
    job: Job,
    order: Sequence[Job],
    cycle: Mapping[str, Any] | None,
    deeds: Deeds,
    sees: Callable[[Job], bool] = lambda _: True,
) -> list[Paragraph]:
    """The whole story. `order`: the jobs that the last cycle ranked, the first to go first, `cycle` its row; only jobs
    that the reader `sees` are named."""
    about = About(job.record.quantity, job.record.sign)
    told = [
        Paragraph("Job", tuple(_introduction(job))),
        Paragraph("It asked", tuple(_asked(job.record.directives))),
        Paragraph("It reported", tuple(_reported(job))),
        Paragraph("Predicted", tuple(prospects.predicted(job))),
        Paragraph("It stands", tuple(_standing(job, order, cycle, sees))),
        Paragraph("Done to it", tuple(sentence for _, sentence in sorted(_done(deeds, about), key=itemgetter(0)))),
        Paragraph("Not believed of its reports", tuple(_doubted(deeds.faults))),
    ]
    return [paragraph for paragraph in told if paragraph.sentences]


def as_mapping(paragraphs: Iterable[Paragraph], deeds: Deeds) -> dict[str, Any]:
    """For JSON: the sentences, and the rows that they were made from."""
    return {
        "story": [{"about": each.about, "sentences": list(each.sentences)} for each in paragraphs],
        **deeds.as_mapping(),
    }


def _introduction(job: Job) -> Iterator[str]:
    facts, key = job.record.facts, job.record.key
    where = f" on {printable(facts.node_list)}" if facts.node_list else ""
    yield (
        f"Job {job.id}, '{printable(facts.name)}' of {printable(facts.user)} (account {printable(facts.account)}, "
        f"partition {printable(facts.partition)}), asks for {counted(facts.gpus, 'GPU')}: {facts.state}{where}."
    )
    limit = f"may run for {times.span(facts.time_limit)}" if facts.time_limit is not None else "has no time limit"
    ran = f", {'has run' if job.live else 'ran'} for {times.span(job.elapsed)}" if job.started is not None else ""
    again = f", was requeued {counted(facts.restarts, 'time')}" if facts.restarts else ""
    yield f"It was submitted {times.shown(key.first_submit)}, waited {times.span(job.waited)}{ran}, {limit}{again}."
    if job.ended is not None:
        status = f", with exit code {exit_code(job)}" if facts.exit_code else ""
        yield f"It ended {times.shown(job.ended)}{status}."
    if job.waits and facts.reason not in {"", "None"}:
        yield f"Slurm says that it waits for: {printable(facts.reason)}."
    if job.expected is not None:
        yield f"Slurm expects to start it {times.shown(job.expected)}, if those before it use all of their time limits."


def _asked(given: Directives | None) -> Iterator[str]:
    if given is None:
        yield "Its script has not been read yet."
        return
    said = [
        f"--{name.replace('_', '-')}={_directive(name, getattr(given, name))}"
        for name in given.__dataclass_fields__
        if name != "problems" and getattr(given, name) is not None
    ]
    yield f"{', '.join(said)}." if said else "Nothing that counts." if given.problems else "Nothing."
    for problem in sorted(given.problems, key=_in_order):
        told = str(problem)
        yield f"Not counted: {told}{'' if told.endswith('?') else '.'}"


def _in_order(problem: Problem) -> tuple[bool, int]:
    """By line, the comment first, which was written last; how many more there are comes at the end."""
    return problem.rule == "more", problem.line


def _directive(name: str, value: Any) -> str:
    if name == "deadline":
        return times.shown(value)
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


def _reported(job: Job) -> Iterator[str]:
    if job.iteration is None:
        if job.started is not None:
            yield (
                "Nothing yet: does its training loop call report()?"
                if job.live
                else "Nothing: its training loop did not call report(), or its reports were not read."
            )
        return
    given = job.record.directives
    most = f" of {given.max_iterations}" if given and given.max_iterations else ""
    told = ", ".join(f"{name} {value:.4g}" for name, value in job.quantities.items())
    yield f"Iteration {job.iteration:.15g}{most}{': ' if told else ''}{told}."
    if job.checkpoint is not None:
        yield f"Its last checkpoint holds iteration {job.checkpoint:.15g}."
    if job.saved:
        yield f"{counted(round(job.saved), 'iteration')} {'was' if job.saved == 1 else 'were'} spared."


def _standing(
    job: Job, order: Sequence[Job], cycle: Mapping[str, Any] | None, sees: Callable[[Job], bool]
) -> Iterator[str]:
    stood = job.standing
    if not job.live:
        yield "It has ended, so it stands nowhere."
        return
    if stood is None:
        yield "It was not there in the last cycle."
        return
    if job.given_back:
        yield f"Slurm alone decides about it. {explain.sentence(Reason('given back'))}."
        return
    if stood.note is not None:
        yield f"{explain.sentence(stood.note)}."
    if stood.spared:
        yield f"Slurm alone decides about it. {explain.sentence(Reason(stood.spared))}."
        return
    if stood.rank is not None:
        place = next((n for n, other in enumerate(order) if other.row == job.row), None)
        where = f"It is number {place + 1} of {len(order)} pending jobs, by" if place is not None else "It has"
        parts = [f"{name} {value:.4g}" for name, value in stood.terms.items() if value]
        yield f"{where} a rank of {stood.rank:.5g}{' = ' if parts else ''}{' + '.join(parts)}."
        for ahead in reversed(order[max(0, (place or 0) - AHEAD) : place or 0]):
            yield _ahead(job, ahead) if sees(ahead) else "Before it: a job that Slurm does not show you."
        if place is not None:
            yield from _in_slurm(job, order[place + 1 :])
    if cycle is not None:
        yield from _hindered(job, cycle)


def _ahead(job: Job, other: Job) -> str:
    mine, theirs = _terms(job), _terms(other)
    lead = {name: theirs.get(name, 0.0) - mine.get(name, 0.0) for name in {**mine, **theirs}}
    rank = other.standing.rank if other.standing else None
    most = max(lead, key=lambda name: lead[name], default="")
    told = [f"{terms.get(most, 0.0):.4g}" for terms in (theirs, mine)]
    by = (
        f", ahead most by {explain.term(most)} ({' against '.join(told)})"
        if most and lead[most] > 0 and told[0] != told[1]
        else ", ahead by very little"
        if most and lead[most] > 0
        else ", which was submitted first"
        if rank == (job.standing.rank if job.standing else None)
        else ""
    )
    return f"Before it: job {other.id} of {printable(other.record.facts.user)}, rank {rank or 0.0:.5g}{by}."


def _terms(job: Job) -> Mapping[str, float]:
    return job.standing.terms if job.standing else {}


def _in_slurm(job: Job, behind: Sequence[Job]) -> Iterator[str]:
    """Slurm's order is by its own priority, of which the label is one part."""
    own = job.standing.priority if job.standing else None
    label = job.record.label
    factor = "not known" if label != label else f"{label:.0f}"
    yield f"Its SiteFactor is {factor}" + (f", its priority in Slurm {own:.0f}." if own is not None else ".")
    above = [other for other in behind if other.standing and (other.standing.priority or 0.0) > (own or 0.0)]
    if above:
        yield (
            f"Slurm puts {counted(len(above), 'job')} of lower rank before it all the same, as it also counts "
            "fairshare, age, size, partition and QOS."
        )


def _hindered(job: Job, cycle: Mapping[str, Any]) -> Iterator[str]:
    if cycle["error"]:
        yield f"In the last cycle the {printable(cycle['error'])}."
    if cycle["frozen"]:
        yield f"Nothing was commanded in the last cycle. {explain.sentence(Reason(cycle['frozen']))}."
    modes = json.loads(cycle["modes"] or "{}")
    mode = modes.get("rank") or modes.get("default")
    if job.waits and mode and mode != "act":
        yield f"Slurm is not told of the rank: the mode for ranks is {mode}."
    elif job.waits and job.standing and not job.standing.allowed:
        yield "Slurm is not told of the rank, as an operator paused slurmplug."


def _done(deeds: Deeds, about: About) -> Iterator[tuple[float, str]]:
    """What was done and decided, each with its time."""
    for decision in deeds.decisions:
        if decision["kind"] == "place" and decision["veto"] == "placement":
            continue  # where Slurm places the jobs, that a policy would have is told by their rank
        if decision["verdict"] == "done":
            yield (
                decision["first"],
                f"{_when(decision)}: {explain.sentence(_reason(decision))}; its SiteFactor was set to 0.",
            )
        elif decision["verdict"] != "allowed":
            veto = explain.sentence(Reason(decision["veto"], json.loads(decision["veto_facts"])))
            notice = "Notice only" if decision["verdict"] == "notice" else "Not done"
            reason = explain.sentence(_reason(decision), about)
            yield decision["first"], f"{_when(decision)}: {_rule(decision)}. {reason}. {notice}: {_lower(veto)}."
    for operation in deeds.operations:
        yield from _operation(operation, deeds, about)
    labels = [c for c in deeds.commands if not c["operation"]]
    if labels:
        last = labels[-1]
        told = ", ".join(f"{name} {value}" for name, value in json.loads(last["fields"]).items())
        yield (
            last["at"],
            f"{times.shown(last['at'])}: its priority was written, {counted(len(labels), 'time')} in all: "
            f"{printable(told)}: {_outcome(last)}.",
        )


def _operation(operation: Mapping[str, Any], deeds: Deeds, about: About) -> Iterator[tuple[float, str]]:
    reason, opened = _reason(operation), operation["opened"]
    yield opened, f"{times.shown(opened)}: {_rule(operation)}. {explain.sentence(reason, about)}."
    if background := explain.background(reason):
        yield opened, f"{background}."
    said = [command for command in deeds.commands if command["operation"] == operation["id"]]
    for step in (each for each in deeds.steps if each["operation"] == operation["id"] and each["step"] != "ended"):
        outcomes = [_outcome(c) for c in said if c["id"].startswith(f"{operation['id']}-{step['step']}-")]
        what = _STEPS.get(step["step"], printable(step["step"]))
        came = "" if step["step"] in _SILENT else f": {', '.join(outcomes) or 'not said yet'}"
        yield step["at"], f"{times.shown(step['at'])}: {what}{came}."
    if operation["step"] == "ended":
        over = operation["since"]
        yield over, f"{times.shown(over)}: that was over: {printable(operation['result'])}."


def _doubted(faults: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for fault in faults:
        reason = Reason(fault["rule"], {"detail": fault["detail"]} if fault["detail"] else {})
        yield f"{explain.sentence(reason)} ({counted(fault['count'], 'time')}, last {times.shown(fault['last'])})."


def _rule(row: Mapping[str, Any]) -> str:
    return f"{printable(row['kind'])}, by the rule {printable(row['rule'])}"


def _reason(row: Mapping[str, Any]) -> Reason:
    return Reason(row["rule"], json.loads(row["facts"]))


def _when(decision: Mapping[str, Any]) -> str:
    first, last = times.shown(decision["first"]), times.shown(decision["last"])
    return first if first == last else f"{first} to {last}"


def _outcome(command: Mapping[str, Any]) -> str:
    message = f" ({printable(command['message'])})" if command["message"] else ""
    return f"{command['status']}{message}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]

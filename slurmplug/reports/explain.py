"""Sentences out of reasons: the only place where a rule and its facts become words.

A rule that is not known here, of a policy that somebody else wrote, is told with its facts as they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.plan import Reason
from slurmplug.console.table import printable

Fact = float | str


@dataclass(frozen=True)
class About:
    """What the facts are about: the quantity of the job's target, and -1 where it is better when lower, as the
    policy saw it negated then."""

    quantity: str = "accuracy"
    sign: float = 1.0


SENTENCES: Mapping[str, Sequence[str]] = {
    # MLF-C
    "target reached": (
        "Its {quantity} of {achieved:.4g} meets the target of {target:.4g}",
        " that the {target_of} set",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "optstop maximum": (
        "Its {quantity} gets no better: it has reached {achieved:.4g}",
        ", {predicted_maximum:.4g} is the most that is expected",
        ", within the tolerance of {tolerance:.2g}",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "optstop misses": (
        "Its {quantity} will miss the target of {target:.4g}",
        " that the {target_of} set",
        ": it has reached {achieved:.4g}",
        ", {predicted:.4g} is predicted for the end",
        ", and the probability to reach the target is {probability:.1%}",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "downgraded": (
        "The job asked to stop by {asked}, and allows {in_force}",
        ", which held because the cluster was overloaded",
        " ({waiting:.0f} jobs waited for resources, and the nodes were {overload_degree:.0%} in use)",
    ),
    # placing
    "makes room": ("It makes room for jobs that come before it",),
    "share": ("Its share is {gpus:.0f} GPUs now", "; it has had {had:.0f}"),
    "moved": ("There is a better place for its {gpus:.0f} GPUs",),
    "admitted": ("It is let in", ": what its GPUs cost is {payoff:.3g} less than its completion is worth"),
    "rejected": (
        "It is not let in for now",
        ": the best that it is offered costs {price:.3g}, and to be done by then is worth {utility:.3g}",
        "; it takes {needs}",
    ),
    # MLF-H
    "its turn": ("It is its turn", ": its rank of {rank:.3g} is the highest of those that there is room for"),
    "overloaded node": ("Its node {node} is overloaded",),
    "gives way": (
        "It gives way to job {by:.0f}",
        ", whose rank of {by_rank:.3g} is above its own of {rank:.3g}",
        "; {lost:.0f} s of its training are lost",
    ),
    "dependency-cycle": ("Its dependencies go in a circle, so none of them counts for its rank",),
    "parent-missing": (
        "It depends on a job that failed or is gone, so that Slurm will never start it unless that is changed"
        " (scontrol update JobId=... Dependency=), and its dependencies do not count for its rank",
    ),
    # claims
    "urgency-granted": ("It asked for an urgency of {urgency:g}, and its account is granted at most {granted:g}",),
    "iterations-too-fast": (
        "Its reports are not believed: {iteration:.0f} iterations are more than its GPUs can have done in that time",
    ),
    "loss-too-steep": ("Its reports are not believed: its loss fell again and again by a factor of 100 in a moment",),
    # guardrails
    "held": ("Its user or an operator holds it, and whoever holds a job decides when it goes on",),
    "interactive": ("Somebody sits before it (salloc or srun)",),
    "unmanaged": ("It carries no directive that puts it into slurmplug's hands, or says --manage=off",),
    "excluded": ("The site leaves its user, account, QOS, partition or name alone",),
    "given back": ("An operator took it out of slurmplug's hands with `slurmplug reset --job`",),
    "mode": ("The site lets slurmplug only {mode}",),
    "paused": ("An operator paused slurmplug",),
    "not running": ("It does not run, so that there is nothing to stop",),
    "gave up": ("It was asked to stop within the last hour, and that was given up",),
    "stops per cycle": ("No more than {limit:.0f} jobs are asked to stop in one cycle",),
    "stops per hour": ("No more than {limit:.0f} jobs are asked to stop in one hour",),
    # resizing, moving, preempting
    "placement": ("The site leaves it to Slurm where jobs run", " (placement is {placement})"),
    "range": ("It asked for {least:.0f} to {most:.0f} GPUs, and not for another number than it has",),
    "not running to move": ("It does not run",),
    "not restartable": ("It declared no --checkpoint from which it could go on",),
    "checkpoint not kept": ("Moved before, it did not go on from its checkpoint",),
    "first seen": ("It was first seen less than {limit:.0f} s ago",),
    "cooldown": ("It was requeued less than {limit:.0f} s ago",),
    "minimum run": ("It has run for less than {limit:.0f} s",),
    "requeues per job": ("It was requeued {limit:.0f} times, which is the most for one job",),
    "requeues per cycle": ("No more than {limit:.0f} jobs are requeued in one cycle",),
    "requeues per hour": ("No more than {limit:.0f} jobs are requeued in one hour",),
    "requeues per user": ("No more than {limit:.0f} jobs of one user are requeued in one hour",),
    "gave up moving": ("That was tried within the last hour and given up",),
    "limit": ("Slurm would hold it by a limit", " ({limit})"),
    "limits not known": ("The limits that could hold it cannot be read",),
    "no place": ("No nodes have room for its {gpus:.0f} GPUs now",),
    "no nodes": ("No nodes could ever serve {gpus:.0f} GPUs evenly",),
    "shape": ("Slurm cannot change what it asked for", ": {asked}"),
    "no requeue": ("It was submitted with --no-requeue, or the site does not requeue",),
    "in a reservation": ("It runs in a reservation",),
    "heterogeneous": ("It is part of a heterogeneous job",),
    "array": ("It stands for several elements of an array",),
    "not known": ("How it asked for its GPUs could not be read",),
    "kept to nodes": ("Its user named the nodes that it must have",),
    # admission
    "awaits": ("It waits for admission, and only an operator can let it go",),
    "not waiting for admission": ("It does not wait for admission",),
    "stale snapshot": (
        "What was read of the cluster was too old to act on",
        " ({age:.0f} s; the limit is {limit:.0f} s)",
    ),
    "waste": (
        "Its requeues would have cost {lost:.2f} GPU hours, more than {limit:.0%} of the {attained:.2f} that it had",
    ),
    "clock jump": ("The clock went back by {back:.0f} s, so that nothing is commanded until it goes on",),
    "partial snapshot": ("Of {alive:.0f} jobs only {seen:.0f} were there, which is not believed at the first look",),
    "starvation": ("It has waited for {waited:.0f} s, which is more than any job shall, and goes first",),
    "breaker": (
        "Commands failed in too many cycles in a row",
        " ({failures:.0f})",
        ", so nothing is commanded for a while",
        " ({rests:.0f} s)",
    ),
    "operator": ("An operator ran `slurmplug reset`",),
    # what was not believed of its reports
    "link": ("Its report file is a symbolic link, which is not followed",),
    "not a file": ("Its report file is no regular file",),
    "owner": ("A file with the name of its report belongs to another user", " ({detail})"),
    "size": ("Its report file is too large", " ({detail})"),
    "files": ("It writes too many report files", " ({detail})"),
    "unreadable": ("Its report file cannot be read", " ({detail})", "; its group has to be able to read it: chmod 640"),
    "rotated": ("Its report file was replaced by another",),
    "truncated": ("Its report file was cut",),
    "not removed": ("Its old report file cannot be removed", " ({detail})"),
    "long line": ("A line of its reports is too long",),
    "unreadable line": ("A line of its reports is no JSON object",),
    "impossible time": ("A report claims a time that cannot be; the time of reading counts",),
    "another job": ("A report is older than the job: it is of one before it that had the same id",),
    "no iteration": ("A report names no iteration",),
    "negative iteration": ("A report names a negative iteration",),
    "impossible iteration": ("A report names an iteration that is no number, or too large",),
    "earlier iteration": ("A report names an iteration before one already told",),
    "repeated iteration": ("An iteration was told again with other numbers; the last ones count",),
    "bad name": ("A report holds a quantity whose name is no identifier",),
    "not a number": ("A report holds a quantity that is no finite number",),
    "too many quantities": ("It reports more quantities than are kept",),
    "thinned": ("It reports so often that only every second report was kept",),
}

VARIANTS: Mapping[str, str] = {"target": "cause", "optstop": "cause"}
"""The fact that says which of a rule's sentences it is."""
SIGNED: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("target", "optstop"), frozenset({"achieved", "target", "predicted", "predicted_maximum"})
)
"""The facts that a policy has with the sign by which higher is better."""


TERMS: Mapping[str, str] = {
    "learning": "what its next iteration learns",
    "remaining": "how soon it will be done",
    "deadline": "its deadline",
    "waiting": "how long it has waited",
    "children": "the jobs that depend on it",
    "running": "that it runs already",
    "server": "that it is a parameter server",
}
SOURCES: Mapping[str, str] = {
    "progress": "its own pace",
    "stack": "runs like it, and what it asked for",
    "svr": "the finished runs of its type",
    "last report": "its last report",
    "user history": "its user's last runs",
    "time limit": "its time limit, as nothing better is known",
}


def term(name: str) -> str:
    """What a term of the rank is about."""
    return TERMS.get(name, printable(name))


def source(name: str) -> str:
    """What a prediction was made from."""
    return SOURCES.get(name, printable(name))


def sentence(reason: Reason, about: About | None = None) -> str:
    """A sentence, without its full stop."""
    about = about or About()
    variant = str(reason.facts.get(VARIANTS.get(reason.rule, ""), ""))
    segments = SENTENCES.get(f"{reason.rule} {variant}".strip())
    signed = SIGNED.get(reason.rule, frozenset())
    facts: dict[str, Fact] = {
        name: printable(fact) if isinstance(fact, str) else about.sign * fact if name in signed else fact
        for name, fact in reason.facts.items()
    }
    told = _told(segments, {"quantity": printable(about.quantity), **facts}) if segments else ""
    return told or _listed(replace(reason, facts=facts))


def background(reason: Reason) -> str:
    """What else the facts of a stop say: that the job was taken at its word under overload. Empty where it was not."""
    facts = reason.facts
    if reason.rule not in VARIANTS or facts.get("overload") != "yes" or facts.get("in_force") == facts.get("asked"):
        return ""
    return _told(SENTENCES["downgraded"], facts)


def _told(segments: Sequence[str], facts: Mapping[str, Fact]) -> str:
    """The segments of which all facts are there; nothing where the first is not, or a fact is of another kind."""
    told = ""
    for number, segment in enumerate(segments):
        try:
            told += segment.format_map(facts)
        except KeyError:
            if number == 0:
                return ""
        except ValueError:
            return ""
    return told


def _listed(reason: Reason) -> str:
    facts = ", ".join(f"{printable(name)} {_plain(fact)}" for name, fact in reason.facts.items())
    return f"Rule {json.dumps(reason.rule)}" + (f": {facts}" if facts else "")


def _plain(fact: Fact) -> str:
    return fact if isinstance(fact, str) else f"{fact:.6g}"

"""Sentences for rules: how a rule and its facts read, for every report.

A rule that has no sentence here, of a policy from elsewhere, is shown with its facts as they are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from policies.plan import Fact, OtherJob, Reason
from policies.snapshot import JobKey
from slurmplug.console.table import printable
from slurmplug.ledger.queries import ForbiddenAction, OpenStep

HIDDEN = "a job that Slurm does not show you"


def nobody(job: JobKey) -> bool:  # noqa: ARG001
    """Sees no job."""
    return False


@dataclass(frozen=True)
class About:
    """What the facts are about, and who reads of them.

    quantity: of the job's target. sign: -1 where that is better when lower, as the policy saw it negated then. sees:
    whether the reader sees another job; unless it is given, a sentence names no other job.
    """

    quantity: str = "accuracy"
    sign: float = 1.0
    sees: Callable[[JobKey], bool] = nobody


class _ShownNumber(float):
    """A number in a sentence, also as a count of things: {gpus:GPU} is 1 GPU, 2 GPUs."""

    def __format__(self, spec: str) -> str:
        number = float(self)
        counts = len(spec) > 1 and spec.isalpha()
        return f"{number:.0f} {spec}{'s' * (number != 1.0)}" if counts else format(number, spec)


class _ShownJob:
    """Another job that the reader sees, in a sentence: {by} is its name, {by.score} its score."""

    def __init__(self, other: OtherJob) -> None:
        self.score = other.score
        self._id = other.job.job_id

    def __format__(self, spec: str) -> str:
        return f"job {self._id}"


class _HiddenJob:
    """One that the reader does not see: it has no score, so parts of a sentence with {by.score} are left out."""

    def __format__(self, spec: str) -> str:
        return HIDDEN


SENTENCES: Mapping[str, Sequence[str]] = {
    # MLF-C
    "target reached": (
        "Its {quantity} of {achieved:.4g}",
        " at iteration {achieved_at:.0f}",
        " meets the target of {target:.4g}",
        " that the {target_of} set",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "optstop maximum": (
        "Its {quantity} gets no better: it has reached {achieved:.4g}",
        " at iteration {achieved_at:.0f}",
        ", {since}",
        ", {predicted_maximum:.4g} is the most that is expected",
        ", within the tolerance of {tolerance:.2g}",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "optstop misses": (
        "Its {quantity} will miss the target of {target:.4g}",
        " that the {target_of} set",
        ": it has reached {achieved:.4g}",
        " at iteration {achieved_at:.0f}",
        ", {predicted:.4g} is predicted for the end",
        ", and the probability to reach the target is {probability:.1%}",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "diverged not finite": (
        "Its training has diverged: its last {reports:.0f} losses are NaN or infinite",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "diverged beyond its past": (
        "Its training has diverged: its last {reports:.0f} losses are all above {limit:.4g}, beyond what those before"
        " make likely; the last one is {loss:.4g}",
        ", after iteration {iteration:.0f}",
        " of {max_iterations:.0f}",
    ),
    "downgraded": (
        "The job requested --stop={asked} and allows {in_force}",
        ", which was applied because the cluster was overloaded",
        " ({waiting:job} waited for resources, and the nodes were {overload_degree:.0%} in use)",
    ),
    # the site's
    "idle GPUs": ("Its GPUs are idle by its own reports", ", also after {hours:.2f} h since its user was told so"),
    # placing
    "makes room": ("It makes room for jobs of higher rank",),
    "share": ("Its share is {gpus:GPU} now", "; it was {had:.0f}"),
    "starts": ("There is room for it on {gpus:GPU} now, which is its share", "; it requests {had:.0f}"),
    "same shape": ("Its request gives {gpus:GPU} already",),
    "time limit ahead": (
        "Its time limit of {limit:.1f} h ends this run in {left:.0f} s",
        ", and it may need {needs:.1f} h more",
        ": it saves, and goes on in another run",
    ),
    "size given back": ("It did not start on {had:GPU}, and is given the {gpus:.0f} again that it requested",),
    "moved": ("There are better nodes for its {gpus:GPU}",),
    "admitted": ("It is admitted", ": its GPUs cost {payoff:.3g} less than its completion is worth"),
    "rejected": (
        "It is not admitted for now",
        ": the best schedule costs {price:.3g}, and completion by then is worth {utility:.3g}",
        "; it needs {needs}",
    ),
    # MLF-H
    "its turn": ("It is next", ": its score of {rank:.3g} is the highest of the jobs that there is room for"),
    "overloaded node": ("Its node {node} is overloaded",),
    "gives way": (
        "It is preempted",
        " by {by}",
        ", whose score of {by.score:.3g} is above its own of {rank:.3g}",
        "; {lost:.0f} s of its training are lost",
    ),
    "dependency-cycle": ("Its dependencies form a cycle, so none of them counts for its score",),
    "parent-missing": (
        "It depends on a job that failed or is gone, so Slurm will never start it unless its dependency is changed"
        " (scontrol update JobId=... Dependency=), and its dependencies do not count for its score",
    ),
    # claims
    "urgency-granted": ("It requested an urgency of {urgency:g}, and its account is granted at most {granted:g}",),
    "iterations-too-fast": (
        "Its reports are not believed: {iteration:.0f} iterations are more than its GPUs can have done in that time",
    ),
    "loss-too-steep": ("Its reports are not believed: its loss fell again and again by a factor of 100 in a moment",),
    "reports in percent": (
        "It is not stopped by any rule: its target is {target:.4g}, it reports {reported:.4g}, and which unit is meant"
        " is not known. Report a value from 0 to 1, or state the target in percent without a % sign (accuracy>=92)",
    ),
    "target in percent": (
        "It is not stopped by any rule: its target is {target:.4g}, it has only reported values from 0 to 1, the last"
        " one {reported:.4g}, and which unit is meant is not known. State the target from 0 to 1, or with a % sign"
        " (accuracy>=92%)",
    ),
    # guardrails
    "held": ("It is held by its user or an operator, and is left to them until it is released",),
    "interactive": ("It is an interactive job (salloc or srun)",),
    "unmanaged": ("It has no directive that makes slurmplug manage it, or has --manage=off",),
    "script not read": ("Its script has not been read yet, and until then nothing is done to it",),
    "excluded": ("The site excludes its user, account, QOS, partition or name",),
    "given back": ("An operator excluded it with `slurmplug reset --job`",),
    "set by others": (
        "Somebody else set its SiteFactor",
        " to {site_factor:.0f}",
        "; slurmplug ranks it again once that was set to 0, or by `slurmplug resume --job {job}`",
    ),
    "mode": ("The mode is {mode}",),
    "paused": ("An operator paused slurmplug",),
    "not running": ("It is not running, so there is nothing to stop",),
    "ignored": ("It ran on after it was requested to stop, so it is not asked again",),
    "gave up": ("A stop was requested within the last hour and was given up",),
    "stops per cycle": ("No more than {limit:.0f} stops are requested in one cycle",),
    "stops per hour": ("No more than {limit:.0f} stops are requested in one hour",),
    "stops per user": ("No more than {limit:.0f} jobs of one user are requested to stop in one hour",),
    # resizing, moving, preempting
    "placement": ("The site lets Slurm choose the nodes", " (placement is {placement})"),
    "range": ("It requested {least:.0f} to {most:GPU}, which leaves no other number than it has",),
    "not running to move": ("It is not running",),
    "part of a GPU": ("It has or requests MIG instances or shards of GPUs, which slurmplug leaves as they are",),
    "not restartable": ("It declared no --checkpoint to resume from",),
    "checkpoint not kept": ("When it was moved before, it did not resume from its checkpoint",),
    "first seen": ("It was first seen less than {limit:.0f} s ago",),
    "cooldown": ("It was requeued less than {limit:.0f} s ago",),
    "minimum run": ("It has run for less than {limit:.0f} s",),
    "no room lately": ("It was to be restarted less than {limit:.0f} s ago, and other jobs had taken its nodes",),
    "requeues per job": ("It was requeued {limit:time}, which is the most for one job",),
    "writes per cycle": ("No more than {limit:.0f} waiting jobs are changed in one cycle",),
    "size changed lately": ("Its size was changed less than {limit:.0f} s ago",),
    "requeues per cycle": ("No more than {limit:.0f} jobs are requeued in one cycle",),
    "requeues per hour": ("No more than {limit:.0f} jobs are requeued in one hour",),
    "requeues per user": ("No more than {limit:.0f} jobs of one user are requeued in one hour",),
    "admissions per cycle": ("No more than {limit:.0f} jobs are admitted in one cycle",),
    "admissions per hour": ("No more than {limit:.0f} jobs are admitted in one hour",),
    "admissions per user": ("No more than {limit:.0f} jobs of one user are admitted in one hour",),
    "gave up moving": ("This was tried within the last hour and was given up",),
    "limit": ("One of Slurm's limits would keep it pending", " ({limit})"),
    "limits not known": ("The limits that could keep it pending cannot be read",),
    "no place": ("No nodes have room for its {gpus:GPU} now",),
    "time limit": (
        "With {gpus:GPU} it may need {needs:.1f} h more, and its time limit is {limit:.1f} h",
        ", which may be raised to {raised:.1f} h at most",
    ),
    "maintenance": (
        "The nodes with room for its {gpus:GPU} are down, drained, or reserved before its time limit would end",
    ),
    "no nodes": ("No nodes could ever give {gpus:GPU}, the same number on each",),
    "shape": ("Slurm cannot change this request", ": {asked}"),
    "no requeue": ("It was submitted with --no-requeue, or the site's default is not to requeue (JobRequeue=0)",),
    "in a reservation": ("It runs in a reservation",),
    "heterogeneous": ("It is part of a heterogeneous job",),
    "array": ("Its pending array elements are still one job in Slurm",),
    "left first": ("An earlier move put it first in the queue, and its run ended before that was undone",),
    "not known": ("How it requested its GPUs could not be read",),
    "kept to nodes": ("Its user named the nodes it requires",),
    # admission
    "awaits": ("It waits for admission, and only an operator can release it",),
    "not waiting for admission": ("It is not waiting for admission",),
    "stale snapshot": (
        "The snapshot of the cluster was too old to act on",
        " ({age:.0f} s; the limit is {limit:.0f} s)",
    ),
    "waste": (
        "Its requeues would have cost {lost:.2f} GPU hours, more than {limit:.0%} of the {attained:.2f} that it used",
    ),
    "clock jump": ("The clock went back by {back:.0f} s, so no commands are sent in this cycle",),
    "partial snapshot": (
        "Slurm listed {missing:.0f} of {alive:.0f} known jobs neither as live nor as ended, so no commands are sent"
        " until it does",
    ),
    "passed too often": (
        "It goes first: jobs that came later were put before it, so that it would take {times:.1f} times as long as"
        " without them",
        ", most of all {by}",
        "; the site's limit is {limit:g} times",
    ),
    "starvation": ("It has waited for {waited:.0f} s, more than the site's limit, and goes first",),
    "breaker": (
        "Commands failed in too many cycles in a row",
        " ({failures:.0f})",
        ", so no commands are sent for a while",
        " ({rests:.0f} s)",
    ),
    "operator": ("An operator ran `slurmplug reset`",),
    "script": (
        "Its batch script could not be read",
        " ({detail})",
        "; until another try succeeds, its directives have no effect",
    ),
    # what was not believed of its reports
    "link": ("Its report file is a symbolic link, which is not followed",),
    "not a file": ("Its report file is not a regular file",),
    "owner": ("A file with the name of its report belongs to another user", " ({detail})"),
    "size": ("Its report file is too large", " ({detail})"),
    "files": ("It writes too many report files", " ({detail})"),
    "unreadable": ("Its report file cannot be read", " ({detail})", "; its group has to be able to read it: chmod 640"),
    "rotated": ("Its report file was replaced by another",),
    "truncated": ("Its report file was truncated",),
    "not removed": ("Its old report file cannot be removed", " ({detail})"),
    "long line": ("A line of its reports is too long",),
    "left": ("Its report file is not read any further", ": {detail}"),
    "unreadable line": ("A line of its reports is not a JSON object",),
    "unmatched pattern": ("A pattern of slurmplug run matched no line of its output",),
    "impossible time": ("A report has an impossible time; the time of reading is used",),
    "another job": ("A report is older than its run: it is from an earlier job with the same id",),
    "no iteration": ("A report names no iteration",),
    "negative iteration": ("A report names a negative iteration",),
    "impossible iteration": ("A report names an iteration that is not a number, or too large",),
    "earlier iteration": ("A report names an iteration before one already reported",),
    "repeated iteration": ("An iteration was reported again with other numbers; the last ones count",),
    "bad name": ("A report has a quantity whose name is not an identifier",),
    "bad trial": ("A report names a trial that is neither a whole number nor a text of at most 64 characters",),
    "too many trials": ("It reports more trials than are kept",),
    "not a number": ("A report has a quantity that is not a finite number",),
    "too many quantities": ("It reports more quantities than are kept",),
    "thinned": ("It reports so often that only every second report was kept",),
}

VARIANTS: Mapping[str, str] = {"target": "cause", "optstop": "cause", "diverged": "how"}
"""The fact that selects one of several sentences of a rule."""
SIGNED: Mapping[str, frozenset[str]] = dict.fromkeys(
    ("target", "optstop"), frozenset({"achieved", "target", "predicted", "predicted_maximum"})
)
"""The facts that a policy records with the sign that makes higher better."""


TERMS: Mapping[str, str] = {
    "learning": "what its next iteration learns",
    "remaining": "how soon it will finish",
    "deadline": "its deadline",
    "waiting": "how long it has waited",
    "children": "the jobs that depend on it",
    "running": "that it is running",
    "server": "that it is a parameter server",
}
SOURCES: Mapping[str, str] = {
    "progress": "its own pace",
    "iterations": "the iterations that it states, and the pace of its kind",
    "stack": "runs like it, and its request",
    "svr": "the finished runs of its type",
    "last report": "its last report",
    "user history": "its user's last runs",
    "time limit": "its time limit, as nothing better is known",
    "outlived": "its time limit, as it has run for longer than runs like it",
}


STEPS: Mapping[str, str] = {
    "ask": "requested",
    "signal": "signalled",
    "cancel": "cancelled",
    "withdraw": "withdrawn",
}


def open_step(operation: OpenStep) -> str:
    """An open operation and its step, such as: stop (target): requested."""
    step = STEPS.get(operation.step, operation.step)
    return f"{printable(operation.kind)} ({printable(operation.rule)}): {step}"


def forbidden(action: ForbiddenAction) -> str:
    """A forbidden action and the reason, such as: would stop (target), but mode observe."""
    veto = f"mode {action.mode}" if action.mode else action.veto
    return f"would {printable(action.kind)} ({printable(action.rule)}), but {printable(veto)}"


def left_to_slurm(rule: str, note: Reason | None) -> str:
    """Why nothing is done to a job: what the policy found wrong with it, or the rule that leaves it to Slurm, such as:
    Slurm's (unmanaged). Empty if neither applies."""
    if note is not None:
        return printable(note.rule)
    return f"Slurm's ({printable(rule)})" if rule else ""


def term(name: str) -> str:
    """A term of the score in words."""
    return TERMS.get(name, printable(name))


def source(name: str) -> str:
    """The source of a prediction in words."""
    return SOURCES.get(name, printable(name))


def sentence(reason: Reason, about: About | None = None) -> str:
    """A sentence, without its full stop. Another job is named only if the reader sees it, by `about`."""
    about = about or About()
    variant = str(reason.facts.get(VARIANTS.get(reason.rule, ""), ""))
    segments = SENTENCES.get(f"{reason.rule} {variant}".strip())
    signed = SIGNED.get(reason.rule, frozenset())
    facts = {name: _shown(fact, about, about.sign if name in signed else 1.0) for name, fact in reason.facts.items()}
    text = _filled(segments, {"quantity": printable(about.quantity), **facts}) if segments else ""
    return text or _listed(reason.rule, facts)


_Shown: TypeAlias = _ShownNumber | str | _ShownJob | _HiddenJob
"""A fact as its reader may see it."""


def _shown(fact: Fact, about: About, sign: float) -> _Shown:
    if isinstance(fact, OtherJob):
        return _ShownJob(fact) if about.sees(fact.job) else _HiddenJob()
    return printable(fact) if isinstance(fact, str) else _ShownNumber(sign * fact)


def background(reason: Reason) -> str:
    """A second sentence for a stop that overload brought about, as the job allows; else empty."""
    facts = reason.facts
    if reason.rule not in VARIANTS or facts.get("overload") != "yes" or facts.get("in_force") == facts.get("asked"):
        return ""
    return _filled(SENTENCES["downgraded"], {name: _shown(fact, About(), 1.0) for name, fact in facts.items()})


def _filled(segments: Sequence[str], facts: Mapping[str, _Shown]) -> str:
    """The segments whose facts are all known; empty where those of the first are not, or a fact has another type."""
    text = ""
    for number, segment in enumerate(segments):
        try:
            text += segment.format_map(facts)
        except (KeyError, AttributeError):
            if number == 0:
                return ""
        except ValueError:
            return ""
    return text


def _listed(rule: str, facts: Mapping[str, _Shown]) -> str:
    listed = ", ".join(f"{printable(name)} {_plain(fact)}" for name, fact in facts.items())
    return f"Rule {json.dumps(rule)}" + (f": {listed}" if listed else "")


def _plain(fact: _Shown) -> str:
    return f"{fact:.6g}" if isinstance(fact, int | float) else f"{fact}"

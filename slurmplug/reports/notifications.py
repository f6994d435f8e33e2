"""What users are told of their jobs by mail, without asking: what was done to them, and what is wrong with them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurmplug.config.schema import Config, NotificationKind
from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.ledger import notifications, stop_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.notifications import Delivery, EndedOperation, Told
from slurmplug.reports import deadlines, explain, job_view, savings
from slurmplug.reports.explain import About
from slurmplug.reports.job_view import Job
from slurmplug.spool.values import IDLE_SHARE, GPUUse

LOOK_BACK = 3_600.0
"""Seconds after which nobody is told of an operation any more that ended while the daemon did not run."""
IDLE_REPORTS = 60
"""reports of the use of its GPUs, half a minute apart, before a job's GPUs count as idle"""
TRY_AGAIN_AFTER = (300.0, 600.0, 1_800.0)
"""seconds after the first, the second and the third try that failed; after the next it is given up"""
_DONE: Mapping[str, NotificationKind] = {
    "stop": "stopped",
    "migrate": "moved",
    "resize": "resized",
    "preempt": "preempted",
}


@dataclass(frozen=True)
class Notification:
    """One thing that a user is told.

    gpu_hours: what it saved, or what it cost so far; None where neither is known. ways: those of `mail` and `webhook`.
    last: whether it is not tried once more. stops_after: seconds of idle GPUs after which it says that the job is
    stopped; None where it does not say so.
    """

    about: Told
    job: str
    user: str
    name: str
    text: str
    gpu_hours: float | None
    ways: frozenset[str]
    last: bool = False
    stops_after: float | None = None

    @property
    def title(self) -> str:
        """The job and the kind."""
        return f"{self.job}{f' ({printable(self.name)})' if self.name else ''}: {self.about.kind}"


def due(ledger: LedgerFile, config: Config, now: float) -> list[Notification]:
    """What users are to be told, and were not told yet; also what could not be sent, is as it was, and is to be tried
    again now. Raises LedgerError."""
    settings = config.notifications
    stops_idle = config.stop.idle_gpus if config.mode.of("stop") == "act" else None
    done: dict[int, dict[str, EndedOperation]] = defaultdict(dict)  # the latest of each kind, by job
    for each in notifications.ended_operations(ledger, now - LOOK_BACK):
        done[each.job][each.kind] = each
    living = notifications.living(ledger)
    rows = sorted({*living, *done})
    known = notifications.told(ledger, rows)
    found: list[Notification] = []
    for job in job_view.jobs_in_rows(ledger, rows, others=False):
        given = job.directives.notify if job.directives else None
        mail = settings.mail != "off" and (given == "on" or (given is None and settings.mail == "all"))
        ways = frozenset(way for way, used in (("mail", mail), ("webhook", settings.webhook)) if used)
        if not ways or not job.managed:
            continue
        operations = done[job.row].values()
        use = living.get(job.row, GPUUse())
        for kind, text, gpu_hours in _of_job(ledger, job, operations, use, stops_idle):
            about = Told(job.row, kind)
            tried = known.get(about)
            by = ways if tried is None else ways & _again(tried, now)
            if kind in settings.about and by:
                last = tried is not None and tried.tries >= len(TRY_AGAIN_AFTER)
                after = stops_idle if kind == "idle GPUs" else None
                what = job.id, job.facts.user, job.facts.name, text, gpu_hours
                found.append(Notification(about, *what, by, last, after))
    return found


def _again(tried: Delivery, now: float) -> frozenset[str]:
    """The ways by which a notification is tried again now."""
    due = tried.again and not 0 <= now - tried.at < TRY_AGAIN_AFTER[tried.tries - 1]
    return tried.again if due else frozenset()


def message(told: Sequence[Notification], cluster: str) -> tuple[str, str]:
    """The subject and the text of a mail that tells a user these."""
    jobs = counted(len({each.job for each in told}), "job")
    subject = f"job {told[0].title}" if len(told) == 1 else f"{len(told)} messages about {jobs}"
    lines = [f"Job {each.title}\n  {each.text}\n" for each in told]
    return f"slurmplug on {printable(cluster)}: {subject}", "\n".join([*lines, _FOOTER])


def _of_job(
    ledger: LedgerFile, job: Job, done: Iterable[EndedOperation], use: GPUUse, stops_idle: float | None
) -> Iterator[tuple[NotificationKind, str, float | None]]:
    about = About(job.quantity, job.sign)
    for each in done:
        kind = _DONE[each.kind]
        why = explain.sentence(each.reason, about)
        if kind == "stopped":
            saved = _saved(ledger, job)
            yield kind, _done(kind, each, why, "saved", saved), saved
        else:
            cost = _cost(each)
            yield kind, _done(kind, each, why, "cost", cost), cost
    if not job.live:
        return
    note = job.ranking.note if job.ranking else None
    if note is not None and note.rule == "rejected":
        yield "rejected", f"{explain.sentence(note, about)}.", None
    if job.diverged:
        used = job.facts.of_gpus.whole * job.elapsed / savings.HOUR
        yield "diverged", _diverged(used), used
    if not job.waits and use.measured >= IDLE_REPORTS and (share := use.shares / use.measured) <= IDLE_SHARE:
        idle = (1.0 - share) * job.facts.of_gpus.whole * job.elapsed / savings.HOUR
        yield "idle GPUs", _idle(job, share, idle, stops_idle), idle
    deadline = job.directives.deadline if job.directives else None
    if deadline is not None and deadlines.chance(job) in ("cannot be met", "passed"):
        yield "deadline", _missed(job, deadline), None


def _saved(ledger: LedgerFile, job: Job) -> float | None:
    [saving] = savings.savings(stop_queries.stops_of(ledger, [job.row]))
    return saving.gpu_hours.value if saving.gpu_hours else None


def _cost(operation: EndedOperation) -> float | None:
    """GPU hours from its checkpoint to its requeue, which it computes again; None where that is not known."""
    if operation.unsaved is None or operation.outcome == "progress lost":
        return None
    return operation.gpus_before * max(0.0, operation.unsaved) / savings.HOUR


def _done(
    kind: NotificationKind, operation: EndedOperation, why: str, verb: Literal["saved", "cost"], gpu_hours: float | None
) -> str:
    text = {
        "stopped": "slurmplug stopped it.",
        "moved": "slurmplug had it saved and requeued, to go on elsewhere.",
        "preempted": "slurmplug had it saved and requeued; it goes on when it is its turn.",
        "resized": f"slurmplug had it saved and requeued, to go on with {counted(operation.gpus, 'GPU')} instead of "
        f"{operation.gpus_before}.",
    }[kind]
    text += f" {why}."
    if operation.outcome == "progress lost":
        text += " It began again before its last checkpoint."
    if gpu_hours is None or gpu_hours < _SHOWN_HOURS:
        return text
    after = ": what it computed after its checkpoint" if verb == "cost" else ""
    return f"{text} That {verb} about {gpu_hours:.1f} GPU hours{after}."


def _diverged(gpu_hours: float) -> str:
    text = "Its training has diverged: its last losses are NaN or infinite. It holds its resources until it ends"
    return f"{text}; it has used about {gpu_hours:.1f} GPU hours." if gpu_hours >= _SHOWN_HOURS else f"{text}."


_SHOWN_HOURS = 0.05
_FOOTER = """\
`slurmplug why JOB` says more. Each kind of message comes once for a job; none comes for one with #PLUG --notify=off,
nor after `slurmplug set JOB --notify=off`.
"""


def _idle(job: Job, share: float, idle: float, stops_after: float | None) -> str:
    gpus = counted(job.facts.of_gpus.whole, "GPU")
    used = f"Its {gpus} were in use {share:.0%} of the time, by what it reported"
    text = f"{used}: idle for about {idle:.1f} GPU hours."
    if stops_after is None:
        return text
    return (
        f"{text} If they stay so, slurmplug stops the job once it has run on for {times.format_duration(stops_after)}."
    )


def _missed(job: Job, deadline: float) -> str:
    named = f"ts deadline, {times.format_time(deadline)},"
    if job.seen > deadline:
        return f"I{named} has passed."
    end = deadlines.expected_end(job)
    text = f"It cannot meet i{named[:-1]}"
    return f"{text}: it is expected to end {times.format_time(end)}." if end is not None else f"{text}."

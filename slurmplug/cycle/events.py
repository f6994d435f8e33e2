"""What a cycle did, for the log: one event for each action that begins or ends, batch of writes and change of modes."""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.port import Outcome
from slurmplug.console.table import printable
from slurmplug.cycle.record import CycleRecord
from slurmplug.operations import Operation

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One event. `text`: its line in the log; `fields`: the same for programs, `event` among them."""

    text: str
    fields: Mapping[str, str | int | float]


def of_cycle(record: CycleRecord, outcomes: Sequence[Outcome], users: Mapping[JobKey, str]) -> Iterator[Event]:
    """The actions that began or ended in the cycle, and its writes of priorities. `outcomes`: of its commands; `users`:
    of the jobs that it acts on."""
    for operation in record.operations:
        if operation.opened == record.started:
            yield _action(operation, users, "begins")
        if operation.step == "ended":
            yield _action(operation, users, operation.result)
    yield from _writes(record, outcomes)


def of_modes(record: CycleRecord, *, paused: bool) -> Event:
    """The modes in force, and why no commands are sent, if none are. `paused`: by an operator."""
    modes = {name: mode for name, mode in record.modes.items() if mode}
    frozen = "paused" if paused else record.verdict.frozen.rule if record.verdict.frozen else ""
    text = f"modes: {', '.join(f'{name} {mode}' for name, mode in modes.items())}"
    text += f"; no commands are sent: {frozen}" if frozen else ""
    return Event(text, {"event": "modes", **modes, "frozen": frozen})


@dataclass
class EventLog:
    """Writes events to the log, the modes only when they have changed."""

    _modes: Event | None = None
    _users: dict[JobKey, str] = field(default_factory=dict)
    """of the jobs with operations in progress: a job that has ended is in no snapshot any more"""

    def tell(self, record: CycleRecord, outcomes: Sequence[Outcome], *, paused: bool) -> None:
        """One line for each event of the cycle; and one of the cycle itself, on the level debug."""
        jobs, took = len(record.snapshot.jobs), sum(record.seconds.values())
        log.debug("cycle %d: %d jobs, %d commands, %.3f s", record.snapshot.cycle, jobs, len(record.commands), took)
        if not log.isEnabledFor(logging.INFO):
            return
        modes = of_modes(record, paused=paused)
        changed, self._modes = [modes] if modes != self._modes else [], modes
        self._users |= {each.job: user for each in record.operations if (user := _user(record.snapshot, each.job))}
        for event in (*changed, *of_cycle(record, outcomes, self._users)):
            log.info("%s", event.text, extra={"event_fields": event.fields})
        for each in record.operations:
            if each.step == "ended":
                self._users.pop(each.job, None)


def _action(operation: Operation, users: Mapping[JobKey, str], state: str) -> Event:
    job, user, rule = operation.job.job_id, users.get(operation.job, ""), operation.reason.rule
    whose = f" of {printable(user)}" if user else ""
    return Event(
        f"{operation.kind} of job {job}{whose}, by the rule {rule}: {printable(state)}",
        {"event": operation.kind, "job": job, "user": user, "rule": rule, "state": state},
    )


def _writes(record: CycleRecord, outcomes: Sequence[Outcome]) -> Iterator[Event]:
    written = [each for each in record.commands if not each.operation and "SiteFactor" in each.fields]
    if not written:
        return
    ids = {each.id for each in written}
    counts = Counter(str(outcome.status) for outcome in outcomes if outcome.command in ids)
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    fields: dict[str, str | int | float] = {"event": "writes", "rule": record.policy, "writes": len(written), **counts}
    jobs = record.snapshot.jobs
    before = dict(zip(jobs.keys, jobs.site_factor.tolist(), strict=True))
    steps = {each.job: float(each.fields["SiteFactor"]) - before.get(each.job, math.nan) for each in written}
    known = {job: step for job, step in steps.items() if not math.isnan(step)}
    if known:
        job, step = max(known.items(), key=lambda item: abs(item[1]))
        user = _user(record.snapshot, job)
        text += f"; the largest step {step:+.0f}, of job {job.job_id} of {printable(user)}"
        fields |= {"largest_step": step, "job": job.job_id, "user": user}
    yield Event(f"{len(written)} priorities written, by the policy {record.policy}: {text}", fields)


def _user(snapshot: Snapshot, job: JobKey) -> str:
    """Empty for a job that the snapshot does not have any more."""
    keys = snapshot.jobs.keys
    return str(snapshot.jobs.user[keys.index(job)]) if job in keys else ""

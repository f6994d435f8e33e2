"""What outlives a cycle: an allowed action, carried out step by step.

Pure. Each cycle `advance` looks at what the snapshot shows of an open operation and says the next command. A command
whose outcome is not `done` is said again, so a crash between two lines is only another snapshot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from policies.plan import Action, ActionKind, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.port import Command, Verb
from slurmplug.guardrails import Verdict

Step: TypeAlias = Literal["ask", "signal", "cancel", "withdraw", "ended"]
Told: TypeAlias = Literal["", "done", "refused", "unknown"]

TRIES = 5
"""How often a step's command is said before the operation is given up."""
CANCEL_LIMIT = 120.0
"""Seconds that Slurm may take to end a job that was cancelled."""


@dataclass(frozen=True)
class Operation:
    """One action under way. `told` is what came of the step's command, `tries` how often it was said."""

    id: str
    kind: ActionKind
    job: JobKey
    reason: Reason
    opened: float
    step: Step
    since: float
    limit: float
    restarts: int
    told: Told = ""
    tries: int = 0
    result: str = ""


@dataclass(frozen=True)
class StopSettings:
    """`grace`: seconds from a request to the next step where the job declared none. `cancel`: whether to at the end."""

    grace: float
    cancel: bool


def advance(
    snapshot: Snapshot, verdict: Verdict, opened: Sequence[Operation], settings: StopSettings
) -> tuple[tuple[Operation, ...], tuple[Command, ...]]:
    """Take every open operation one step on, and open those newly allowed.

    Returns the operations that are new or changed, and the commands to say now; a frozen verdict gives none.
    """
    if verdict.frozen:
        return (), ()
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}
    moved = [_stop(operation, snapshot, rows.get(operation.job), verdict, settings) for operation in opened]
    busy = {operation.job for operation in opened}
    wanted = {action.job: action for action in verdict.actions if action.kind == "stop" and action.job not in busy}
    moved += [_said(_opened(action, snapshot, rows[action.job], settings), snapshot) for action in wanted.values()]
    changed = [pair for pair in moved if pair is not None]
    return tuple(operation for operation, _ in changed), tuple(command for _, command in changed if command is not None)


def _opened(action: Action, snapshot: Snapshot, row: int, settings: StopSettings) -> Operation:
    now = snapshot.now
    return Operation(
        id=f"{snapshot.cycle}-{action.kind}-{action.job.job_id}",
        kind=action.kind,
        job=action.job,
        reason=action.reason,
        opened=now,
        step="ask",
        since=now,
        limit=now + _grace(snapshot, row, settings),
        restarts=int(snapshot.jobs.restarts[row]),
    )


def _stop(
    operation: Operation, snapshot: Snapshot, row: int | None, verdict: Verdict, settings: StopSettings
) -> tuple[Operation, Command | None] | None:
    jobs, now = snapshot.jobs, snapshot.now
    gone = row is None or jobs.restarts[row] != operation.restarts
    if operation.step == "withdraw":
        over = gone or operation.told == "done"
        return (replace(operation, step="ended", since=now), None) if over else _said(operation, snapshot)
    if row is None:
        return _ended(operation, snapshot, _how_it_ended(operation))
    if gone or jobs.state[row] == "pending":
        return _ended(operation, snapshot, "requeued meanwhile")
    if "stop" not in verdict.acting or any(mask[row] for mask in verdict.spared.values()):
        if operation.step != "cancel" or operation.told == "refused":
            return _let_go(operation, snapshot, "withdrawn")
        if operation.told != "done":
            return None  # it may be cancelled already; it is not cancelled again
    if jobs.state[row] == "completing":
        return None
    if jobs.state[row] == "suspended" and operation.step != "cancel":  # it cannot save: its grace begins anew
        return replace(operation, since=now, limit=now + (operation.limit - operation.since)), None
    if operation.told != "done":
        if operation.tries >= TRIES:
            return _let_go(operation, snapshot, "gave up: Slurm or the spool refused")
        return _said(replace(operation, limit=now + (operation.limit - operation.since), since=now), snapshot)
    if now < operation.limit:
        return None
    return _next(operation, snapshot, row, settings)


def _next(
    operation: Operation, snapshot: Snapshot, row: int, settings: StopSettings
) -> tuple[Operation, Command | None]:
    now = snapshot.now
    fresh = replace(operation, since=now, told="", tries=0)
    if operation.step == "ask" and snapshot.jobs.signal[row]:
        return _said(replace(fresh, step="signal", limit=now + _grace(snapshot, row, settings)), snapshot)
    if operation.step == "cancel":
        return _let_go(operation, snapshot, "gave up: the job outlived its cancellation")
    if not settings.cancel:
        return _let_go(operation, snapshot, "gave up: the job did not stop, and cancelling is off")
    return _said(replace(fresh, step="cancel", limit=now + CANCEL_LIMIT), snapshot)


def _said(operation: Operation, snapshot: Snapshot) -> tuple[Operation, Command]:
    """The operation with its step's command said once more."""
    said = replace(operation, tries=operation.tries + 1, told="")
    return said, _command(said, snapshot)


def _command(operation: Operation, snapshot: Snapshot) -> Command:
    name = f"{operation.id}-{operation.step}-{snapshot.cycle}"
    if operation.step == "cancel":
        return Command(name, "cancel", operation.job, operation=operation.id)
    if operation.step == "signal":
        jobs = snapshot.jobs
        row = jobs.keys.index(operation.job)
        fields = {"signal": str(jobs.signal[row]), "to": str(jobs.signal_to[row])}
        return Command(name, "signal", operation.job, fields, operation.id)
    verb: Verb = "ask" if operation.step == "ask" else "withdraw"
    return Command(name, verb, operation.job, _request(operation), operation.id)


def _let_go(operation: Operation, snapshot: Snapshot, result: str) -> tuple[Operation, Command]:
    """The run goes on: its request is taken back until that is done, or it would stop all the same."""
    now = snapshot.now
    return _said(replace(operation, step="withdraw", since=now, limit=now, tries=0, result=result), snapshot)


def _ended(operation: Operation, snapshot: Snapshot, result: str) -> tuple[Operation, Command]:
    """Closed, with its request taken back: an ended job's file is litter, a requeued one must not stop by it."""
    closed = replace(operation, step="ended", since=snapshot.now, limit=snapshot.now, told="", result=result)
    name = f"{operation.id}-withdraw-{snapshot.cycle}"
    return closed, Command(name, "withdraw", operation.job, _request(operation), operation.id)


def _how_it_ended(operation: Operation) -> str:
    if operation.step == "ask" and operation.told == "refused":
        return "ended by itself"
    return "cancelled" if operation.step == "cancel" and operation.told != "refused" else "stopped"


def _request(operation: Operation) -> dict[str, str]:
    return {"what": "stop", "restart": str(operation.restarts)}


def _grace(snapshot: Snapshot, row: int, settings: StopSettings) -> float:
    declared = float(snapshot.jobs.grace[row])
    return settings.grace if math.isnan(declared) else declared

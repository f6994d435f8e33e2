"""A stop, step by step: asked, given its grace, signalled where declared, cancelled last. Pure."""

from dataclasses import replace

from policies.plan import Action
from slurmplug.operations.values import (
    CANCEL_LIMIT,
    TRIES,
    Case,
    Moved,
    Operation,
    Settings,
    Sight,
    cleaning,
    closing,
    grace,
    next_step,
    opened,
    said,
    said_again,
)


def begin(action: Action, sight: Sight, row: int, settings: Settings) -> Moved:
    """Ask."""
    operation = opened(action, sight, row, "ask", grace(sight.snapshot, row, settings))
    return said(replace(operation, owed=("withdraw",)), sight)


def go_on(case: Case) -> Moved | None:
    """The next step, None to wait."""
    operation, now = case.operation, case.now
    if operation.step == "withdraw":
        return cleaning(case)
    if case.row is None:
        return closing(case, _how_it_ended(operation))
    if case.later_run or case.state == "pending":
        return closing(case, "requeued meanwhile")
    if not case.may:
        if operation.step != "cancel" or operation.told == "refused":
            return closing(case, "withdrawn")
        if operation.told != "done":
            return None  # it may be cancelled already; it is not cancelled again
    if case.state == "completing":
        return None
    if case.state == "suspended" and operation.step != "cancel":  # it cannot save: its grace begins anew
        return replace(operation, since=now, limit=now + (operation.limit - operation.since)), None
    if operation.told != "done":
        if operation.tries >= TRIES:
            return closing(case, "gave up: Slurm or the spool refused")
        return said_again(operation, case.sight)
    return None if now < operation.limit else _next(case, case.row)


def _next(case: Case, row: int) -> Moved:
    operation = case.operation
    if operation.step == "ask" and case.sight.snapshot.jobs.signal[row]:
        return next_step(case, "signal", grace(case.sight.snapshot, row, case.settings))
    if operation.step == "cancel":
        return closing(case, "gave up: the job outlived its cancellation")
    if not case.settings.cancel:
        return closing(case, "gave up: the job did not stop, and cancelling is off")
    return next_step(case, "cancel", CANCEL_LIMIT)


def _how_it_ended(operation: Operation) -> str:
    if operation.step == "ask" and operation.told == "refused":
        return "ended by itself"
    return "cancelled" if operation.step == "cancel" and operation.told != "refused" else "stopped"

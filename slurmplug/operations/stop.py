"""A stop, step by step: requested, signalled if the job declared a signal, cancelled last. Pure."""

from dataclasses import replace

from policies.plan import Action
from slurmplug.operations.steps import (
    Transition,
    clean_up,
    finish,
    give_up,
    issue,
    new_operation,
    next_step,
    reissue,
    restart_limit,
)
from slurmplug.operations.values import (
    CANCEL_LIMIT,
    MAX_TRIES,
    Observation,
    Operation,
    OperationContext,
    OperationOutcome,
    OperationSettings,
)
from slurmplug.rules import idle_gpus
from slurmplug.rules.grace import grace_seconds

IGNORED = (
    "ignored: the job did not stop within its grace period, so the request was taken back; it is not asked again, and "
    "runs on (stop.cancel is off)"
)


def begin(action: Action, observation: Observation, row: int, settings: OperationSettings) -> Transition:
    """Requests the stop of the job."""
    operation = new_operation(action, observation, row, "ask", grace_seconds(observation.snapshot, row, settings.grace))
    return issue(replace(operation, pending_cleanup=("withdraw",)), observation)


def proceed(context: OperationContext) -> Transition | None:
    """The operation one step on; None to wait."""
    operation, now = context.operation, context.now
    if operation.step == "withdraw":
        return clean_up(context)
    if context.row is None:
        return finish(context, _outcome_of_ended_job(operation))
    if context.restarts_since or context.state == "pending":
        return finish(context, OperationOutcome.JOB_REQUEUED)
    if not context.allowed or _picked_up(context, context.row):
        if operation.step != "cancel" or operation.last_status == "refused":
            return finish(context, OperationOutcome.WITHDRAWN)
        if operation.last_status != "done":
            return None  # it may be cancelled already; the cancellation is not repeated
    if context.state == "completing":
        return None
    if context.state == "suspended" and operation.step != "cancel":  # it cannot save: its grace begins anew
        return restart_limit(operation, now), None
    if operation.last_status != "done":
        if operation.tries >= MAX_TRIES:
            return give_up(context, "Slurm or the spool refused")
        return reissue(operation, context.observation)
    return None if now < operation.limit else _escalate(context, context.row)


def _picked_up(context: OperationContext, row: int) -> bool:
    """Whether it was stopped for idle GPUs, and they are in use now."""
    used_at = float(context.observation.snapshot.jobs.gpus_used[row])
    return idle_gpus.picked_up(context.operation.reason, context.operation.opened, used_at)


def _escalate(context: OperationContext, row: int) -> Transition:
    operation = context.operation
    if operation.step == "ask" and context.observation.snapshot.jobs.signal[row]:
        return next_step(context, "signal", grace_seconds(context.observation.snapshot, row, context.settings.grace))
    if operation.step == "cancel":
        return give_up(context, "the job still ran after scancel")
    if not context.settings.cancel:
        return finish(context, OperationOutcome.IGNORED, result=IGNORED)
    return next_step(context, "cancel", CANCEL_LIMIT)


def _outcome_of_ended_job(operation: Operation) -> OperationOutcome:
    if operation.step == "ask" and operation.last_status == "refused":
        return OperationOutcome.JOB_ENDED
    cancelled = operation.step == "cancel" and operation.last_status != "refused"
    return OperationOutcome.CANCELLED if cancelled else OperationOutcome.STOPPED

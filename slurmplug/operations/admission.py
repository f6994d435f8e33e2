"""Admission: jobs that wait to be admitted are held by slurmplug as an operator, until a policy releases them. Pure.

The submit plugin holds such a job as a user hold, which its user could release; only an operator releases an operator's
hold. So every job that waits for admission is first held by slurmplug, whatever the policy decides about it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from slurmplug.operations import resize_pending
from slurmplug.operations.left_to_others import left_to_others
from slurmplug.operations.steps import (
    Transition,
    clean_up,
    finish,
    give_up,
    issue,
    new_operation,
    next_step,
    reissue,
)
from slurmplug.operations.values import (
    MAX_TRIES,
    NO_LIMIT,
    Observation,
    Operation,
    OperationContext,
    OperationOutcome,
)

HELD_BY_ADMIN, HELD_BY_USER = "JobHeldAdmin", "JobHeldUser"
"""Slurm's pending reasons: held by an operator, and held by its user or the submit plugin."""
HOLD_LIMIT = 60.0
"""Seconds until a hold, a release or a rewrite has to be seen in Slurm."""
REFUSED = "Slurm refused"


def missing_holds(observation: Observation) -> Iterator[Action]:
    """A hold for each job that waits for admission and that its user could release."""
    jobs = observation.snapshot.jobs
    for row in np.flatnonzero(jobs.awaits & (jobs.reason != HELD_BY_ADMIN)).tolist():
        yield Action("hold", jobs.keys[row], Reason("awaits"))


def begin(action: Action, observation: Observation, row: int) -> Transition | None:
    """Holds the job, or releases it with the GPUs and the start time that the policy decided; None to do nothing yet.

    A job is released from an operator's hold only: a user hold after a release may be the user's own, so it would not
    show whether the release took effect.

    Raises:
        ActionImpossible: with the reason.
    """
    if action.kind == "hold":
        if str(observation.snapshot.jobs.reason[row]) == HELD_BY_ADMIN:
            return None
        return issue(new_operation(action, observation, row, "hold", HOLD_LIMIT), observation)
    if str(observation.snapshot.jobs.reason[row]) == HELD_BY_USER:
        return None
    goal: dict[str, str] = {}
    undo: dict[str, str] = {}
    if action.gpus is not None and action.gpus != int(observation.snapshot.jobs.gpus[row]):
        goal, undo = resize_pending.rewrite(action, observation, row)
    if action.begin is not None and action.begin > observation.snapshot.now:
        goal["StartTime"] = f"uts{int(action.begin)}"
    operation = new_operation(action, observation, row, "rewrite" if goal else "release", HOLD_LIMIT)
    return issue(replace(operation, goal=goal, undo=undo), observation)


def proceed(context: OperationContext) -> Transition | None:
    """The operation one step on; None to wait."""
    operation = context.operation
    if operation.step == "undo":
        return clean_up(context)
    if context.row is None:
        return finish(context, OperationOutcome.JOB_ENDED)
    jobs = context.observation.snapshot.jobs
    if operation.step == "hold":
        return _holding(context, str(jobs.reason[context.row]), bool(jobs.held[context.row]))
    if not jobs.held[context.row]:
        return finish(context, OperationOutcome.DONE)
    if operation.step == "release":
        return _releasing(context, str(jobs.reason[context.row]))
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if (ended := left_to_others(context, in_place=operation.last_status == "done")) is not None:
        return ended
    if operation.step == "rewrite" and operation.last_status == "done":
        return next_step(context, "release", NO_LIMIT)
    if _failed(operation):
        return give_up(context, REFUSED, "undo")
    return reissue(operation, context.observation)


def _holding(context: OperationContext, reason: str, held: bool) -> Transition | None:
    operation = context.operation
    if reason == HELD_BY_ADMIN:
        return finish(context, OperationOutcome.DONE)
    if not held or not context.allowed:  # its user released it first, or it may no longer be held
        return finish(context, OperationOutcome.WITHDRAWN)
    if operation.tries >= MAX_TRIES:
        return give_up(context, REFUSED)
    return reissue(operation, context.observation)


def _releasing(context: OperationContext, reason: str) -> Transition | None:
    """The job is still held. Held by its user: then the release took effect, and its user has held it again.

    Such a job is no longer exempt from the protection of held jobs, as the ledger has it as released.
    """
    operation = context.operation
    if operation.last_status == "done" or reason == HELD_BY_USER:
        return finish(context, OperationOutcome.DONE, result="done, and it is held by its user or an operator")
    if operation.kind not in context.verdict.acting:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if _failed(operation):
        return give_up(context, REFUSED, "undo")
    return reissue(operation, context.observation)


def _failed(operation: Operation) -> bool:
    return operation.tries >= (2 if operation.last_status == "refused" else MAX_TRIES)

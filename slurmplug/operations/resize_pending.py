"""Resizes a pending job: its request is changed to another number of GPUs while it stays in the queue. Pure."""

from dataclasses import replace

from policies.plan import Action
from slurmplug.operations import shape, sizes
from slurmplug.operations.left_to_others import left_to_others
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import ActionImpossible
from slurmplug.operations.steps import Transition, clean_up, finish, give_up, issue, new_operation, reissue
from slurmplug.operations.values import (
    MAX_TRIES,
    Observation,
    OperationContext,
    OperationOutcome,
    PendingResizeFacts,
)

REWRITE_LIMIT = 60.0
"""Seconds until the new shape has to be seen in Slurm."""


def begin(action: Action, observation: Observation, row: int) -> Transition:
    """Rewrites the job's request; with the GPUs that it asked for, all of its request is what it was.

    Raises:
        ActionImpossible: with the reason.
    """
    gpus, before = _gpus(action), int(observation.snapshot.jobs.gpus[row])
    request = observation.request(action.job)
    earlier = sizes.in_place(observation.sizes.get(action.job), request) if request is not None else None
    if earlier is not None and gpus == earlier.asked:
        goal, undo = dict(earlier.asked_fields), dict(earlier.given_fields)
    else:
        goal, undo = rewrite(action, observation, row)
    if not goal:
        raise ActionImpossible("same shape", gpus=gpus)
    operation = new_operation(action, observation, row, "rewrite", REWRITE_LIMIT)
    facts = PendingResizeFacts(before, gpus, sizes.given((before, gpus), goal, undo, earlier))
    return issue(replace(operation, goal=goal, undo=undo, facts=facts), observation)


def rewrite(action: Action, observation: Observation, row: int) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of the update to the action's number of GPUs, and of the one that restores the present request.

    Raises:
        ActionImpossible: with the reason.
    """
    jobs = observation.snapshot.jobs
    if jobs.elements[row] > 1:  # an update would change all of them, and the size is for those that start now
        raise ActionImpossible("array")
    request = observation.requests.get(jobs.keys[row].job_id)
    if request is None:
        raise ActionImpossible("not known")
    gpus = _gpus(action)
    if request.het_id:
        raise ActionImpossible("heterogeneous")
    shape.check_limits(observation, row, gpus)
    to = shape.feasible_shape(
        observation, row, gpus, request.nodes, node_count=len(action.nodes), time_limit=action.time_limit
    )
    return sizes.with_time_limit(action.time_limit, request, update_fields(request, to))


def _gpus(action: Action) -> int:
    if action.gpus is None:
        raise ActionImpossible("not known")
    return action.gpus


def proceed(context: OperationContext) -> Transition | None:
    """The operation one step on; None to wait."""
    operation = context.operation
    if operation.step == "undo":
        return clean_up(context)
    if context.row is None:
        return finish(context, OperationOutcome.JOB_ENDED)
    in_place = operation.last_status == "done"
    if context.state == "pending" and (ended := left_to_others(context, in_place=in_place)) is not None:
        return ended
    if _has_new_shape(context) and operation.last_status != "refused":
        return finish(context, OperationOutcome.DONE)
    if context.state != "pending":
        return finish(context, OperationOutcome.STARTED)
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if operation.last_status == "refused" or operation.tries >= MAX_TRIES:  # a refused update may be done in part
        return give_up(context, "Slurm refused the change of its resources", "undo")
    if operation.last_status != "done":
        return reissue(operation, context.observation)
    return give_up(context, "Slurm did not change its resources", "undo") if context.now >= operation.limit else None


def _has_new_shape(context: OperationContext) -> bool:
    """Of a pending job, by its request, which was compared with the new shape: Slurm 22.05 shows the GPUs on nodes that
    an update added only when the job runs."""
    facts = context.operation.facts
    assert isinstance(facts, PendingResizeFacts), f"{context.operation.id} resizes no pending job"
    if context.state == "pending" and context.operation.last_status == "done" and context.request is not None:
        return True
    return int(context.observation.snapshot.jobs.gpus[context.live_row]) == facts.gpus

"""A running job is resized, moved or preempted: it saves, is requeued, and continues from its checkpoint. Pure.

save | signal   a checkpoint is requested, until it reports one
reserve         its place is secured by a reservation, in which no user's job may run; not for a preemption
requeue         until it is pending again, COMPLETING included
settle          two seconds more, before which a restart on the same node may fail
rewrite         shape, start time, and a priority above all others in one update
unreserve       the reservation is deleted, and the job, the first in the queue, takes its place
confirm         until it runs
free            its priority is what it was
watch           its first report shows whether it continued from the checkpoint
bound, lift     nodes that were required or excluded are restored once it is pending: Slurm refuses that while it runs

Before each step the job's shape is compared with what was last seen of it, or set. What others changed is left to them,
and the operation ends.
"""

import math
from dataclasses import replace

from policies.plan import Action
from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations import changes, node_lists, restart_request, shape, sizes
from slurmplug.operations.left_to_others import end_for_change, left_to_others
from slurmplug.operations.shape import ActionImpossible
from slurmplug.operations.steps import (
    Transition,
    clean_up,
    finish,
    give_up,
    issue,
    new_operation,
    next_cleanup,
    next_step,
    reissue,
    restart_limit,
    silent_step,
)
from slurmplug.operations.values import (
    CLEANUP_STEPS,
    GOES_FIRST,
    MAX_TRIES,
    NO_LIMIT,
    NODE_LIST_FIELDS,
    REQUEUE_LIMIT,
    Observation,
    Operation,
    OperationContext,
    OperationOutcome,
    OperationSettings,
    RestartFacts,
    Step,
    reservation_name,
)
from slurmplug.rules.grace import grace_seconds

SETTLE_SECONDS = 2.0
"""From a reading without COMPLETING to the update that lets the job start. slurmd refuses a credential that is no
newer, in whole seconds, than the request that ended the last run (slurm_cred_revoked in 22.05), and slurmctld then ends
the job as FAILED: 6 of 6 in the second of their requeue, none of 6 two seconds later. (25.11 ends none.)"""
MAX_RESERVE_TRIES = 3
NODE_DOWN_SECONDS = 20.0
"""How long a node may be shown as down: a slurmctld that restarts hears from its nodes a moment later."""
PROGRESS_LOST = "done, but it began again before its checkpoint"
"""The result of a restart after which the job is never restarted again."""
STARTED_AGAIN = "it started again before it was changed"
_AFTER_REQUEUE: tuple[Step, ...] = ("settle", "rewrite", "unreserve", "confirm", "watch")
"""The steps that follow the operation's own requeue."""


def begin(
    action: Action, observation: Observation, row: int, settings: OperationSettings, bound: Operation | None = None
) -> Transition:
    """Asks the job for a checkpoint.

    `bound`: an earlier operation whose nodes the job still requires or excludes, which this one replaces.

    Raises:
        ActionImpossible: with the reason.
    """
    jobs = observation.snapshot.jobs
    step: Step = "signal" if jobs.signal[row] else "save"
    operation = new_operation(action, observation, row, step, grace_seconds(observation.snapshot, row, settings.grace))
    facts = RestartFacts(
        user=str(jobs.user[row]),
        checkpoint=_known(float(jobs.checkpoint[row])),
        checkpoint_time=_known(float(jobs.checkpointed[row])),
        gpus_before=int(jobs.gpus[row]),
        gpus=restart_request.gpus_after(observation, row, action),
        nodes_before=len(restart_request.nodes_of(observation, row)),
        time_limit=action.time_limit,
    )
    goal: dict[str, str] = {}
    undo: dict[str, str] = {}
    restart_request.requeueable(observation, row)
    restored = {name: value for name, value in bound.undo.items() if name in NODE_LIST_FIELDS} if bound else {}
    if action.kind != "preempt":
        place = restart_request.find_place(observation, row, action, settings)
        facts = replace(
            facts, requested_nodes=restart_request.requested_nodes(action, settings), node_count=place.shape.nodes
        )
        goal, undo = restart_request.rewrite(observation, row, action, place, settings=settings, restored=restored)
    goal, undo = {**restored, **goal}, {**undo, **restored}
    return issue(replace(operation, pending_cleanup=("withdraw",), facts=facts, goal=goal, undo=undo), observation)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def proceed(context: OperationContext) -> Transition | None:
    """The operation one step on; None to wait."""
    step = context.operation.step
    if step in CLEANUP_STEPS and not _hands_over(context.operation):
        return clean_up(context)
    if context.operation.only_limits_nodes:
        return node_lists.proceed(context)
    if context.row is None:
        if step == "watch":
            return finish(context, OperationOutcome.DONE, result="done, and it has ended since")
        return finish(context, OperationOutcome.JOB_ENDED)
    if context.restarts_since > 1 and context.state == "pending" and step in _AFTER_REQUEUE:
        return _requeued_since(context)
    return _STEPS[step](context)


def _hands_over(operation: Operation) -> bool:
    """Whether the reservation is deleted for the job to start in its place, not to clean up."""
    return operation.step == "unreserve" and operation.outcome is None


def _facts(context: OperationContext) -> RestartFacts:
    facts = context.operation.facts
    assert isinstance(facts, RestartFacts), f"{context.operation.id} restarts no job"
    return facts


def _saving(context: OperationContext) -> Transition | None:
    if (ended := _interrupted(context)) is not None:
        return ended
    operation = context.operation
    if context.state == "completing":
        return None
    if context.state == "suspended":  # it cannot save: its grace begins anew
        return restart_limit(operation, context.now), None
    if _has_saved(context):
        jobs, row = context.observation.snapshot.jobs, context.live_row
        reported = _known(float(jobs.checkpointed[row]))
        facts = replace(_facts(context), checkpoint=float(jobs.checkpoint[row]), checkpoint_time=reported)
        context = context._replace(operation=replace(operation, facts=facts))
        return _requeue(context) if operation.kind == "preempt" else _reserve(context)
    if operation.last_status != "done":
        if operation.tries >= MAX_TRIES:
            return give_up(context, "Slurm or the spool refused")
        return reissue(operation, context.observation)
    return (
        give_up(context, "it reported no checkpoint within its grace period")
        if context.now >= operation.limit
        else None
    )


def _has_saved(context: OperationContext) -> bool:
    """Whether the job reported a checkpoint since it was requested, of an iteration that it has reported.

    A daemon that was away meanwhile sees that too; the clocks of the job and of the daemon need not agree.
    """
    jobs, facts = context.observation.snapshot.jobs, _facts(context)
    checkpoint = _known(float(jobs.checkpoint[context.live_row]))
    time = _known(float(jobs.checkpointed[context.live_row]))
    if checkpoint is None:
        return False
    is_new = checkpoint != facts.checkpoint or time not in (None, facts.checkpoint_time)
    iteration = float(jobs.iteration[context.live_row])
    return is_new and (iteration == 0 or checkpoint <= iteration + 1)


def _interrupted(context: OperationContext) -> Transition | None:
    """The end of an operation whose job was requeued by others, or may no longer be restarted; None to go on."""
    if context.restarts_since or context.state == "pending":
        return finish(context, OperationOutcome.JOB_REQUEUED)
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN)
    return left_to_others(context)


def _reserve(context: OperationContext) -> Transition:
    """Secures the place, chosen by what is free now."""
    operation, facts = context.operation, _facts(context)
    try:
        place = shape.find_place(
            context.observation,
            context.live_row,
            facts.gpus,
            requested=facts.requested_nodes,
            excluded=restart_request.excluded_nodes(context.observation, context.live_row, operation.kind),
            node_count=facts.node_count,
            time_limit=facts.time_limit,
        )
    except ActionImpossible:
        no_room = OperationOutcome.NO_ROOM
        return finish(context, no_room, result=f"{no_room.value}: other jobs took its nodes meanwhile")
    seconds = math.ceil(2 * (REQUEUE_LIMIT + context.settings.start_limit))
    facts = replace(facts, nodes=place.nodes, reservation_seconds=seconds)
    required = {"ReqNodeList": ",".join(place.nodes)} if "ReqNodeList" in operation.goal else {}
    goal, cleanup = {**operation.goal, **required}, ("unreserve", "withdraw")
    return next_step(context, "reserve", NO_LIMIT, facts=facts, goal=goal, pending_cleanup=cleanup)


def _reserving(context: OperationContext) -> Transition | None:
    operation = context.operation
    if (ended := _interrupted(context)) is not None:
        return ended
    if operation.last_status == "done" or reservation_name(operation.job) in context.observation.reservations:
        return _requeue(context)
    if operation.tries >= MAX_RESERVE_TRIES:
        return give_up(context, "Slurm refused the reservation")
    if operation.last_status != "refused":
        return issue(operation, context.observation)
    moved, command = _reserve(context)  # others may have reserved there, so perhaps elsewhere
    return (replace(moved, tries=operation.tries + 1) if moved.step == "reserve" else moved), command


def _requeue(context: OperationContext) -> Transition:
    return next_step(context, "requeue", REQUEUE_LIMIT, requeued=context.now)


def _requeueing(context: OperationContext) -> Transition | None:
    operation = context.operation
    if context.restarts_since:
        return _requeued(context)
    if context.state == "completing":
        return None
    if not context.allowed and operation.last_status not in ("done", "unknown"):
        return finish(context, OperationOutcome.WITHDRAWN)
    if operation.last_status == "refused" and operation.tries > 1:
        context = context._replace(operation=replace(operation, requeued=None))
        return give_up(context, "Slurm refused to requeue it")
    if operation.last_status != "done" or context.now >= operation.limit:
        if operation.tries >= MAX_TRIES:
            return give_up(context, "it was not requeued")
        return reissue(operation, context.observation)
    return None


def _requeued(context: OperationContext) -> Transition | None:
    seen, request = context.operation.seen, context.request
    if context.state != "pending":
        return give_up(context, STARTED_AGAIN)
    if context.operation.kind == "preempt":
        return finish(context, OperationOutcome.DONE)
    if request is None:
        return None
    if seen is not None and (ended := end_for_change(context, changes.changed_since_run(seen, request))) is not None:
        return ended
    return silent_step(context, "settle", SETTLE_SECONDS, seen=request)


def _settling(context: OperationContext) -> Transition | None:
    operation = context.operation
    if context.state != "pending":
        return give_up(context, STARTED_AGAIN)
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN)
    request = context.request
    if (ended := left_to_others(context)) is not None:
        return ended
    if context.now < operation.limit or request is None:
        return None
    try:
        reshaped = _reshaped(context, request)
    except ActionImpossible:
        return give_up(context, "Slurm does not let its request be changed")
    site_factor = _known(float(context.observation.snapshot.jobs.site_factor[context.live_row])) or 0.0
    goal = {**reshaped.goal, **GOES_FIRST, "StartTime": "now"}
    undo = {**reshaped.undo, "SiteFactor": f"{site_factor:.0f}", "Nice": str(request.nice), "StartTime": "now"}
    cleanup, limit = ("free", "unreserve", "withdraw"), context.settings.start_limit
    facts = reshaped.facts
    return next_step(
        context, "rewrite", limit, facts=facts, goal=goal, undo=undo, pending_cleanup=cleanup, seen=request
    )


def _reshaped(context: OperationContext, request: ResourceRequest) -> Operation:
    """The operation with its update made of what the pending job requests.

    Raises:
        ActionImpossible: with the reason.
    """
    operation, facts = context.operation, _facts(context)
    if operation.kind != "resize" or not facts.node_count:
        return operation
    goal, undo = restart_request.rewrite_pending(request, facts)
    earlier = sizes.in_place(context.observation.sizes.get(operation.job), request)
    size = sizes.given((facts.gpus_before, facts.gpus), goal, undo, earlier)
    goal |= {name: operation.goal[name] for name in operation.goal.keys() & NODE_LIST_FIELDS}
    undo |= {name: operation.undo[name] for name in operation.undo.keys() & NODE_LIST_FIELDS}
    return replace(operation, facts=replace(facts, size=size), goal=goal, undo=undo)


def _rewriting(context: OperationContext) -> Transition | None:
    operation = context.operation
    if context.state != "pending":
        return _confirm(context)
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if (ended := left_to_others(context, in_place=operation.last_status == "done")) is not None:
        return ended
    if operation.last_status == "done":
        return next_step(context, "unreserve", context.settings.start_limit)
    if operation.last_status == "refused" or operation.tries >= MAX_TRIES:  # a refused update may be done in part
        return give_up(context, "Slurm refused the change of its resources", "undo")
    return reissue(operation, context.observation)


def _handing_over(context: OperationContext) -> Transition | None:
    """The reservation is deleted: until then the job may start elsewhere, but nobody in its place."""
    operation = context.operation
    if context.state != "pending":
        return _confirm(context)
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if (ended := left_to_others(context, in_place=True)) is not None:
        return ended
    if operation.last_status == "done" or reservation_name(operation.job) not in context.observation.reservations:
        return _confirm(context)
    return issue(operation, context.observation)


def _confirm(context: OperationContext) -> Transition:
    moved, _ = silent_step(context, "confirm", context.settings.start_limit)
    return _confirming(context._replace(operation=moved)) or (moved, None)


def _confirming(context: OperationContext) -> Transition | None:
    if context.state == "pending":
        return _awaiting_start(context)
    if context.state == "completing":
        return None
    if int(context.observation.snapshot.jobs.gpus[context.live_row]) != _facts(context).gpus:
        return give_up(context, "it started again with another number of GPUs")
    return next_cleanup(context)  # and then `watch`


def _awaiting_start(context: OperationContext) -> Transition | None:
    operation, nodes = context.operation, context.observation.snapshot.nodes
    if not context.allowed:
        return finish(context, OperationOutcome.WITHDRAWN, "undo")
    if (ended := left_to_others(context, in_place=True)) is not None:
        return ended
    down = [name for name, up in zip(nodes.names, nodes.up, strict=True) if not up and name in operation.reserved_nodes]
    if down and context.now - operation.since >= NODE_DOWN_SECONDS:
        return give_up(context, f"its reserved nodes went down ({','.join(down)})", "undo")
    return (
        give_up(context, "it did not start on its reserved nodes in time", "undo")
        if context.now >= operation.limit
        else None
    )


def _watching(context: OperationContext) -> Transition | None:
    first = _known(float(context.observation.snapshot.jobs.resumed[context.live_row]))
    checkpoint = _facts(context).checkpoint
    if first is not None:
        if checkpoint is not None and first < checkpoint:
            return finish(context, OperationOutcome.PROGRESS_LOST, result=PROGRESS_LOST)
        return finish(context, OperationOutcome.DONE)
    if context.now >= context.operation.limit:
        return finish(context, OperationOutcome.DONE, result="done, and it has reported nothing since")
    return None


def _requeued_since(context: OperationContext) -> Transition:
    """The job was requeued once more, as after its node failed: it keeps the shape that it has and waits.

    To start it now would bring it to a node where the run that was lost may not have ended, or has ended in this very
    second: Slurm refuses that launch, and the job ends FAILED (`Job credential revoked`) or held.
    """
    operation = context.operation
    if operation.step == "settle" or (operation.step == "rewrite" and operation.last_status != "done"):
        return finish(context, OperationOutcome.JOB_REQUEUED)
    return finish(context, OperationOutcome.DONE, result="done, and it was requeued since")


def stop_watching(context: OperationContext) -> Transition:
    """Ends an operation at `watch` whose job is to be stopped: where it continued is not waited for."""
    return finish(context, OperationOutcome.DONE, result="done, and it is being stopped")


_STEPS = {
    "save": _saving,
    "signal": _saving,
    "reserve": _reserving,
    "requeue": _requeueing,
    "settle": _settling,
    "rewrite": _rewriting,
    "unreserve": _handing_over,
    "confirm": _confirming,
    "watch": _watching,
}

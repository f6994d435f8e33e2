"""How an operation goes from step to step: commands issued, steps begun, outcomes settled, leftovers removed. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from policies.plan import Action
from policies.snapshot import Snapshot
from slurmplug.cluster import tres
from slurmplug.cluster.port import Command, ResourceRequest, Verb
from slurmplug.operations import changes, stop_request
from slurmplug.operations.values import (
    CLEANUP_STEPS,
    GPU_FIELDS,
    MAX_TRIES,
    NO_LIMIT,
    NODE_LIST_FIELDS,
    PRIORITY_FIELDS,
    RESERVED_FOR,
    Observation,
    Operation,
    OperationContext,
    OperationOutcome,
    RestartFacts,
    Step,
    reservation_name,
)

Transition: TypeAlias = tuple[Operation, Command | None]
"""An operation as it is after this cycle, and the command to issue now."""


def new_operation(action: Action, observation: Observation, row: int, step: Step, limit: float) -> Operation:
    """A new operation at its first step, whose command is not issued yet. `limit`: seconds that the step may take."""
    now = observation.snapshot.now
    return Operation(
        id=f"{observation.snapshot.cycle}-{action.kind}-{action.job.job_id}",
        kind=action.kind,
        job=action.job,
        reason=action.reason,
        opened=now,
        step=step,
        since=now,
        limit=now + limit,
        restarts=int(observation.snapshot.jobs.restarts[row]),
        seen=observation.request(action.job),
    )


def issue(operation: Operation, observation: Observation) -> Transition:
    """The operation with its step's command issued once more."""
    issued = replace(operation, tries=operation.tries + 1, last_status="")
    return issued, _command(issued, observation)


def reissue(operation: Operation, observation: Observation) -> Transition:
    """As `issue`, with the step's time limit restarted: a step begins when its command took effect."""
    return issue(restart_limit(operation, observation.snapshot.now), observation)


def restart_limit(operation: Operation, now: float) -> Operation:
    """The operation with its present step beginning now, and as long a time limit as before."""
    return replace(operation, since=now, limit=now + (operation.limit - operation.since))


def next_step(context: OperationContext, step: Step, limit: float, **changes: object) -> Transition:
    """The next step, its command issued. `limit`: seconds it may take; `changes`: other fields of the operation."""
    moved, _ = silent_step(context, step, limit, **changes)
    return issue(moved, context.observation)


def silent_step(context: OperationContext, step: Step, limit: float, **changes: object) -> Transition:
    """As `next_step`, for a step without a command."""
    now = context.now
    moved = replace(
        context.operation, step=step, since=now, limit=now + limit, last_status="", tries=0,
        **changes,  # type: ignore[arg-type]
    )  # fmt: skip
    return moved, None


def finish(context: OperationContext, outcome: OperationOutcome, *cleanup: Step, result: str = "") -> Transition:
    """The outcome is settled: what is left over is removed, one step a cycle, and then the operation ends.

    `cleanup`: steps to take besides those pending. `result`: the message for users; the outcome's own by default.
    """
    steps = {*context.operation.pending_cleanup, *cleanup}
    operation = replace(
        context.operation,
        outcome=outcome,
        result=result or outcome.value,
        pending_cleanup=tuple(step for step in CLEANUP_STEPS if step in steps),
    )
    return next_cleanup(context._replace(operation=operation))


def give_up(context: OperationContext, why: str, *cleanup: Step) -> Transition:
    """As `finish`, for an operation that failed; `why` is shown to users."""
    return finish(context, OperationOutcome.GAVE_UP, *cleanup, result=f"{OperationOutcome.GAVE_UP.value}: {why}")


def next_cleanup(context: OperationContext) -> Transition:
    """The next cleanup step that is needed; after the last one the end, or `watch` where the outcome is not settled."""
    operation = context.operation
    for step in operation.pending_cleanup:
        if step == "withdraw" and context.run_ended and operation.outcome is not None:
            return _end_with_withdrawal(context)
        if _needs_cleanup(context, step):
            return next_step(context, step, NO_LIMIT)
        operation = replace(
            operation, pending_cleanup=tuple(each for each in operation.pending_cleanup if each != step)
        )
        context = context._replace(operation=operation)
    if operation.outcome is None:
        return silent_step(context, "watch", context.settings.watch_limit)
    if _last_step(context) == "bound" and context.state == "pending":
        return next_step(context, "lift", NO_LIMIT)
    return silent_step(context, _last_step(context), 0.0)


def _end_with_withdrawal(context: OperationContext) -> Transition:
    """The request to a run that has ended is removed without waiting for the answer."""
    _, command = next_step(context, "withdraw", NO_LIMIT)
    return silent_step(context, _last_step(context), 0.0, pending_cleanup=())[0], command


def _last_step(context: OperationContext) -> Step:
    """`bound` where nodes that the job requires or excludes are to be restored: only while it is pending."""
    if context.row is None or not context.operation.limits_nodes:
        return "ended"
    return "bound" if context.state != "pending" or node_lists_in_place(context) else "ended"


def node_lists_in_place(context: OperationContext) -> bool:
    """Whether a list of nodes that the operation set is still there, as far as is known."""
    operation, request = context.operation, context.request
    undo = {name: operation.undo[name] for name in operation.undo.keys() & NODE_LIST_FIELDS}
    return request is None or bool(changes.still_in_place(operation.goal, undo, request, operation.seen))


def clean_up(context: OperationContext) -> Transition:
    """Goes on with the present step of CLEANUP_STEPS, until it is done or not needed any more."""
    operation = context.operation
    over = operation.last_status == "done" or not _needs_cleanup(context, operation.step)
    over |= operation.step == "withdraw" and context.run_ended and operation.last_status != ""
    given_up = operation.step in ("undo", "free") and operation.tries >= MAX_TRIES
    if over or given_up:
        pending = tuple(step for step in operation.pending_cleanup if step != operation.step)
        return next_cleanup(context._replace(operation=replace(operation, pending_cleanup=pending)))
    return issue(operation, context.observation)


def _needs_cleanup(context: OperationContext, step: Step) -> bool:
    """Whether there is something to take back, as far as the snapshot shows."""
    operation, observation = context.operation, context.observation
    if step == "unreserve":
        return reservation_name(operation.job) in observation.reservations
    if step == "withdraw":
        return True
    if context.row is None:
        return False
    if step == "undo":
        return context.state == "pending" and bool(_undone(operation, observation))
    return bool(_freed(operation, context.request))


def _command(operation: Operation, observation: Observation) -> Command:
    name = f"{operation.id}-{operation.step}-{observation.snapshot.cycle}"
    verb, fields = _verb(operation, observation)
    if verb == "update":
        fields = with_gpus(fields, observation.request(operation.job))
    return Command(name, verb, operation.job, fields, operation.id)


def with_gpus(fields: Mapping[str, str], request: ResourceRequest | None) -> Mapping[str, str]:
    """The fields of an update that changes nothing of a job that has just started.

    NumNodes alone would shrink it; with a field of GPUs Slurm refuses the whole. So where none is changed, the present
    value is sent along, and where that is not per node, NumNodes is left as it is.
    """
    if "NumNodes" not in fields or not GPU_FIELDS.isdisjoint(fields):
        return fields
    gpus = tres.gpus(request.gres) if request is not None and "," not in request.gres else {}
    if len(gpus) != 1:
        return {name: value for name, value in fields.items() if name != "NumNodes"}
    [(kind, each)] = gpus.items()
    return {**fields, "Gres": f"gpu:{kind}:{each}" if kind else f"gpu:{each}"}


_WITHOUT_FIELDS: Mapping[Step, Verb] = {
    "requeue": "requeue",
    "cancel": "cancel",
    "hold": "hold",
    "release": "release",
}
"""The steps whose command has no fields."""


def _verb(operation: Operation, observation: Observation) -> tuple[Verb, Mapping[str, str]]:
    """The verb and the fields of the present step's command."""
    step = operation.step
    if step in _WITHOUT_FIELDS:
        return _WITHOUT_FIELDS[step], {}
    if step == "signal":
        jobs = observation.snapshot.jobs
        row = jobs.keys.index(operation.job)
        return "signal", {"signal": str(jobs.signal[row]), "to": str(jobs.signal_to[row])}
    if step in ("ask", "save"):
        return "ask", _asked(operation, observation)
    if step == "withdraw":
        return "withdraw", request_fields(operation)
    if step == "unreserve":
        return "unreserve", {"name": reservation_name(operation.job)}
    if step == "reserve":
        return "reserve", _reservation_fields(operation)
    if step == "rewrite":
        return "update", operation.goal
    if step == "free":
        return "update", _freed(operation, observation.request(operation.job))
    undo = _undone(operation, observation)
    return "update", undo if step == "undo" else {name: undo[name] for name in undo.keys() & NODE_LIST_FIELDS}


def _undone(operation: Operation, observation: Observation) -> Mapping[str, str]:
    """What is taken back of the new shape: what others have changed since is theirs."""
    request = observation.request(operation.job)
    shape = {name: value for name, value in operation.undo.items() if name not in PRIORITY_FIELDS}
    if _requeued_again(operation, observation.snapshot):
        shape.pop("StartTime", None)
    if request is not None:
        shape = changes.still_in_place(operation.goal, shape, request, operation.seen)
    priority = _freed(operation, request)
    return {**shape, **{name: priority[name] for name in priority.keys() & PRIORITY_FIELDS}}


def _requeued_again(operation: Operation, snapshot: Snapshot) -> bool:
    """Whether the job was requeued after the operation's own requeue: it starts when Slurm says."""
    rows = [row for row, key in enumerate(snapshot.jobs.keys) if key == operation.job]
    return any(snapshot.jobs.restarts[row] - operation.restarts > 1 for row in rows)


def _freed(operation: Operation, request: ResourceRequest | None) -> Mapping[str, str]:
    """What makes a job wait like any other again, as far as it does not yet: its priority, and no reservation.

    A reservation only where an older release let the job into it. A nice value that somebody else set since is theirs.
    """
    fields: dict[str, str] = {}
    if request is None or str(request.nice) == operation.goal.get("Nice"):
        fields = {name: value for name, value in operation.undo.items() if name in PRIORITY_FIELDS}
    if request is not None and request.reservation == reservation_name(operation.job):
        fields["ReservationName"] = ""
    return fields


def _asked(operation: Operation, observation: Observation) -> dict[str, str]:
    """The fields of a request: to save, or to stop, which says why."""
    fields, jobs = request_fields(operation), observation.snapshot.jobs
    if operation.kind != "stop":
        return fields
    return {**fields, "content": stop_request.content(operation.reason, jobs, jobs.keys.index(operation.job))}


def _reservation_fields(operation: Operation) -> dict[str, str]:
    facts = operation.facts
    assert isinstance(facts, RestartFacts), f"{operation.id} reserves nothing"
    return {
        "name": reservation_name(operation.job),
        "nodes": ",".join(facts.nodes),
        "user": RESERVED_FOR,
        "seconds": str(facts.reservation_seconds),
    }


def request_fields(operation: Operation) -> dict[str, str]:
    """The fields of the request to the run that the operation began with, to stop or to save."""
    return {"what": "stop" if operation.kind == "stop" else "checkpoint", "restart": str(operation.restarts)}

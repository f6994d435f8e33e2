"""One cycle of all operations: those that are open take their next step, those newly allowed begin. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools
from slurmplug.cluster.port import Command
from slurmplug.intake.job_record import Admission
from slurmplug.operations import admission, resize_pending, restart, restore_nice, stop
from slurmplug.operations.shape import ActionImpossible
from slurmplug.operations.steps import Transition, restart_limit
from slurmplug.operations.values import (
    Observation,
    Operation,
    OperationContext,
    OperationOutcome,
    OperationSettings,
    PendingResizeFacts,
    RestartFacts,
)
from slurmplug.rules.guardrails import MOVES, Verdict

KINDS = MOVES | {"stop", "hold", "release"}
"""The kinds of action that are carried out as operations."""
_SHAPING = MOVES | {"release"}
"""The kinds that may change a job's shape."""
_GOES_FIRST_AT = frozenset({"rewrite", "unreserve", "confirm", "undo", "free"})
"""The steps at which a job has the priority to take its place."""


def jobs_to_query(snapshot: Snapshot, verdict: Verdict, opened: Sequence[Operation]) -> frozenset[JobKey]:
    """The jobs whose resource requests the operations of this cycle need in `Observation.requests`."""
    if verdict.frozen:
        return frozenset()
    lasting = [operation for operation in opened if operation.kind != "hold"]
    new = frozenset(action.job for action in verdict.actions if action.kind in _SHAPING) - _busy_jobs(lasting)
    changing = [operation for operation in opened if operation.kind in _SHAPING and operation.step != "watch"]
    jobs = snapshot.jobs
    pending = {key for key, waits in zip(jobs.keys, jobs.pending.tolist(), strict=True) if waits} if changing else set()
    return new | frozenset(each.job for each in changing if not each.only_limits_nodes or each.job in pending)


def to_be_ranked(snapshot: Snapshot, opened: Sequence[Operation], advanced: Sequence[Operation]) -> Bools:
    """(n,) the jobs that may be ranked: not those that an operation has put first, until they run.

    `advanced`: the operations of `opened` that changed in this cycle, and new ones.
    """
    now = {operation.id: operation for operation in (*opened, *advanced)}.values()
    first = {each.job for each in now if goes_first(each)}
    return np.array([key not in first for key in snapshot.jobs.keys], dtype=bool)


def goes_first(operation: Operation) -> bool:
    """Whether the operation may have put its job first in the queue, and not taken that back yet."""
    return "Nice" in operation.goal and operation.step in _GOES_FIRST_AT


def urgent(opened: Sequence[Operation]) -> bool:
    """Whether the next cycle should come soon: a job waits for its next step, and holds GPUs without training."""
    idle = {"watch", "bound"}
    return any(operation.step not in idle for operation in opened if operation.kind != "stop")


def admissions(operations: Sequence[Operation], commands: Sequence[Command]) -> dict[JobKey, Admission]:
    """The admission state of jobs once these operations and commands are written.

    A job counts as released before its release is issued, and as held again where its release failed.
    """
    failed = (OperationOutcome.GAVE_UP, OperationOutcome.WITHDRAWN)
    held: Mapping[JobKey, Admission] = {
        operation.job: "held"
        for operation in operations
        if operation.kind == "release" and operation.step == "ended" and operation.outcome in failed
    }
    return {**held, **{command.job: "gone" for command in commands if command.verb == "release"}}


def _busy_jobs(opened: Sequence[Operation]) -> frozenset[JobKey]:
    """The jobs for which nothing new may begin."""
    return frozenset(operation.job for operation in opened if not operation.only_limits_nodes)


def advance(
    observation: Observation, verdict: Verdict, opened: Sequence[Operation], settings: OperationSettings
) -> tuple[tuple[Operation, ...], tuple[Command, ...], tuple[tuple[Action, Reason], ...]]:
    """Takes every open operation one step on, and begins those newly allowed.

    Returns the operations that are new or changed, the commands to issue now, and the allowed actions that cannot be
    carried out, each with the reason. A frozen verdict gives nothing.
    """
    if verdict.frozen or not (opened or verdict.acting):
        return (), (), ()
    rows = {key: row for row, key in enumerate(observation.snapshot.jobs.keys)}
    transitions, observation = _proceed_all(observation, verdict, opened, rows, settings=settings)
    begun, impossible = _begin_all(observation, verdict, opened, transitions, rows=rows, settings=settings)
    transitions |= begun
    operations = tuple(operation for operation, _ in transitions.values())
    commands = tuple(command for _, command in transitions.values() if command is not None)
    return operations, commands, impossible


def _proceed_all(
    observation: Observation,
    verdict: Verdict,
    opened: Sequence[Operation],
    rows: Mapping[JobKey, int],
    *,
    settings: OperationSettings,
) -> tuple[dict[str, Transition], Observation]:
    """The open operations that change, by id, and the observation with the nodes that they reserve in this cycle."""
    transitions: dict[str, Transition] = {}
    for before in opened:
        operation = _not_in_future(before, observation.snapshot.now)
        context = OperationContext(operation, observation, rows.get(operation.job), verdict, settings)
        transition = _proceed(context)
        if transition is None and operation is not before:
            transition = operation, None
        if transition is not None:
            transitions[operation.id] = transition
            after = transition[0]
            if after.step == "reserve":  # no other operation may choose the same place in this cycle
                now = dict.fromkeys(after.reserved_nodes, observation.snapshot.now)
                observation = replace(observation, reserved_from={**observation.reserved_from, **now})
    return transitions, observation


def _begin_all(
    observation: Observation,
    verdict: Verdict,
    opened: Sequence[Operation],
    transitions: Mapping[str, Transition],
    *,
    rows: Mapping[JobKey, int],
    settings: OperationSettings,
) -> tuple[dict[str, Transition], tuple[tuple[Action, Reason], ...]]:
    """The operations that begin and those that they replace, by id, and the actions that are impossible."""
    bound = {operation.job: operation for operation in opened if operation.only_limits_nodes}
    watched = {operation.job: operation for operation in opened if operation.step == "watch"}
    held = {each.job for each, _ in transitions.values() if each.kind == "hold" and each.step == "ended"}
    busy = set(_busy_jobs(opened)) - held  # a job that is now held as it should be can be released at once
    begun: dict[str, Transition] = {}
    impossible: list[tuple[Action, Reason]] = []
    for requested in _actions_to_begin(observation, verdict):
        action = _for_leader(requested, observation, rows)
        stops = action.kind == "stop" and action.job in watched  # an operation that only watches does not prevent it
        if (action.job in busy and not stops) or action.job not in rows:
            continue
        row, earlier = rows[action.job], bound.get(action.job)
        try:
            transition = _begin(action, observation, row, settings, earlier)
        except ActionImpossible as why:
            impossible.append((action, why.reason))
            continue
        if transition is None:
            continue
        busy.add(action.job)
        operation = transition[0]
        begun[operation.id] = transition
        if stops:
            ended = watched.pop(action.job)
            context = OperationContext(ended, observation, row, verdict, settings)
            begun[ended.id] = restart.stop_watching(context)
        if isinstance(operation.facts, RestartFacts) and earlier is not None:  # it restores the nodes in its place
            result = f"{earlier.result}, then {operation.kind}"
            begun[earlier.id] = replace(earlier, step="ended", since=observation.snapshot.now, result=result), None
    if verdict.acting:
        begun |= {freed[0].id: freed for freed in restore_nice.begin_all(observation, busy)}
    return begun, tuple(impossible)


def _not_in_future(operation: Operation, now: float) -> Operation:
    """The operation with its step's limit counted from now where the clock was set back to before the step began."""
    if operation.since <= now:
        return operation
    return restart_limit(operation, now)


def _actions_to_begin(observation: Observation, verdict: Verdict) -> list[Action]:
    """The allowed actions, and holds for jobs that wait for admission; stops come first."""
    actions = [action for action in verdict.actions if action.kind in KINDS]
    if "hold" in verdict.acting:
        rows = {key: row for row, key in enumerate(observation.snapshot.jobs.keys)}
        actions += [
            action
            for action in admission.missing_holds(observation)
            if not any(mask[rows[action.job]] for mask in verdict.protected_by.values())
        ]
    return sorted(actions, key=lambda action: action.kind != "stop")


def _for_leader(action: Action, observation: Observation, rows: Mapping[JobKey, int]) -> Action:
    """The action; a stop of a component of a heterogeneous job is one of its leader, by whose id it reports."""
    leader = observation.leader(action.job) if action.kind == "stop" else action.job.job_id
    if leader == action.job.job_id:
        return action
    return next((replace(action, job=key) for key in rows if key.job_id == leader), action)


def _begin(
    action: Action, observation: Observation, row: int, settings: OperationSettings, bound: Operation | None
) -> Transition | None:
    if action.kind == "stop":
        return stop.begin(action, observation, row, settings)
    if action.kind in ("hold", "release"):
        return admission.begin(action, observation, row)
    if action.kind == "resize" and observation.snapshot.jobs.state[row] == "pending":
        return resize_pending.begin(action, observation, row)
    return restart.begin(action, observation, row, settings, bound)


def _proceed(context: OperationContext) -> Transition | None:
    operation = context.operation
    if operation.kind == "stop":
        return stop.proceed(context)
    if operation.kind in ("hold", "release"):
        return admission.proceed(context)
    if isinstance(operation.facts, PendingResizeFacts):
        return resize_pending.proceed(context)
    return restart.proceed(context)

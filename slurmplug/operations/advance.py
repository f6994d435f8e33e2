"""All operations, one cycle on: those that are open take their next step, those newly allowed begin. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from policies.plan import Action, Reason
from policies.snapshot import JobKey
from slurmplug.cluster.port import Command
from slurmplug.intake.job_record import Admission
from slurmplug.operations import admission, restart, stop, waiting
from slurmplug.operations.shape import Refused
from slurmplug.operations.values import Case, Moved, Operation, Settings, Sight
from slurmplug.rules.guardrails import Verdict

MOVES = frozenset({"resize", "migrate", "preempt"})
KINDS = MOVES | {"stop", "hold", "release"}
"""The actions that are operations."""


def questions(verdict: Verdict, opened: Sequence[Operation]) -> frozenset[JobKey]:
    """The jobs of which `Sight.asked` must tell how they asked, for the actions that are about to begin."""
    if verdict.frozen:
        return frozenset()
    kinds = MOVES | {"release"}
    lasting = [operation for operation in opened if operation.kind != "hold"]
    begin = frozenset(action.job for action in verdict.actions if action.kind in kinds) - _busy(lasting)
    return begin | frozenset(operation.job for operation in opened if "free" in operation.owed)


def urgent(opened: Sequence[Operation]) -> bool:
    """Whether a job waits for its next step, so that the next cycle should come soon: what it trains may be lost."""
    idle = {"watch", "bound"}
    return any(operation.step not in idle for operation in opened if operation.kind != "stop")


def admissions(operations: Sequence[Operation], commands: Sequence[Command]) -> dict[JobKey, Admission]:
    """Where jobs stand on their way to admission once this is written: gone before they are let go, and back on it
    where that came to nothing."""
    kept: Mapping[JobKey, Admission] = {
        operation.job: "held"
        for operation in operations
        if operation.kind == "release"
        and operation.step == "ended"
        and operation.result.startswith(("gave up", "withdrawn"))
    }
    return {**kept, **{command.job: "gone" for command in commands if command.verb == "release"}}


def _busy(opened: Sequence[Operation]) -> frozenset[JobKey]:
    """The jobs for which nothing new may begin."""
    return frozenset(operation.job for operation in opened if not _is_bound(operation))


def advance(
    sight: Sight, verdict: Verdict, opened: Sequence[Operation], settings: Settings
) -> tuple[tuple[Operation, ...], tuple[Command, ...], tuple[tuple[Action, Reason], ...]]:
    """Take every open operation one step on, and begin those newly allowed.

    Returns the operations that are new or changed, the commands to say now, and what was allowed but cannot be carried
    out, with its reason. A frozen verdict gives nothing.
    """
    if verdict.frozen or not (opened or verdict.actions or "hold" in verdict.acting):
        return (), (), ()
    rows = {key: row for row, key in enumerate(sight.snapshot.jobs.keys)}
    moved: dict[str, Moved] = {}
    for before in opened:
        operation = _not_of_later(before, sight.snapshot.now)
        pair = _go_on(Case(operation, sight, rows.get(operation.job), verdict, settings))
        if pair is None and operation is not before:
            pair = operation, None
        if pair is not None:
            moved[operation.id] = pair
            if pair[0].step == "reserve":  # no other operation is to choose the same place in this cycle
                sight = replace(sight, set_aside=sight.set_aside | set(pair[0].nodes))
    bound = {operation.job: operation for operation in opened if _is_bound(operation)}
    held = {o.job for o, _ in moved.values() if o.kind == "hold" and o.step == "ended"}
    taken = set(_busy(opened)) - held  # who is held as it should be can be let go at once
    refused: list[tuple[Action, Reason]] = []
    watched = {operation.job: operation for operation in opened if operation.step == "watch"}
    for action in _beginning(sight, verdict):
        action = _of_the_whole(action, sight, rows)  # noqa: PLW2901 a component stops with its job
        stops = action.kind == "stop" and action.job in watched  # what is only watched is not in the way
        if (action.job in taken and not stops) or action.job not in rows:
            continue
        try:
            pair = _begin(action, sight, rows[action.job], settings, bound.get(action.job))
        except Refused as why:
            refused.append((action, why.reason))
            continue
        if pair is None:
            continue
        taken.add(action.job)
        moved[pair[0].id] = pair
        if stops:
            ended = watched.pop(action.job)
            moved[ended.id] = restart.unwatched(Case(ended, sight, rows[action.job], verdict, settings))
        if pair[0].kind in MOVES and (last := bound.get(action.job)) is not None:
            over = replace(last, step="ended", since=sight.snapshot.now, result=f"{last.result}, then {pair[0].kind}")
            moved[last.id] = over, None
    operations = tuple(operation for operation, _ in moved.values())
    commands = tuple(command for _, command in moved.values() if command is not None)
    return operations, commands, tuple(refused)


def _not_of_later(operation: Operation, now: float) -> Operation:
    """A clock that was set back does not make a step last until it is as late again."""
    if operation.since <= now:
        return operation
    return replace(operation, since=now, limit=now + (operation.limit - operation.since))


def _beginning(sight: Sight, verdict: Verdict) -> list[Action]:
    """What may begin: the allowed actions, and holds for those who wait to be admitted; a stop goes first."""
    actions = [action for action in verdict.actions if action.kind in KINDS]
    if "hold" in verdict.acting:
        rows = {key: row for row, key in enumerate(sight.snapshot.jobs.keys)}
        actions += [
            action
            for action in admission.wanted_holds(sight)
            if not any(mask[rows[action.job]] for mask in verdict.spared.values())
        ]
    return sorted(actions, key=lambda action: action.kind != "stop")


def _of_the_whole(action: Action, sight: Sight, rows: Mapping[JobKey, int]) -> Action:
    """A stop of a component of a heterogeneous job is one of its leader, by whose id it reports and is asked."""
    leader = sight.leader(action.job) if action.kind == "stop" else action.job.job_id
    if leader == action.job.job_id:
        return action
    return next((replace(action, job=key) for key in rows if key.job_id == leader), action)


def _begin(action: Action, sight: Sight, row: int, settings: Settings, bound: Operation | None) -> Moved | None:
    if action.kind == "stop":
        return stop.begin(action, sight, row, settings)
    if action.kind in ("hold", "release"):
        return admission.begin(action, sight, row)
    if action.kind == "resize" and sight.snapshot.jobs.state[row] == "pending":
        return waiting.begin(action, sight, row)
    return restart.begin(action, sight, row, settings, bound)


def _go_on(case: Case) -> Moved | None:
    operation = case.operation
    if operation.kind == "stop":
        return stop.go_on(case)
    if operation.kind in ("hold", "release"):
        return admission.go_on(case)
    return waiting.go_on(case) if _of_a_waiting_job(operation) else restart.go_on(case)


def _of_a_waiting_job(operation: Operation) -> bool:
    """A waiting job was asked for no checkpoint."""
    return "checkpoint" not in operation.facts


def _is_bound(operation: Operation) -> bool:
    return operation.step in ("bound", "lift")

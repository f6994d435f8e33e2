"""What the guardrails count of past resizes, migrations and preemptions, whichever ledger keeps them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.snapshot import JobKey
from slurmplug.operations.sizes import changed_at, given_sizes
from slurmplug.operations.values import Operation, OperationOutcome
from slurmplug.rules.guardrails import MOVES, GivenSize, Requeue, lately


@dataclass(frozen=True)
class MoveHistory:
    """The fields of `guardrails.Past` by these names."""

    requeues: tuple[Requeue, ...]
    moving: Mapping[JobKey, str]
    move_gave_up: frozenset[JobKey]
    found_no_room: Mapping[JobKey, float]
    lost_progress: frozenset[JobKey]
    sizes: Mapping[JobKey, GivenSize]
    size_changed: Mapping[JobKey, float]


def move_history(operations: Iterable[tuple[Operation, str]], now: float) -> MoveHistory:
    """The history of operations, each with its job's user: of all jobs that live, and those of the last hour.

    A resize of a pending job ends no run, so it is no requeue.
    """
    moves = [(each, user) for each, user in operations if each.kind in MOVES]
    return MoveHistory(
        requeues=tuple(Requeue(each.job, user, each.requeued) for each, user in moves if each.requeued is not None),
        moving={each.job: user for each, user in moves if each.step != "ended" and not each.only_limits_nodes},
        move_gave_up=frozenset(each.job for each, _ in moves if gave_up_lately(each, now)),
        sizes=given_sizes(each for each, _ in moves),
        size_changed=changed_at(each for each, _ in moves),
        found_no_room=_found_no_room(each for each, _ in moves),
        lost_progress=frozenset(each.job for each, _ in moves if each.outcome is OperationOutcome.PROGRESS_LOST),
    )


def gave_up_lately(operation: Operation, now: float) -> bool:
    """Whether the operation was given up in the last hour; now: seconds since the epoch."""
    return operation.outcome is OperationOutcome.GAVE_UP and lately(operation.since, now)


def _found_no_room(moves: Iterable[Operation]) -> Mapping[JobKey, float]:
    """When that was found last of each job."""
    found = [(each.since, each.job) for each in moves if each.outcome is OperationOutcome.NO_ROOM]
    return {job: since for since, job in sorted(found)}

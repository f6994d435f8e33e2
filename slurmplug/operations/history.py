"""What operations that were mean to the guardrails: counted alike whoever keeps them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.snapshot import JobKey
from slurmplug.operations.restart import LOST
from slurmplug.operations.values import Operation
from slurmplug.rules.guardrails import HOUR, MOVES, Requeue


@dataclass(frozen=True)
class Moves:
    """Fields of `Past`."""

    requeues: tuple[Requeue, ...]
    moving: Mapping[JobKey, str]
    move_gave_up: frozenset[JobKey]
    forgetful: frozenset[JobKey]


def moves_of(operations: Iterable[tuple[Operation, str]], now: float) -> Moves:
    """Of operations and their jobs' users: all that are open, of jobs that live, or that ended within the last hour.

    A resize of a waiting job ends no run, so it is no requeue.
    """
    moves = [(each, user) for each, user in operations if each.kind in MOVES]
    return Moves(
        requeues=tuple(Requeue(each.job, user, each.requeued) for each, user in moves if each.requeued is not None),
        moving={each.job: user for each, user in moves if each.step not in ("ended", "bound", "lift")},
        move_gave_up=frozenset(
            each.job for each, _ in moves if each.result.startswith("gave up") and each.since > now - HOUR
        ),
        forgetful=frozenset(each.job for each, _ in moves if each.result == LOST),
    )

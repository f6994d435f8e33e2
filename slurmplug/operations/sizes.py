"""The sizes that jobs were given in place of those that they asked for, so that they can get these back. Pure."""

import math
from collections.abc import Iterable, Mapping

from policies.snapshot import JobKey
from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations import changes
from slurmplug.operations.values import GPU_FIELDS, Operation, OperationOutcome
from slurmplug.rules.guardrails import GivenSize

_IN_PLACE = frozenset({OperationOutcome.DONE, OperationOutcome.PROGRESS_LOST})
"""The outcomes of a resize after which the job has the new size."""


def given_sizes(operations: Iterable[Operation]) -> dict[JobKey, GivenSize]:
    """By job, the size that the last of its resizes has given it, where that is not the one that it asked for."""
    found: dict[JobKey, GivenSize] = {}
    for each in sorted(operations, key=lambda operation: operation.opened):
        if each.facts is not None and each.facts.size is not None and each.outcome in _IN_PLACE:
            found[each.job] = each.facts.size
    return {job: size for job, size in found.items() if _differs(size)}


def _differs(size: GivenSize) -> bool:
    gpus = any(size.asked_fields[name] != size.given_fields[name] for name in GPU_FIELDS & size.given_fields.keys())
    return gpus or size.asked != size.given  # more tasks with as many GPUs each


def changed_at(operations: Iterable[Operation]) -> dict[JobKey, float]:
    """By job, when the last change of its size began, in seconds since the epoch."""
    changed = (each for each in operations if each.facts is not None and each.facts.size is not None)
    return {each.job: each.opened for each in sorted(changed, key=lambda operation: operation.opened)}


def given(
    gpus: tuple[int, int], goal: Mapping[str, str], undo: Mapping[str, str], earlier: GivenSize | None
) -> GivenSize:
    """The size after an update of `goal`, from and to these numbers of GPUs; `undo` restores what was before it.

    earlier: the size that the job was given before, if it is still in place.
    """
    asked = {**undo, **(earlier.asked_fields if earlier else {})}
    fields = {**(earlier.given_fields if earlier else {}), **goal}
    before, after = gpus
    return GivenSize(earlier.asked if earlier else before, after, asked, fields)


def with_time_limit(
    seconds: float | None, request: ResourceRequest, fields: tuple[dict[str, str], dict[str, str]]
) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of an update and of the one that takes it back, with a time limit; None for the job's own."""
    goal, undo = fields
    if seconds is None or request.time_limit is None:
        return goal, undo
    before, after = round(request.time_limit / 60), math.ceil(seconds / 60)
    return {**goal, "TimeLimit": str(after)}, {**undo, "TimeLimit": str(before)}


def in_place(size: GivenSize | None, request: ResourceRequest) -> GivenSize | None:
    """The size without the fields that the job's user or an operator has changed since; None if these are its GPUs."""
    if size is None:
        return None
    ours = changes.still_in_place(size.given_fields, size.asked_fields, request)
    if GPU_FIELDS.isdisjoint(ours):
        return None
    asked = {
        name: value
        for name, value in size.asked_fields.items()
        if name in ours or value == size.given_fields[name]  # GPUs per task are changed with all that goes with them
    }
    return GivenSize(size.asked, size.given, asked, {name: size.given_fields[name] for name in asked})

"""The end of an operation to whose job others have given another shape: what they changed is left to them. Pure."""

from slurmplug.operations import changes
from slurmplug.operations.steps import Transition, give_up
from slurmplug.operations.values import NODE_LIST_FIELDS, OperationContext, RestartFacts, Step

_REWRITTEN = frozenset({"rewrite", "unreserve", "confirm"})
"""The steps at which a pending job may have the new shape."""


def left_to_others(context: OperationContext, *, in_place: bool = False) -> Transition | None:
    """The end of an operation whose job has another shape than was last seen or set; None to go on.

    `in_place`: the update of the new shape succeeded; else nothing was changed, or perhaps a part.
    """
    operation, request = context.operation, context.request
    if operation.seen is None or request is None or context.state == "completing":
        return None
    if operation.step == "settle":  # 25.11 lowers the nodes of a requeued job a moment after it is pending
        return end_for_change(context, changes.changed_since_run(operation.seen, request))
    goal = operation.goal if operation.step in _REWRITTEN else changes.NOTHING
    fields = changes.changed(operation.seen, request, goal, in_place=in_place)
    if not isinstance(operation.facts, RestartFacts):  # an earlier operation may restore the node lists meanwhile
        fields = tuple(name for name in fields if name not in NODE_LIST_FIELDS)
    return end_for_change(context, fields)


def end_for_change(context: OperationContext, fields: tuple[str, ...]) -> Transition | None:
    """The end of an operation whose job's `fields` others have changed; None where there are none."""
    if not fields:
        return None
    undo: tuple[Step, ...] = ("undo",) if context.operation.step in _REWRITTEN else ()
    return give_up(context, f"its user or an operator changed it meanwhile ({', '.join(fields)})", *undo)

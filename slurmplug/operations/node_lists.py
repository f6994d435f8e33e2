"""Nodes that a moved job excludes or requires are restored once it is pending: Slurm refuses it before. Pure."""

from slurmplug.operations.steps import Transition, issue, next_step, node_lists_in_place, silent_step
from slurmplug.operations.values import NO_LIMIT, OperationContext


def proceed(context: OperationContext) -> Transition | None:
    """Nodes that the job requires or excludes are restored as soon as Slurm allows it."""
    operation = context.operation
    if context.row is None or (operation.step == "lift" and operation.last_status == "done"):
        return silent_step(context, "ended", 0.0)
    if context.state != "pending":
        return silent_step(context, "bound", 0.0) if operation.step == "lift" else None
    if not node_lists_in_place(context):
        return silent_step(context, "ended", 0.0)
    if operation.step == "bound":
        return next_step(context, "lift", NO_LIMIT)
    return issue(operation, context.observation)

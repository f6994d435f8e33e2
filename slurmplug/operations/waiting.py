"""A waiting job is given other GPUs: its shape is rewritten where it stands in the queue. Pure."""

from dataclasses import replace

from policies.plan import Action
from slurmplug.operations import shape
from slurmplug.operations.shape import Refused
from slurmplug.operations.values import TRIES, Case, Moved, Sight, cleaning, closing, opened, said, said_again

REWRITE_LIMIT = 60.0
"""Seconds until what was written has to be seen."""


def begin(action: Action, sight: Sight, row: int) -> Moved:
    """Rewrite.

    Raises:
        Refused: it cannot be done.
    """
    goal, undo = rewrite(action, sight, row)
    operation = opened(action, sight, row, "rewrite", REWRITE_LIMIT)
    facts = {"gpus": str(action.gpus), "had": str(int(sight.snapshot.jobs.gpus[row]))}
    return said(replace(operation, goal=goal, undo=undo, facts=facts), sight)


def rewrite(action: Action, sight: Sight, row: int) -> tuple[dict[str, str], dict[str, str]]:
    """The update, and what gives it back. Raises Refused."""
    jobs = sight.snapshot.jobs
    asked = sight.asked.get(jobs.keys[row].job_id)
    if asked is None or action.gpus is None:
        raise Refused("not known")
    if jobs.elements[row] > 1:
        raise Refused("array")
    if asked.het_id:
        raise Refused("heterogeneous")
    shape.within_limits(sight, row, action.gpus)
    found = shape.shapes(sight.snapshot, row, action.gpus, asked.nodes, len(action.nodes))
    return shape.fields(asked, found[0])


def go_on(case: Case) -> Moved | None:
    """The next step, None to wait."""
    operation = case.operation
    if operation.step == "undo":
        return cleaning(case)
    if case.row is None:
        return closing(case, "ended by itself")
    if int(case.sight.snapshot.jobs.gpus[case.row]) == int(operation.facts["gpus"]) and operation.told != "refused":
        return closing(case, "done")
    if case.state != "pending":
        return closing(case, "gave up: it started before it was changed")
    if not case.may:
        return closing(case, "withdrawn", "undo")
    if operation.told == "refused" or operation.tries >= TRIES:  # of a refused update, a part may be in place
        return closing(case, "gave up: Slurm refused its new shape", "undo")
    if operation.told != "done":
        return said_again(operation, case.sight)
    return closing(case, "gave up: its shape did not change", "undo") if case.now >= operation.limit else None

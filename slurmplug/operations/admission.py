"""Admission: who waits to be admitted is held as an administrator holds, until a policy lets it go. Pure.

The submit plugin holds such a job as if its user did, and its user could let it go; an operator's hold only an
operator lifts. So this comes first, for every job that waits, whatever the policy says of it.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from slurmplug.operations import waiting as of_waiting
from slurmplug.operations.values import (
    FOR_EVER,
    TRIES,
    Case,
    Moved,
    Sight,
    cleaning,
    closing,
    next_step,
    opened,
    said,
    said_again,
)

ADMINS, USERS = "JobHeldAdmin", "JobHeldUser"
"""Slurm's reasons of a job that an operator holds, and of one that its user holds, or the submit plugin."""
LIMIT = 60.0
"""Seconds until what was said has to be seen."""


def wanted_holds(sight: Sight) -> Iterator[Action]:
    """For each job that waits for admission under a hold that its user could lift."""
    jobs = sight.snapshot.jobs
    for row in np.flatnonzero(jobs.awaits & (jobs.reason != ADMINS)).tolist():
        yield Action("hold", jobs.keys[row], Reason("awaits"))


def begin(action: Action, sight: Sight, row: int) -> Moved | None:
    """Hold, or let go with the GPUs and at the time that the policy decided. None: nothing has to be said, or not yet.

    A job is let go from an administrator's hold only: a hold that its user could have made says nothing of whether a
    release came through.

    Raises:
        Refused: it cannot be done.
    """
    if action.kind == "hold":
        if str(sight.snapshot.jobs.reason[row]) == ADMINS:
            return None
        return said(opened(action, sight, row, "hold", LIMIT), sight)
    if str(sight.snapshot.jobs.reason[row]) == USERS:
        return None
    goal: dict[str, str] = {}
    undo: dict[str, str] = {}
    if action.gpus is not None and action.gpus != int(sight.snapshot.jobs.gpus[row]):
        goal, undo = of_waiting.rewrite(action, sight, row)
    if action.begin is not None and action.begin > sight.snapshot.now:
        goal["StartTime"] = f"uts{int(action.begin)}"
    operation = replace(opened(action, sight, row, "rewrite" if goal else "release", LIMIT), goal=goal, undo=undo)
    return said(operation, sight)


def go_on(case: Case) -> Moved | None:
    """The next step, None to wait."""
    operation = case.operation
    if operation.step == "undo":
        return cleaning(case)
    if case.row is None:
        return closing(case, "ended by itself")
    jobs = case.sight.snapshot.jobs
    if operation.step == "hold":
        return _holding(case, str(jobs.reason[case.row]), bool(jobs.held[case.row]))
    if not jobs.held[case.row]:
        return closing(case, "done")
    if operation.step == "release":
        return _releasing(case, str(jobs.reason[case.row]))
    if not case.may:
        return closing(case, "withdrawn", "undo")
    if operation.step == "rewrite" and operation.told == "done":
        return next_step(case, "release", FOR_EVER)
    if operation.tries >= (2 if operation.told == "refused" else TRIES):
        return closing(case, "gave up: Slurm refused", "undo")
    return said_again(operation, case.sight)


def _holding(case: Case, reason: str, held: bool) -> Moved | None:
    operation = case.operation
    if reason == ADMINS:
        return closing(case, "done")
    if not held or not case.may:  # its user was quicker, or it may no longer be held
        return closing(case, "withdrawn")
    if operation.tries >= TRIES:
        return closing(case, "gave up: Slurm refused")
    return said_again(operation, case.sight)


def _releasing(case: Case, reason: str) -> Moved | None:
    """It is still held. As its user holds: then it was let go, and is its user's again.

    It is no longer protected as who waits for admission, since it was written down as let go.
    """
    operation = case.operation
    if operation.told == "done" or reason == USERS:
        return closing(case, "done, and it is held by its user or an operator")
    if operation.kind not in case.verdict.acting:
        return closing(case, "withdrawn", "undo")
    if operation.tries >= (2 if operation.told == "refused" else TRIES):
        return closing(case, "gave up: Slurm refused", "undo")
    return said_again(operation, case.sight)

"""A running job is resized, moved or preempted: it saves, is requeued, and goes on from its checkpoint. Pure.

save | signal   it is asked for a checkpoint, and reports one
reserve         its place is secured by a reservation; not for a preemption
requeue         until it waits again: COMPLETING is over
settle          two seconds more, before which a restart on the same node may fail
rewrite         shape, reservation and start in one update
confirm         it runs
free, unreserve it leaves the reservation, which goes
watch           its first report tells whether it went on from the checkpoint
bound, lift     nodes that it was kept to or from are let go when it waits again: Slurm refuses that while it runs
"""

import math
from dataclasses import replace

from policies.plan import Action
from slurmplug.cluster.port import Asked
from slurmplug.operations import shape
from slurmplug.operations.shape import Place, Refused
from slurmplug.operations.values import (
    BINDING,
    FOR_EVER,
    REQUEUE_LIMIT,
    TRIES,
    Case,
    Moved,
    Operation,
    Settings,
    Sight,
    Step,
    cleaning,
    closing,
    grace,
    next_step,
    opened,
    reservation,
    said,
    said_again,
    waiting,
)

SETTLE_SECONDS = 2.0
"""Between the end of COMPLETING and the update: sooner, 2 of 5 restarts on the same node failed."""
RESERVE_TRIES = 3
DOWN_PATIENCE = 20.0
"""Seconds that a node may seem down: a slurmctld that restarts hears from its nodes a moment later."""
LOST = "done, but it began again before its checkpoint"
"""The result of a restart after which the job is not restarted any more."""


def begin(action: Action, sight: Sight, row: int, settings: Settings, bound: Operation | None = None) -> Moved:
    """Ask for a checkpoint. `bound`: an earlier operation whose nodes the job is still kept to, which this one ends.

    Raises:
        Refused: it cannot be done.
    """
    jobs = sight.snapshot.jobs
    step: Step = "signal" if jobs.signal[row] else "save"
    operation = opened(action, sight, row, step, grace(sight.snapshot, row, settings))
    facts = {
        "user": str(jobs.user[row]),
        "checkpoint": str(float(jobs.checkpoint[row])),
        "checkpointed": str(float(jobs.checkpointed[row])),
        "had": str(int(jobs.gpus[row])),
        "gpus": str(_gpus(sight, row, action)),
    }
    goal: dict[str, str] = {}
    undo: dict[str, str] = {}
    _requeueable(sight, row)
    if action.kind != "preempt":
        found = _place(sight, row, action, settings)
        facts |= {"wanted": ",".join(_wanted(action, settings)), "nodes": "", "shape": str(found.shape.nodes)}
        goal, undo = _rewrite(sight, row, action, found, settings=settings)
    if bound is not None:
        before = {name: value for name, value in bound.undo.items() if name in BINDING}
        goal, undo = {**before, **goal}, {**undo, **before}
    return said(replace(operation, owed=("withdraw",), facts=facts, goal=goal, undo=undo), sight)


def _wanted(action: Action, settings: Settings) -> tuple[str, ...]:
    """The nodes that the policy names, where it may."""
    return action.nodes if settings.placement == "pin" else ()


def _without(sight: Sight, row: int, kind: str) -> tuple[str, ...]:
    """The nodes that a job that migrates leaves: those where it runs."""
    return _nodes_of(sight, row) if kind == "migrate" else ()


def _nodes_of(sight: Sight, row: int) -> tuple[str, ...]:
    on = sight.snapshot.runs_on
    return tuple(sight.snapshot.nodes.names[node] for node in sorted(set(on[on[:, 0] == row, 1].tolist())))


def _gpus(sight: Sight, row: int, action: Action) -> int:
    return int(sight.snapshot.jobs.gpus[row]) if action.gpus is None or action.kind != "resize" else action.gpus


def _requeueable(sight: Sight, row: int) -> Asked:
    """How the job asked. Raises Refused where it cannot be requeued alone."""
    asked = sight.asked.get(sight.snapshot.jobs.keys[row].job_id)
    if asked is None:
        raise Refused("not known")
    if asked.het_id:
        raise Refused("heterogeneous")
    if not asked.requeue:
        raise Refused("no requeue")
    if asked.reservation:
        raise Refused("in a reservation")
    return asked


def _place(sight: Sight, row: int, action: Action, settings: Settings) -> Place:
    wanted, without = _wanted(action, settings), _without(sight, row, action.kind)
    exactly = 0 if action.kind == "resize" else len(_nodes_of(sight, row))
    return shape.place(sight, row, _gpus(sight, row, action), wanted=wanted, without=without, exactly=exactly)


def _rewrite(
    sight: Sight, row: int, action: Action, found: Place, *, settings: Settings
) -> tuple[dict[str, str], dict[str, str]]:
    """What is to be updated, and what gives it back. Raises Refused."""
    asked = _requeueable(sight, row)
    if action.kind == "resize":
        shape.within_limits(sight, row, _gpus(sight, row, action))
        return shape.fields(asked, found.shape)
    if _wanted(action, settings):
        return {"ReqNodeList": ",".join(found.nodes)}, {"ReqNodeList": asked.required}
    if asked.required:
        raise Refused("kept to nodes")
    without = filter(None, (asked.excluded, *_nodes_of(sight, row)))
    return {"ExcNodeList": ",".join(without)}, {"ExcNodeList": asked.excluded}


def go_on(case: Case) -> Moved | None:
    """The next step, None to wait."""
    step = case.operation.step
    if step in ("undo", "free", "unreserve", "withdraw"):
        return cleaning(case)
    if step in ("bound", "lift"):
        return _bound(case)
    if case.row is None:
        return closing(case, "done, and it has ended since" if step == "watch" else "ended by itself")
    return _STEPS[step](case)


def _saving(case: Case) -> Moved | None:
    operation, jobs, now = case.operation, case.sight.snapshot.jobs, case.now
    if (over := _interrupted(case)) is not None:
        return over
    if case.state == "completing":
        return None
    if case.state == "suspended":  # it cannot save: its grace begins anew
        return replace(operation, since=now, limit=now + (operation.limit - operation.since)), None
    if _saved(case):
        saved = {**operation.facts, "checkpoint": str(float(jobs.checkpoint[case.at]))}
        case = case._replace(operation=replace(operation, facts=saved))
        return _requeue(case) if operation.kind == "preempt" else _reserve(case)
    if operation.told != "done":
        if operation.tries >= TRIES:
            return closing(case, "gave up: Slurm or the spool refused")
        return said_again(operation, case.sight)
    return closing(case, "gave up: it reported no checkpoint within its grace") if now >= operation.limit else None


def _saved(case: Case) -> bool:
    """Whether it reported a checkpoint since it was asked, and one that can be: of an iteration that it has reported.

    A daemon that was away meanwhile sees one; the clocks of the job and of the daemon need not agree.
    """
    jobs, operation = case.sight.snapshot.jobs, case.operation
    told, at = float(jobs.checkpoint[case.at]), float(jobs.checkpointed[case.at])
    before = operation.fact("checkpoint"), operation.fact("checkpointed")
    new = told != before[0] or (at != before[1] and not math.isnan(at))
    return not math.isnan(told) and new and (jobs.iteration[case.at] == 0 or told <= jobs.iteration[case.at] + 1)


def _interrupted(case: Case) -> Moved | None:
    """What ends an operation whose job has not been requeued by it."""
    if case.later_run or case.state == "pending":
        return closing(case, "requeued meanwhile")
    return closing(case, "withdrawn") if not case.may else None


def _reserve(case: Case) -> Moved:
    """Secure the place, chosen by what is free now."""
    operation = case.operation
    gpus, wanted = int(operation.facts["gpus"]), tuple(filter(None, operation.facts.get("wanted", "").split(",")))
    without, exactly = _without(case.sight, case.at, operation.kind), int(operation.facts["shape"])
    try:
        found = shape.place(case.sight, case.at, gpus, wanted=wanted, without=without, exactly=exactly)
    except Refused:
        return closing(case, "gave up: its place was taken meanwhile")
    seconds = math.ceil(2 * (REQUEUE_LIMIT + case.settings.start_limit))
    facts = {**operation.facts, "nodes": ",".join(found.nodes), "seconds": str(seconds)}
    goal = operation.goal
    if "ReqNodeList" in goal:
        goal = {**goal, "ReqNodeList": facts["nodes"]}
    return next_step(case, "reserve", FOR_EVER, facts=facts, goal=goal, owed=("unreserve", "withdraw"))


def _reserving(case: Case) -> Moved | None:
    operation = case.operation
    if (over := _interrupted(case)) is not None:
        return over
    if operation.told == "done" or reservation(operation.job) in case.sight.reservations:
        return _requeue(case)
    if operation.tries >= RESERVE_TRIES:
        return closing(case, "gave up: Slurm refused the reservation")
    if operation.told != "refused":
        return said(operation, case.sight)
    moved, command = _reserve(case)  # others may have reserved there, so perhaps elsewhere
    return (replace(moved, tries=operation.tries + 1) if moved.step == "reserve" else moved), command


def _requeue(case: Case) -> Moved:
    return next_step(case, "requeue", REQUEUE_LIMIT, requeued=case.now)


def _requeueing(case: Case) -> Moved | None:
    operation = case.operation
    if case.later_run:
        return _requeued(case)
    if case.state == "completing":
        return None
    if not case.may and operation.told not in ("done", "unknown"):
        return closing(case, "withdrawn")
    if operation.told == "refused" and operation.tries > 1:
        case = case._replace(operation=replace(operation, requeued=None))
        return closing(case, "gave up: Slurm refused to requeue it")
    if operation.told != "done" or case.now >= operation.limit:
        if operation.tries >= TRIES:
            return closing(case, "gave up: it was not requeued")
        return said_again(operation, case.sight)
    return None


def _requeued(case: Case) -> Moved:
    operation = case.operation
    if case.state != "pending":
        return closing(case, "gave up: it started again before it was changed")
    if operation.kind == "preempt":
        if BINDING & operation.goal.keys():
            return next_step(case, "lift", FOR_EVER, result="done")
        return closing(case, "done")
    return waiting(case, "settle", SETTLE_SECONDS)


def _settling(case: Case) -> Moved | None:
    operation = case.operation
    if case.state != "pending":
        return closing(case, "gave up: it started again before it was changed")
    if not case.may:
        return closing(case, "withdrawn")
    if case.now < operation.limit:
        return None
    if _changed_by_others(case):
        return closing(case, "gave up: it was changed by others meanwhile")
    start = {"ReservationName": reservation(operation.job), "StartTime": "now"}
    undo = {**operation.undo, "StartTime": "now"}
    goal, limit = {**operation.goal, **start}, case.settings.start_limit
    return next_step(case, "rewrite", limit, goal=goal, undo=undo, owed=("free", "unreserve", "withdraw"))


def _changed_by_others(case: Case) -> bool:
    """Whether it asks for something else than before: what its user wrote since is not written over."""
    return int(case.sight.snapshot.jobs.gpus[case.at]) != int(case.operation.facts["had"])


def _rewriting(case: Case) -> Moved | None:
    operation = case.operation
    if case.state != "pending":
        return _confirm(case)
    if not case.may:
        return closing(case, "withdrawn", "undo")
    if operation.told == "done":
        return _confirm(case)
    if operation.told == "refused" or operation.tries >= TRIES:  # of a refused update, a part may be in place
        return closing(case, "gave up: Slurm refused its new shape", "undo")
    return said_again(operation, case.sight)


def _confirm(case: Case) -> Moved:
    moved, _ = waiting(case, "confirm", case.settings.start_limit)
    return _confirming(case._replace(operation=moved)) or (moved, None)


def _confirming(case: Case) -> Moved | None:
    operation, jobs = case.operation, case.sight.snapshot.jobs
    if case.state == "pending":
        if case.later_run > 1:
            return _requeued_since(case)
        if not case.may:
            return closing(case, "withdrawn", "undo")
        nodes = case.sight.snapshot.nodes
        fallen = [name for name, up in zip(nodes.names, nodes.up, strict=True) if not up and name in operation.nodes]
        if fallen and case.now - operation.since >= DOWN_PATIENCE:
            return closing(case, f"gave up: its place went down ({','.join(fallen)})", "undo")
        if case.now >= operation.limit:
            return closing(case, "gave up: it did not start in its place", "undo")
        return None
    if case.state == "completing":
        return None
    if int(jobs.gpus[case.at]) != int(operation.facts["gpus"]):
        return closing(case, "gave up: it started again in another shape")
    return closing(case, "")


def _watching(case: Case) -> Moved | None:
    operation, jobs = case.operation, case.sight.snapshot.jobs
    if case.state == "pending":
        return _requeued_since(case)
    first = float(jobs.resumed[case.at])
    if not math.isnan(first):
        lost = first < operation.fact("checkpoint")
        return closing(case, LOST if lost else "done")
    return closing(case, "done, and it has reported nothing since") if case.now >= operation.limit else None


def _requeued_since(case: Case) -> Moved:
    """It ran in its place and waits again, as after its node failed; in its new shape, and for as long as Slurm says.

    To let it start now would bring it to a node where the run that was lost may not have ended: Slurm refuses that
    launch as it refuses one right after COMPLETING, and the job ends FAILED (`Job credential revoked`) or held.
    """
    result = "done, and it was requeued since"
    if BINDING & case.operation.goal.keys():
        return next_step(case, "lift", FOR_EVER, result=result)
    return closing(case, result)


def unwatched(case: Case) -> Moved:
    """It is to be stopped: whether it went on from its checkpoint is not waited for."""
    return closing(case, "done, and it is being stopped")


def _bound(case: Case) -> Moved | None:
    """Nodes that it was kept to or from are let go as soon as Slurm allows it."""
    operation = case.operation
    if case.row is None or (operation.step == "lift" and operation.told == "done"):
        return waiting(case, "ended", 0.0)
    if case.state != "pending":
        return waiting(case, "bound", 0.0) if operation.step == "lift" else None
    if operation.step == "bound":
        return next_step(case, "lift", FOR_EVER)
    return said(operation, case.sight)


_STEPS = {
    "save": _saving,
    "signal": _saving,
    "reserve": _reserving,
    "requeue": _requeueing,
    "settle": _settling,
    "rewrite": _rewriting,
    "confirm": _confirming,
    "watch": _watching,
}

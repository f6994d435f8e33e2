"""The commands of an allowed plan where the policy places jobs itself, as simulations of the papers do. Pure.

They take effect at once. Slurm chooses nodes by itself; there these actions become operations (see `Site.places`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from policies.placement.space import Placement, Space
from policies.plan import Action
from policies.snapshot import Snapshot
from slurmplug.cluster.port import Command, Site
from slurmplug.rules.guardrails import Verdict

PLACING_KINDS = frozenset({"place", "resize", "migrate", "preempt"})
"""The actions that decide which GPUs a job holds."""


class _Target(NamedTuple):
    """A job that holds `held` (nothing if pending), and whose action names the nodes `goal`.

    `goal` is None where the action names no nodes, and empty where a node that it names does not exist.
    """

    row: int
    action: Action
    held: Placement
    goal: Placement | None


_Gang: TypeAlias = tuple[_Target, ...]
"""Targets that are reached together or not at all: those of the jobs of one ML job that start."""
_NOWHERE = Placement((), ())


def split(snapshot: Snapshot, verdict: Verdict, site: Site) -> tuple[tuple[Command, ...], Verdict]:
    """The commands that place jobs, where the site lets the policy place them, and the verdict without their actions.

    Preempted jobs leave first. The others follow as nodes become free; running jobs that wait for each other's GPUs
    release theirs together before they take the new ones. A job that does not fit where it was placed stays as it is,
    and so does an ML job of several jobs unless all of them run then: a part of a model cannot train alone. If an
    action names no node, the job is placed where it fits most tightly.
    """
    if not site.places or verdict.frozen or not verdict.actions:
        return (), verdict
    placing = [action for action in verdict.actions if action.kind in PLACING_KINDS]
    others = tuple(action for action in verdict.actions if action.kind not in PLACING_KINDS)
    return tuple(_commands(snapshot, placing)) if placing else (), replace(verdict, actions=others)


def _commands(snapshot: Snapshot, actions: Sequence[Action]) -> Iterator[Command]:
    jobs = snapshot.jobs
    rows = {key: row for row, key in enumerate(jobs.keys)} if len(actions) > 1 else {}
    by_row = {rows[a.job] if rows else jobs.keys.index(a.job): a for a in actions}
    runs = jobs.state == "running"
    if (jobs.ml_job == np.arange(len(jobs))).all() and all(a.kind == "place" and a.shares for a in actions):
        # Nothing but single jobs start: the cluster itself checks whether each fits where the policy placed it.
        for row, action in by_row.items():
            if jobs.state[row] == "pending":
                yield _place_command(snapshot, row, action.nodes, action.shares, action.servers)
        return
    space = Space(snapshot)
    for row, action in by_row.items():
        if action.kind == "preempt" and runs[row]:
            space.give(row, space.place(row))
            yield _requeue_command(snapshot, row)
    moving = [
        row for row, action in by_row.items() if action.kind != "preempt" and runs[row] and action.kind != "place"
    ]
    starting = [row for row, action in by_row.items() if action.kind == "place" and jobs.state[row] == "pending"]
    gangs: list[_Gang] = [(_target(snapshot, space, row, by_row[row]),) for row in moving]
    gangs += _gangs(snapshot, [_target(snapshot, space, row, by_row[row]) for row in starting])
    yield from _place_in_rounds(snapshot, space, gangs)


def _gangs(snapshot: Snapshot, targets: Sequence[_Target]) -> list[_Gang]:
    """The targets by ML job, in the order of the first of each; without ML jobs of which not all jobs would run."""
    ml_job = snapshot.jobs.ml_job
    if (ml_job == np.arange(len(ml_job))).all():
        return [(target,) for target in targets]
    runs = snapshot.jobs.state == "running"
    runs[[target.row for target in targets]] = True
    missing = np.bincount(ml_job, ~runs, minlength=len(ml_job))
    first: dict[int, int] = {}
    for place, target in enumerate(targets):
        first.setdefault(int(ml_job[target.row]), place)
    ordered = sorted(targets, key=lambda target: first[int(ml_job[target.row])])
    return [tuple(gang) for job, gang in groupby(ordered, lambda target: int(ml_job[target.row])) if not missing[job]]


def _place_in_rounds(snapshot: Snapshot, space: Space, gangs: Sequence[_Gang]) -> Iterator[Command]:
    while gangs:
        waiting: list[_Gang] = []
        for gang in gangs:
            taken = _try_place(snapshot, space, gang)
            if taken is None:
                waiting.append(gang)
            else:
                yield from (
                    _place(snapshot, target.row, goal) for target, goal in zip(gang, taken, strict=True) if goal
                )
        if len(waiting) == len(gangs):
            yield from _exchange(snapshot, space, waiting)
            return
        gangs = waiting


def _try_place(snapshot: Snapshot, space: Space, gang: _Gang) -> list[Placement | None] | None:
    """Take the room of a whole gang: where each of its jobs goes, None for one that stays.

    Returns None, with nothing taken, if one of them finds no room.
    """
    taken: list[Placement | None] = []
    for target in gang:
        space.give(target.row, target.held)
        goal = target.goal or _tightest_fit(snapshot, space, target)
        if not goal.nodes or not space.fits_there(target.row, goal):
            space.take(target.row, target.held)
            for before, there in zip(gang, taken, strict=False):
                space.give(before.row, there or before.held)
                space.take(before.row, before.held)
            return None
        space.take(target.row, goal)
        taken.append(None if goal == target.held else goal)
    return taken


def _exchange(snapshot: Snapshot, space: Space, gangs: Sequence[_Gang]) -> Iterator[Command]:
    """Running jobs that wait for each other's room: all release theirs, and one that then finds none keeps its own."""
    running = [target for gang in gangs for target in gang if target.held.nodes and target.goal]
    for target in running:
        space.give(target.row, target.held)
    fitting = []
    for target in running:
        if target.goal and space.fits_there(target.row, target.goal):
            space.take(target.row, target.goal)
            fitting.append((target.row, target.goal))
    left = {target.row: target.held for target in running} | dict(fitting)
    if all(space.fits_there(row, held) for row, held in left.items() if (row, held) not in fitting):
        yield from (_requeue_command(snapshot, row) for row, _ in fitting)
        yield from (_place(snapshot, row, goal) for row, goal in fitting)


def _target(snapshot: Snapshot, space: Space, row: int, action: Action) -> _Target:
    if not action.nodes:
        return _Target(row, action, space.place(row), None)
    at = {name: node for node, name in enumerate(snapshot.nodes.names)}
    if any(name not in at for name in action.nodes):
        return _Target(row, action, space.place(row), _NOWHERE)
    nodes = tuple(at[name] for name in action.nodes)
    shares = action.shares or tuple(_split_evenly(_gpu_count(snapshot, row, action), len(nodes)))
    return _Target(row, action, space.place(row), Placement(nodes, shares, action.servers))


def _tightest_fit(snapshot: Snapshot, space: Space, target: _Target) -> Placement:
    """Where the job fits most tightly once its own GPUs are released; a job that migrates goes to other nodes."""
    others = None
    if target.action.kind == "migrate":
        others = np.ones(len(snapshot.nodes.names), dtype=bool)
        others[list(target.held.nodes)] = False
    return space.fit(target.row, _gpu_count(snapshot, target.row, target.action), nodes=others) or _NOWHERE


def _gpu_count(snapshot: Snapshot, row: int, action: Action) -> int:
    return int(snapshot.jobs.gpus[row]) if action.gpus is None else action.gpus


def _split_evenly(gpus: int, nodes: int) -> list[int]:
    return [gpus * (i + 1) // nodes - gpus * i // nodes for i in range(nodes)]


def _place(snapshot: Snapshot, row: int, goal: Placement) -> Command:
    names = [snapshot.nodes.names[node] for node in goal.nodes]
    return _place_command(snapshot, row, names, goal.shares, goal.servers)


def _place_command(
    snapshot: Snapshot, row: int, names: Sequence[str], shares: Sequence[int], servers: Sequence[int]
) -> Command:
    """Where: NODE:GPUS for each node, or NODE:GPUS:SERVERS."""
    key = snapshot.jobs.keys[row]
    columns = (names, shares, servers) if servers else (names, shares)
    where = ",".join(":".join(map(str, each)) for each in zip(*columns, strict=True))
    return Command(f"{snapshot.cycle}-place-{key.job_id}", "place", key, {"nodes": where})


def _requeue_command(snapshot: Snapshot, row: int) -> Command:
    key = snapshot.jobs.keys[row]
    return Command(f"{snapshot.cycle}-requeue-{key.job_id}", "requeue", key)

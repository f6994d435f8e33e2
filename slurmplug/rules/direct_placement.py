"""The commands of an allowed plan where the policy places jobs itself, as simulations of the papers do. Pure.

They take effect at once. Slurm chooses nodes by itself; there these actions become operations (see `Site.places`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from policies.placement.space import Placement, Space
from policies.plan import Action
from policies.snapshot import Snapshot
from slurmplug.cluster.port import Command, Site
from slurmplug.rules.guardrails import Verdict

MOVES = frozenset({"place", "resize", "migrate", "preempt"})
"""The actions that decide which GPUs a job holds."""


class _Seat(NamedTuple):
    """A job that holds `held` (nothing if pending) and is to hold `goal`; None where the action names no nodes."""

    row: int
    action: Action
    held: Placement
    goal: Placement | None


_Move: TypeAlias = tuple[_Seat, ...]
"""Seats that are taken together or not at all: the jobs of one ML job that start."""
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
    moves = [action for action in verdict.actions if action.kind in MOVES]
    others = tuple(action for action in verdict.actions if action.kind not in MOVES)
    return tuple(_commands(snapshot, moves)) if moves else (), replace(verdict, actions=others)


def _commands(snapshot: Snapshot, actions: Sequence[Action]) -> Iterator[Command]:
    jobs = snapshot.jobs
    rows = {key: row for row, key in enumerate(jobs.keys)} if len(actions) > 1 else {}
    by_row = {rows[a.job] if rows else jobs.keys.index(a.job): a for a in actions}
    runs = jobs.state == "running"
    if (jobs.ml_job == np.arange(len(jobs))).all() and all(a.kind == "place" and a.shares for a in actions):
        yield from (_start(snapshot, row, action) for row, action in by_row.items() if jobs.state[row] == "pending")
        return
    space = Space(snapshot)
    for row, action in by_row.items():
        if action.kind == "preempt" and runs[row]:
            space.give(row, space.place(row))
            yield _requeue(snapshot, row)
    moving = [
        row for row, action in by_row.items() if action.kind != "preempt" and runs[row] and action.kind != "place"
    ]
    starting = [row for row, action in by_row.items() if action.kind == "place" and jobs.state[row] == "pending"]
    moves: list[_Move] = [(_seat(snapshot, space, row, by_row[row]),) for row in moving]
    moves += _gangs(snapshot, [_seat(snapshot, space, row, by_row[row]) for row in starting])
    yield from _in_turn(snapshot, space, moves)


def _gangs(snapshot: Snapshot, seats: Sequence[_Seat]) -> list[_Move]:
    """The seats of each ML job together, in the order of the first; without those whose ML job would not be whole."""
    ml_job = snapshot.jobs.ml_job
    if (ml_job == np.arange(len(ml_job))).all():
        return [(seat,) for seat in seats]
    runs = snapshot.jobs.state == "running"
    runs[[seat.row for seat in seats]] = True
    missing = np.bincount(ml_job, ~runs, minlength=len(ml_job))
    first: dict[int, int] = {}
    for place, seat in enumerate(seats):
        first.setdefault(int(ml_job[seat.row]), place)
    ordered = sorted(seats, key=lambda seat: first[int(ml_job[seat.row])])
    return [tuple(gang) for job, gang in groupby(ordered, lambda seat: int(ml_job[seat.row])) if not missing[job]]


def _in_turn(snapshot: Snapshot, space: Space, moves: Sequence[_Move]) -> Iterator[Command]:
    while moves:
        waiting: list[_Move] = []
        for move in moves:
            taken = _taken(snapshot, space, move)
            if taken is None:
                waiting.append(move)
            else:
                yield from (_place(snapshot, seat.row, goal) for seat, goal in zip(move, taken, strict=True) if goal)
        if len(waiting) == len(moves):
            yield from _together(snapshot, space, waiting)
            return
        moves = waiting


def _taken(snapshot: Snapshot, space: Space, move: _Move) -> list[Placement | None] | None:
    """Where each seat's job goes, None where it stays, and that is taken; None for all where one finds no room."""
    taken: list[Placement | None] = []
    for seat in move:
        space.give(seat.row, seat.held)
        goal = seat.goal or _found(snapshot, space, seat)
        if not goal.nodes or not space.fits_there(seat.row, goal):
            space.take(seat.row, seat.held)
            for before, there in zip(move, taken, strict=False):
                space.give(before.row, there or before.held)
                space.take(before.row, before.held)
            return None
        space.take(seat.row, goal)
        taken.append(None if goal == seat.held else goal)
    return taken


def _together(snapshot: Snapshot, space: Space, moves: Sequence[_Move]) -> Iterator[Command]:
    """Running jobs that wait for each other's room: all give theirs up, and who finds none takes its own again."""
    running = [seat for move in moves for seat in move if seat.held.nodes and seat.goal]
    for seat in running:
        space.give(seat.row, seat.held)
    fitting = []
    for seat in running:
        if seat.goal and space.fits_there(seat.row, seat.goal):
            space.take(seat.row, seat.goal)
            fitting.append((seat.row, seat.goal))
    left = {seat.row: seat.held for seat in running} | dict(fitting)
    if all(space.fits_there(row, held) for row, held in left.items() if (row, held) not in fitting):
        yield from (_requeue(snapshot, row) for row, _ in fitting)
        yield from (_place(snapshot, row, goal) for row, goal in fitting)


def _seat(snapshot: Snapshot, space: Space, row: int, action: Action) -> _Seat:
    if not action.nodes:
        return _Seat(row, action, space.place(row), None)
    at = {name: node for node, name in enumerate(snapshot.nodes.names)}
    if any(name not in at for name in action.nodes):
        return _Seat(row, action, space.place(row), _NOWHERE)
    nodes = tuple(at[name] for name in action.nodes)
    shares = action.shares or tuple(_evenly(_gpus(snapshot, row, action), len(nodes)))
    return _Seat(row, action, space.place(row), Placement(nodes, shares))


def _found(snapshot: Snapshot, space: Space, seat: _Seat) -> Placement:
    """Where the job fits most tightly, its own GPUs given up; one that migrates goes to other nodes."""
    others = None
    if seat.action.kind == "migrate":
        others = np.ones(len(snapshot.nodes.names), dtype=bool)
        others[list(seat.held.nodes)] = False
    return space.fit(seat.row, _gpus(snapshot, seat.row, seat.action), nodes=others) or _NOWHERE


def _gpus(snapshot: Snapshot, row: int, action: Action) -> int:
    return int(snapshot.jobs.gpus[row]) if action.gpus is None else action.gpus


def _evenly(gpus: int, nodes: int) -> list[int]:
    return [gpus * (i + 1) // nodes - gpus * i // nodes for i in range(nodes)]


def _place(snapshot: Snapshot, row: int, goal: Placement) -> Command:
    return _there(snapshot, row, (snapshot.nodes.names[node] for node in goal.nodes), goal.shares)


def _start(snapshot: Snapshot, row: int, action: Action) -> Command:
    """Where nothing else moves, each starts where it was put: whether it fits is looked at there."""
    return _there(snapshot, row, action.nodes, action.shares)


def _there(snapshot: Snapshot, row: int, names: Iterable[str], shares: Iterable[int]) -> Command:
    key = snapshot.jobs.keys[row]
    where = ",".join(f"{name}:{share}" for name, share in zip(names, shares, strict=True))
    return Command(f"{snapshot.cycle}-place-{key.job_id}", "place", key, {"nodes": where})


def _requeue(snapshot: Snapshot, row: int) -> Command:
    key = snapshot.jobs.keys[row]
    return Command(f"{snapshot.cycle}-requeue-{key.job_id}", "requeue", key)

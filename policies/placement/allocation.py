"""From "how many GPUs each job ought to have" to actions: what is free on each node, and who goes where.

A policy says in which order the jobs go and how many GPUs each ought to have; `allocate` says what must happen to bring
the cluster there. Whether these actions are carried out is not known here: where Slurm places jobs itself, only their
rank tells, so that a policy ranks in the same order.

What all policies have in common: a job that is not managed is started before all others, at what it asked for, in order
of submission, and keeps its GPUs to its end, as if they were reserved. A managed job that declared no checkpoint keeps
its GPUs too. The jobs of one ML job start and give way together, since a part of a model cannot train alone. A pending
array starts one element a cycle: its row stands for as many jobs as wait.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policies.placement.gpu_space import GPUSpace
from policies.placement.space import Packing, Placement, Space, free_resources
from policies.plan import Action, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints

WAITS_FOR_ROOM = ("None", "Priority", "Resources", "")
"""The reasons of a pending job that could start if there were room; any other keeps it wherever it is placed."""


class Allocation(NamedTuple):
    """The actions that bring the cluster there, and what tells what is free then."""

    actions: tuple[Action, ...]
    after: Callable[[], Space]


def startable(jobs: Jobs) -> Bools:
    """(n,) pending, and waiting for nothing but room."""
    for_room = np.logical_or.reduce([jobs.reason == reason for reason in WAITS_FOR_ROOM])
    return np.asarray(jobs.pending & for_room & ~jobs.held & ~jobs.awaits)


def movable(jobs: Jobs) -> Bools:
    """(n,) running, and free to be preempted, resized or moved: managed, with a checkpoint to go on from."""
    return np.asarray(jobs.running & jobs.managed & jobs.restartable & ~jobs.held & ~jobs.interactive)


def elastic(jobs: Jobs) -> Bools:
    """(n,) trains on more GPUs or fewer: it waits, or can be moved."""
    return np.asarray((jobs.gpus_max > jobs.gpus_min) & jobs.managed & (movable(jobs) | jobs.pending))


def managed_rank(jobs: Jobs, rank: Floats) -> Floats:
    """(n,) the rank of the managed jobs; NaN leaves the others to Slurm."""
    return np.where(jobs.managed, np.asarray(rank, dtype=np.float64), np.nan)


def rank_from_order(jobs: Jobs, order: Ints) -> Floats:
    """(n,) the rank that says this order of rows, the first highest; NaN for those not in it or not managed."""
    rank = np.full(len(jobs), np.nan)
    rank[order] = np.arange(len(order), 0, -1, dtype=np.float64)
    return managed_rank(jobs, rank)


def queue_order(jobs: Jobs, *keys: Floats | Ints | Bools) -> Ints:
    """The rows that run or wait, by these keys (n,), the first the foremost, the least first and NaN last.

    Ties go by submission, then by row. Jobs that are not managed come before all others, by submission.
    """
    rows = np.flatnonzero(jobs.pending | jobs.running)
    managed = jobs.managed[rows]
    columns = [np.where(managed, key[rows], 0.0) for key in keys]
    return rows[np.lexsort((jobs.submitted[rows], *reversed(columns), managed))]


def held_gpus(snapshot: Snapshot) -> Ints:
    """(n,) the GPUs that each job holds on the nodes."""
    on = snapshot.runs_on
    return np.bincount(on[:, 0], weights=on[:, 2], minlength=len(snapshot.jobs)).astype(np.int64)


def gang_gpus(snapshot: Snapshot, order: Ints, *, preempt: Bools | bool, requested: Ints | None = None) -> Ints:
    """(n,) the GPUs that each job ought to have where those go first that come first, each at what it requested.

    By count alone: what fits into the GPUs that the jobs before it leave goes, what does not is skipped. A running job
    keeps what it has, and is counted before all others, unless it is movable and `preempt`, for all or (n,) for each,
    says that it gives way. Nodes that the same jobs may use are a pool. requested: (n,) where it is not `Jobs.gpus`.
    """
    jobs, nodes, on = snapshot.jobs, snapshot.nodes, snapshot.runs_on
    requested = jobs.gpus if requested is None else requested
    yields = movable(jobs) & preempt
    wanted = np.where(yields, 0, held_gpus(snapshot))
    back = on[yields[on[:, 0]]]
    held, given = (np.bincount(those[:, 1], those[:, 2], len(nodes.names)) for those in (on, back))
    free = free_resources(nodes, held[:, None].astype(np.float64))[:, 0] + given
    left, pools = _pools(snapshot.fits[:, nodes.up], free[nodes.up])
    several = len(left) > 1 or not all(pools)
    total = sum(left)
    candidates, starts = group_gangs(jobs, order[(yields | startable(jobs))[order]])
    each, classes = requested[candidates].tolist(), jobs.placement[candidates].tolist()
    chosen: list[int] = []
    for gpus, fewest, first, end in _by_team(requested[candidates], starts):
        if fewest > total:
            break
        if gpus > total:
            continue
        rest = left
        for at in range(first, end) if several else ():
            rest = _drawn(rest, pools[classes[at]], each[at])
        if rest:
            left = rest
            total -= gpus
            chosen += range(first, end)
    rows = candidates[chosen]
    wanted[rows] = requested[rows]
    return wanted


def group_gangs(jobs: Jobs, rows: Ints) -> tuple[Ints, Ints]:
    """These rows, those of one ML job side by side in the place of their first; and where each of the t begins (t,)."""
    if np.array_equal(jobs.ml_job[rows], rows):
        return rows, np.arange(len(rows))
    _, first, member = np.unique(jobs.ml_job[rows], return_index=True, return_inverse=True)
    heads = first[member]
    order = np.argsort(heads, kind="stable")
    return rows[order], np.flatnonzero(np.diff(heads[order], prepend=-1))


def _by_team(gpus: Ints, starts: Ints) -> Iterator[tuple[int, int, int, int]]:
    """Of each team the GPUs, the fewest of any team from there on, and where it begins and ends."""
    if not len(starts):
        return iter(())
    needs = np.add.reduceat(gpus, starts)
    fewest = np.minimum.accumulate(needs[::-1])[::-1]
    return zip(needs.tolist(), fewest.tolist(), starts.tolist(), [*starts[1:].tolist(), len(gpus)], strict=True)


def _drawn(left: list[int], pools: list[int], gpus: int) -> list[int]:
    """What is left of each pool with so many GPUs out of these; nothing where they have not as many."""
    if not left or gpus > sum(left[pool] for pool in pools):
        return []
    rest = left.copy()
    for pool in pools:
        part = min(gpus, rest[pool])
        rest[pool] -= part
        gpus -= part
    return rest


def leftover_gpus(snapshot: Snapshot, wanted: Ints) -> int:
    """The GPUs that nobody has where every job has those that it ought to have."""
    nodes, on = snapshot.nodes, snapshot.runs_on
    ours = np.bincount(on[:, 1], on[:, 2], len(nodes.names))
    usable = nodes.capacity[:, 0] - np.maximum(nodes.used[:, 0] - ours, 0.0)
    return max(0, int(usable[nodes.up].sum() - wanted.sum()))


def grow_elastic(snapshot: Snapshot, wanted: Ints, gain: Callable[[int, int], float]) -> Ints:
    """(n,) the GPUs of each job after what is left over went one by one to the elastic job that gains most by one more.

    gain: of a row by one GPU more than so many; a job that gains nothing gets none. Among equals the first row.
    """
    jobs, left = snapshot.jobs, leftover_gpus(snapshot, wanted)
    grows = np.flatnonzero(elastic(jobs) & (wanted > 0) & (wanted < jobs.gpus_max)).tolist()
    most, each = jobs.gpus_max.tolist(), wanted.tolist()
    heap = [(-worth, row) for row in grows if (worth := gain(row, each[row])) > 0]
    heapq.heapify(heap)
    while left > 0 and heap:
        row = heap[0][1]
        each[row] += 1
        left -= 1
        worth = gain(row, each[row]) if each[row] < most[row] else 0.0
        if worth > 0:
            heapq.heapreplace(heap, (-worth, row))
        else:
            heapq.heappop(heap)
    return np.array(each, dtype=wanted.dtype)


def _pools(fits: Bools, free: Floats) -> tuple[list[int], list[list[int]]]:
    """The free GPUs of each pool of nodes, and the pools that each placement class may use, the least shared first."""
    if fits.all():
        return [int(free.sum())], [[0]] * len(fits)
    columns, pool_of = np.unique(fits, axis=1, return_inverse=True)
    left = np.bincount(pool_of.ravel(), weights=free, minlength=columns.shape[1])
    scarce = np.argsort(columns.sum(axis=0), kind="stable")
    return left.astype(int).tolist(), [scarce[row[scarce]].tolist() for row in columns]


def allocate(
    snapshot: Snapshot,
    order: Sequence[int] | Ints,
    wanted: Ints,
    *,
    strict: bool = False,
    exact: bool = False,
    packing: Packing = "tight",
    spare: bool = True,
    prefer: Callable[[int], Bools] | None = None,
) -> Allocation:
    """The actions that give each job the GPUs that it ought to have.

    `order`: rows, the first placed first. `wanted` (n,): GPUs, 0 for none; it counts for jobs that may start, and for
    running ones that can be moved, also outside of `order`. A running job that keeps its number stays where it is; one
    with another number is resized, in place of all its GPUs; one with none is preempted, but with `spare` only where
    others took its place. A pending job for which there is no room waits: those behind it go on, but not with `strict`.
    An elastic job for which there is less room than wanted gets what there is, unless it must be `exact`. prefer: of a
    row, the nodes (nodes,) that are tried first.
    """
    least = np.where(elastic(snapshot.jobs) & (not exact), snapshot.jobs.gpus_min, wanted)
    return _Allocating(snapshot, wanted, least, packing, prefer).run(np.asarray(order, dtype=np.int64), strict, spare)


def placement_action(snapshot: Snapshot, row: int, place: Placement, had: int) -> Action:
    """The action that brings the job there: place a pending one; resize or migrate one that runs, on `had` GPUs."""
    jobs, gpus = snapshot.jobs, sum(place.shares)
    names = snapshot.nodes.names
    nodes = tuple([names[node] for node in place.nodes])
    if jobs.pending[row]:
        return Action("place", jobs.keys[row], Reason("its turn", {"gpus": gpus}), gpus, nodes, place.shares)
    if gpus == had:
        return Action("migrate", jobs.keys[row], Reason("moved", {"gpus": gpus}), gpus, nodes, place.shares)
    return Action("resize", jobs.keys[row], Reason("share", {"gpus": gpus, "had": had}), gpus, nodes, place.shares)


class _Allocating:
    """One allocation under way. `nodes`, and `space`, which is told only once somebody moves: what is free."""

    space: Space | GPUSpace

    def __init__(
        self, snapshot: Snapshot, wanted: Ints, least: Ints, packing: Packing, prefer: Callable[[int], Bools] | None
    ) -> None:
        self.snapshot, self.packing, self.prefer = snapshot, packing, prefer
        self.wanted, self.least = wanted, least
        self.held = held_gpus(snapshot)
        self.places: dict[int, Placement] = {}
        """of jobs that get another place than they have, no node for one that is preempted"""
        self.misfits: set[tuple[float, ...]] = set()

    @cached_property
    def nodes(self) -> Space:
        return Space(self.snapshot)

    def run(self, order: Ints, strict: bool, spare: bool) -> Allocation:
        jobs = self.snapshot.jobs
        changed = movable(jobs) & (self.held != self.wanted)
        released = np.flatnonzero(changed)
        starts = startable(jobs) & ((self.wanted > 0) | (jobs.gpus == 0))
        placed = order[(starts | (changed & (self.wanted > 0)))[order]]
        if not len(placed) and not len(released):
            return Allocation((), lambda: self.nodes)
        self.nodes.give_all(released)
        counted = None if self.prefer else GPUSpace.of(self.snapshot, self.nodes, np.append(placed, released))
        self.space = counted or self.nodes
        kept = self._placed(placed, strict)
        idle = released[[row not in self.places and row not in kept for row in released.tolist()]]
        rows, begins = group_gangs(jobs, idle)
        for team in np.split(rows, begins[1:]):
            if not ((spare or self.wanted[team].any()) and self._stay(team.tolist())):
                self.places |= {row: Placement((), ()) for row in team.tolist()}
        return Allocation(self._actions(), counted.settled if counted else lambda: self.nodes)

    def _placed(self, rows: Ints, strict: bool) -> set[int]:
        """Place these rows as far as there is room; the running ones that found none and keep what they have."""
        kept: set[int] = set()
        left = self.space.gpus
        rows, starts = group_gangs(self.snapshot.jobs, rows)
        runs, each = self.snapshot.jobs.running[rows].tolist(), rows.tolist()
        for _, fewest, first, end in _by_team(np.minimum(self.wanted, self.least)[rows], starts):
            if fewest > left:
                break
            team = each[first:end]
            gpus = self._seat(team, left)
            if gpus is not None:
                left -= gpus
            elif runs[first] and self._stay(team):
                kept |= set(team)
                left -= int(self.held[team].sum())
            elif strict and not runs[first]:
                break
        return kept

    def _seat(self, team: list[int], left: int) -> int | None:
        """The GPUs that this ML job takes, of `left` that are free; None where not all of it has room, and nothing is
        taken."""
        gpus = 0
        for at, row in enumerate(team):
            place = self._fit(row, left - gpus)
            if place is None:
                for before in team[:at]:
                    self.space.give(before, self.places.pop(before))
                return None
            self.places[row] = place
            self.space.take(row, place)
            gpus += sum(place.shares)
        return gpus

    def _stay(self, team: list[int]) -> bool:
        """Whether the ML job can keep what it has; it has it then."""
        taken: list[int] = []
        for row in team:
            place = self.space.place(row)
            if not self.space.fits_there(row, place):
                for before in taken:
                    self.space.give(before, self.space.place(before))
                return False
            self.space.take(row, place)
            taken.append(row)
        return True

    def _fit(self, row: int, left: int) -> Placement | None:
        """A place for the job, of which `left` GPUs are free in all; an elastic one may get fewer than wanted."""
        gpus, least = int(self.wanted[row]), int(self.least[row])
        if min(gpus, least) > left:
            return None
        if self.misfits and self._alike(row) in self.misfits:
            return None
        place = self.nodes.fit(row, gpus, self.packing, self.prefer(row)) if self.prefer else None
        place = place or self.space.fit(row, gpus, self.packing)
        if place is None and least < gpus:
            room = self.space.room_in_all(row)
            if least <= room < gpus and room != self.held[row]:
                place = self.space.fit(row, room, self.packing)
        if place is None and not self.held[row]:
            self.misfits.add(self._alike(row))
        return place

    def _alike(self, row: int) -> tuple[float, ...]:
        """What jobs have in common where one finds no room: then no other does."""
        jobs = self.snapshot.jobs
        of_row = (float(jobs.placement[row]), float(self.wanted[row]), float(self.least[row]))
        return (*of_row, *jobs.demand[row].tolist())

    def _actions(self) -> tuple[Action, ...]:
        jobs = self.snapshot.jobs
        preempted = [row for row, place in self.places.items() if not place.nodes]
        placed = [(row, place) for row, place in self.places.items() if place.nodes]
        return (
            *(Action("preempt", jobs.keys[row], Reason("makes room")) for row in preempted),
            *(placement_action(self.snapshot, row, place, int(self.held[row])) for row, place in placed),
        )

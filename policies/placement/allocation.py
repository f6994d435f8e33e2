"""From target GPU counts to actions: the order of the jobs, the GPUs of each, and the nodes that they go to.

A policy orders the jobs and sets a target number of GPUs for each; `allocate` returns the actions that bring the
cluster there. A policy does not know whether its actions are carried out: where Slurm places the jobs, only their rank
has an effect, so a policy ranks them in the same order.

All policies have in common: a job that is not managed starts before all others, on the GPUs that it requested, in order
of submission, and keeps them to its end, as if they were reserved. A managed job without a checkpoint keeps its GPUs
too. The jobs of one ML job are a gang: they start and are preempted together, since a part of a model cannot train
alone. A pending array starts one element a cycle: its row represents all elements that wait.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policies.placement.gpu_space import GPUSpace
from policies.placement.pools import GPUPools, subtract
from policies.placement.space import Packing, Placement, Space
from policies.plan import Action, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints

WAITS_FOR_ROOM = ("None", "Priority", "Resources", "")
"""Slurm's reasons of a pending job that starts as soon as there is room; any other reason keeps it pending."""


class Allocation(NamedTuple):
    """The actions that reach the target GPU counts, and a function that returns what is free after them."""

    actions: tuple[Action, ...]
    after: Callable[[], Space]


def startable(jobs: Jobs) -> Bools:
    """(n,) whether the job is pending and waits for nothing but room."""
    for_room = np.logical_or.reduce([jobs.reason == reason for reason in WAITS_FOR_ROOM])
    return np.asarray(jobs.pending & for_room & ~jobs.held & ~jobs.awaits)


def movable(jobs: Jobs) -> Bools:
    """(n,) whether the job runs and may be preempted, resized or migrated: managed, with a checkpoint to resume
    from, and on whole GPUs."""
    left_alone = jobs.held | jobs.interactive | jobs.part_of_gpu
    return np.asarray(jobs.running & jobs.managed & jobs.restartable & ~left_alone)


def elastic(jobs: Jobs) -> Bools:
    """(n,) whether the number of GPUs may change: the job is elastic, and pending or movable."""
    return np.asarray((jobs.gpus_max > jobs.gpus_min) & jobs.managed & (movable(jobs) | jobs.pending))


def managed_score(jobs: Jobs, score: Floats) -> Floats:
    """(n,) the score of the managed jobs, NaN for all others, which leaves them to Slurm."""
    return np.where(jobs.managed, np.asarray(score, dtype=np.float64), np.nan)


def score_from_order(jobs: Jobs, order: Ints) -> Floats:
    """(n,) scores for this order of rows, the first highest; NaN for jobs that are not in it or not managed."""
    score = np.full(len(jobs), np.nan)
    score[order] = np.arange(len(order), 0, -1, dtype=np.float64)
    return managed_score(jobs, score)


def queue_order(jobs: Jobs, *keys: Floats | Ints | Bools) -> Ints:
    """The rows of running and pending jobs, sorted by these keys (n,) in turn, ascending, NaN last.

    Ties are broken by submission, then by row. Jobs that are not managed come before all others, by submission.
    """
    rows = np.flatnonzero(jobs.pending | jobs.running)
    managed = jobs.managed[rows]
    columns = [np.where(managed, key[rows], 0.0) for key in keys]
    return rows[np.lexsort((jobs.submitted[rows], *reversed(columns), managed))]


def held_gpus(snapshot: Snapshot) -> Ints:
    """(n,) the number of GPUs that each job holds."""
    on = snapshot.runs_on
    return np.bincount(on[:, 0], weights=on[:, 2], minlength=len(snapshot.jobs)).astype(np.int64)


def held_servers(snapshot: Snapshot) -> Ints:
    """(n,) the number of parameter servers that each job holds."""
    n, servers = len(snapshot.jobs), snapshot.servers
    if servers is None:
        return np.zeros(n, dtype=np.int64)
    return np.bincount(snapshot.runs_on[:, 0], weights=servers.on, minlength=n).astype(np.int64)


def gang_gpus(snapshot: Snapshot, order: Ints, *, preempt: Bools | bool, requested: Ints | None = None) -> Ints:
    """(n,) the target GPUs of each job by gang scheduling in this order: the requested number, or 0.

    By GPU counts alone: a gang that fits into the GPUs left by those before it is chosen, one that does not is skipped.
    A running job keeps its GPUs and is counted first, unless it is movable and `preempt`, for all or (n,) for each,
    allows its preemption. Nodes that are open to the same jobs are one pool. requested (n,): in place of `Jobs.gpus`.
    """
    jobs = snapshot.jobs
    requested = jobs.gpus if requested is None else requested
    yields = movable(jobs) & preempt
    wanted = np.where(yields, 0, held_gpus(snapshot))
    left, pools = GPUPools.of(snapshot, yields)
    several = len(left) > 1 or not all(pools)
    total = sum(left)
    candidates, starts = group_gangs(jobs, order[(yields | startable(jobs))[order]])
    each, classes = requested[candidates].tolist(), jobs.placement[candidates].tolist()
    chosen: list[int] = []
    for gpus, fewest, first, end in _by_gang(requested[candidates], starts):
        if fewest > total:
            break
        if gpus > total:
            continue
        rest = left
        for at in range(first, end) if several else ():
            rest = subtract(rest, pools[classes[at]], each[at])
        if rest:
            left = rest
            total -= gpus
            chosen += range(first, end)
    rows = candidates[chosen]
    wanted[rows] = requested[rows]
    return wanted


def group_gangs(jobs: Jobs, rows: Ints) -> tuple[Ints, Ints]:
    """The rows, those of one ML job adjacent at the position of its first; and the start (g,) of each of the g
    gangs."""
    if np.array_equal(jobs.ml_job[rows], rows):
        return rows, np.arange(len(rows))
    _, first, member = np.unique(jobs.ml_job[rows], return_index=True, return_inverse=True)
    heads = first[member]
    order = np.argsort(heads, kind="stable")
    return rows[order], np.flatnonzero(np.diff(heads[order], prepend=-1))


def _by_gang(gpus: Ints, starts: Ints) -> Iterator[tuple[int, int, int, int]]:
    """For each gang its GPUs, the fewest GPUs of any gang from it on, its start and its end."""
    if not len(starts):
        return iter(())
    needs = np.add.reduceat(gpus, starts)
    fewest = np.minimum.accumulate(needs[::-1])[::-1]
    return zip(needs.tolist(), fewest.tolist(), starts.tolist(), [*starts[1:].tolist(), len(gpus)], strict=True)


def leftover_gpus(snapshot: Snapshot, wanted: Ints) -> int:
    """The number of GPUs that stay free when every job has its target."""
    nodes, on = snapshot.nodes, snapshot.runs_on
    ours = np.bincount(on[:, 1], on[:, 2], len(nodes.names))
    usable = nodes.capacity[:, 0] - np.maximum(nodes.used[:, 0] - ours, 0.0)
    return max(0, int(usable[nodes.up].sum() - wanted.sum()))


def grow_elastic(snapshot: Snapshot, wanted: Ints, gain: Callable[[int, int], float]) -> Ints:
    """(n,) the target GPUs after each leftover GPU went to the elastic job with the greatest marginal gain.

    gain(row, gpus): of one more GPU than that; a job without a gain gets none. Ties go to the first row.
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
    servers: Ints | None = None,
) -> Allocation:
    """The actions that give each job its target number of GPUs.

    order: rows, the first placed first. wanted (n,): target GPUs, 0 for none; it applies to jobs that may start and to
    running jobs that are movable, also outside of `order`. A running job with an unchanged number stays where it is.
    One with another number is resized, which replaces its whole placement. One with 0 is preempted; with `spare` only
    where others took its place. A pending job without room waits: jobs after it may start, but not with `strict`. An
    elastic job with less room than its target gets what there is, unless `exact`. prefer(row): the nodes (nodes,) tried
    first. servers (n,): target parameter servers, 0 for a job without any; None for one beside each GPU.
    """
    least = np.where(elastic(snapshot.jobs) & (not exact), snapshot.jobs.gpus_min, wanted)
    allocator = _Allocator(snapshot, wanted, least, packing, prefer, servers=servers)
    return allocator.run(np.asarray(order, dtype=np.int64), strict, spare)


def placement_action(snapshot: Snapshot, row: int, place: Placement, had: int) -> Action:
    """The action that moves a job there: `place` if it is pending, `resize` or `migrate` if it runs, on `had` GPUs."""
    jobs, gpus = snapshot.jobs, sum(place.shares)
    names, key, servers = snapshot.nodes.names, jobs.keys[row], place.servers
    nodes = tuple([names[node] for node in place.nodes])
    if jobs.pending[row]:
        return Action("place", key, Reason("its turn", {"gpus": gpus}), gpus, nodes, place.shares, servers=servers)
    if gpus == had:
        return Action("migrate", key, Reason("moved", {"gpus": gpus}), gpus, nodes, place.shares, servers=servers)
    share = Reason("share", {"gpus": gpus, "had": had})
    return Action("resize", key, share, gpus, nodes, place.shares, servers=servers)


def fit_elastic(
    space: Space | GPUSpace, row: int, *, least: int, gpus: int, had: int, packing: Packing = "tight"
) -> Placement | None:
    """A placement with this many GPUs, or as many as there is room for, if these are `least` or more and not what the
    job `had`; None without room. It gets no more than there are of one type, where these suffice."""
    if not least <= space.most_alike(row) < gpus and (place := space.fit(row, gpus, packing)) is not None:
        return place
    room = space.room_in_all(row, least) if least < gpus else 0
    return space.fit(row, room, packing) if least <= room < gpus and room != had else None


class _Allocator:
    """One allocation in progress. `nodes` is what is free; `space` is the same, or a faster copy that counts GPUs."""

    space: Space | GPUSpace

    def __init__(
        self,
        snapshot: Snapshot,
        wanted: Ints,
        least: Ints,
        packing: Packing,
        prefer: Callable[[int], Bools] | None,
        *,
        servers: Ints | None,
    ) -> None:
        self.snapshot, self.packing, self.prefer = snapshot, packing, prefer
        self.wanted, self.least, self.servers = wanted, least, servers
        self.held = held_gpus(snapshot)
        self.held_servers = held_servers(snapshot)
        self.places: dict[int, Placement] = {}
        """the new placements of jobs that start, move or are preempted (without nodes)"""
        self.without_room: set[tuple[float, ...]] = set()

    @cached_property
    def nodes(self) -> Space:
        return Space(self.snapshot)

    def run(self, order: Ints, strict: bool, spare: bool) -> Allocation:
        jobs = self.snapshot.jobs
        differs = self.held != self.wanted
        if self.servers is not None:
            differs = differs | (self.held_servers != self.servers)
        changed = movable(jobs) & differs
        released = np.flatnonzero(changed)
        starts = startable(jobs) & ((self.wanted > 0) | (jobs.gpus == 0))
        to_place = order[(starts | (changed & (self.wanted > 0)))[order]]
        if not len(to_place) and not len(released):
            return Allocation((), lambda: self.nodes)
        self.nodes.give_all(released)
        counted = None if self.prefer else GPUSpace.of(self.snapshot, self.nodes, np.append(to_place, released))
        self.space = counted or self.nodes
        kept = self._place(to_place, strict)
        idle = released[[row not in self.places and row not in kept for row in released.tolist()]]
        rows, begins = group_gangs(jobs, idle)
        for gang in np.split(rows, begins[1:]):
            if not ((spare or self.wanted[gang].any()) and self._keep(gang.tolist())):
                self.places |= {row: Placement((), ()) for row in gang.tolist()}
        return Allocation(self._actions(), counted.updated_space if counted else lambda: self.nodes)

    def _place(self, rows: Ints, strict: bool) -> set[int]:
        """Place these rows as far as there is room; returns the running ones that found none and keep their
        placement."""
        kept: set[int] = set()
        left = self.space.gpus
        rows, starts = group_gangs(self.snapshot.jobs, rows)
        runs, each = self.snapshot.jobs.running[rows].tolist(), rows.tolist()
        for _, fewest, first, end in _by_gang(np.minimum(self.wanted, self.least)[rows], starts):
            if fewest > left:
                break
            gang = each[first:end]
            gpus = self._place_gang(gang, left)
            if gpus is not None:
                left -= gpus
            elif runs[first] and self._keep(gang):
                kept |= set(gang)
                left -= int(self.held[gang].sum())
            elif strict and not runs[first]:
                break
        return kept

    def _place_gang(self, gang: list[int], left: int) -> int | None:
        """Place this gang: the GPUs that it takes, of `left` free ones; None, and nothing taken, unless all of it
        fits."""
        gpus = 0
        for at, row in enumerate(gang):
            place = self._fit(row, left - gpus)
            if place is None:
                for before in gang[:at]:
                    self.space.give(before, self.places.pop(before))
                return None
            self.places[row] = place
            self.space.take(row, place)
            gpus += sum(place.shares)
        return gpus

    def _keep(self, gang: list[int]) -> bool:
        """Whether the gang can keep its placement; if so it is taken."""
        taken: list[int] = []
        for row in gang:
            place = self.space.place(row)
            if not self.space.fits_there(row, place):
                for before in taken:
                    self.space.give(before, self.space.place(before))
                return False
            self.space.take(row, place)
            taken.append(row)
        return True

    def _fit(self, row: int, left: int) -> Placement | None:
        """A placement for the job, with `left` free GPUs in total; an elastic job may get fewer than its target."""
        gpus, least = int(self.wanted[row]), int(self.least[row])
        if min(gpus, least) > left:
            return None
        if self.servers is not None and self.servers[row]:
            return self._fit_with_servers(row, gpus, int(self.servers[row]))
        if self.without_room and self._request(row) in self.without_room:
            return None
        place = self.nodes.fit(row, gpus, self.packing, self.prefer(row)) if self.prefer else None
        if place is None:
            had = int(self.held[row])
            place = fit_elastic(self.space, row, least=least, gpus=gpus, had=had, packing=self.packing)
        if place is None and not self.held[row]:
            self.without_room.add(self._request(row))
        return place

    def _fit_with_servers(self, row: int, gpus: int, servers: int) -> Placement | None:
        """A placement for a job with parameter servers; None also where there is no room for more than it has."""
        place = self.nodes.fit_with_servers(row, gpus, servers, self.packing)
        if place is None or sum(place.shares) < min(gpus, int(self.least[row])):
            return None
        same = sum(place.shares) == self.held[row] and sum(place.servers or place.shares) == self.held_servers[row]
        return None if same and self.nodes.fits_there(row, self.nodes.place(row)) else place

    def _request(self, row: int) -> tuple[float, ...]:
        """The request of a job: where one job finds no room, no other with the same request does."""
        jobs = self.snapshot.jobs
        of_row = (float(jobs.placement[row]), float(self.wanted[row]), float(self.least[row]))
        return (*of_row, *jobs.demand[row].tolist())

    def _actions(self) -> tuple[Action, ...]:
        jobs = self.snapshot.jobs
        preempted = [row for row, place in self.places.items() if not place.nodes]
        to_place = [(row, place) for row, place in self.places.items() if place.nodes]
        return (
            *(Action("preempt", jobs.keys[row], Reason("makes room")) for row in preempted),
            *(placement_action(self.snapshot, row, place, int(self.held[row])) for row, place in to_place),
        )

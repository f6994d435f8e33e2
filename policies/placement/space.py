"""Free resources on each node, and the nodes that a job fits on."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from policies.placement.gpu_types import counted_types, gpu_capacity, nodes_by_type
from policies.snapshot import RESOURCES, Nodes, Snapshot
from predictors.arrays import Bools, Floats, Ints

Packing: TypeAlias = Literal["tight", "wide"]
"""On as few nodes as possible: the fullest that suffices (tight), or the one with the most free GPUs (wide)."""
_SLACK = 1e-9


class Placement(NamedTuple):
    """The nodes that a job is placed on, by row, and its GPUs on each; no node: it does not run.

    servers: its parameter servers on each; empty for as many as GPUs there, and for a job that has none.
    """

    nodes: tuple[int, ...]
    shares: tuple[int, ...]
    servers: tuple[int, ...] = ()


def free_resources(nodes: Nodes, held: Floats) -> Floats:
    """(nodes, r) what is free of the first r resources, of which jobs hold `held` (nodes, r); 0 on nodes that are
    down."""
    r = held.shape[1]
    free = np.maximum(nodes.capacity[:, :r] - np.fmax(nodes.used[:, :r], held), 0.0)
    return np.where(nodes.up[:, None], free, 0.0)


class Space:
    """What is free on each node, as a working copy that `take` and `give` change.

    `free` (nodes, resources): 0 on nodes that are down. Where nodes have GPUs of several types and jobs request one of
    them, those of each such type are counted as well: `counts_types`. Of a job that requests none it is not known which
    it holds or will have there, so that what it gives back is free for those that request none alone.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        jobs, nodes, on = snapshot.jobs, snapshot.nodes, snapshot.runs_on
        count = jobs.demand[:, 0]
        self._by_gpus = count > 0
        self._per_gpu = jobs.demand / np.where(self._by_gpus, count, 1.0)[:, None]
        types = counted_types(snapshot)
        self.counts_types = len(types) > 0
        if self.counts_types:
            wants = snapshot.type_of_class[jobs.placement][:, None] == types
            self._per_gpu = np.concatenate([self._per_gpu, wants & self._by_gpus[:, None]], axis=1)
        self._a_server = np.zeros_like(self._per_gpu)
        more: Ints | None = None
        if (servers := snapshot.servers) is not None:
            self._a_server[:, 1] = servers.cpus
            more = np.where(servers.most[on[:, 0]] > 0, servers.on - on[:, 2], 0)
        weights = self._held(on[:, 0], on[:, 2], more)
        there = len(nodes.names)
        held = np.array([np.bincount(on[:, 1], column, there) for column in weights.T]).T
        n = len(RESOURCES)
        self._free: Floats = free_resources(nodes, held[:, :n])
        if self.counts_types:
            used = np.fmax(nodes.of_type_used[:, types], held[:, n:])
            of_types = np.where(nodes.up[:, None], np.maximum(nodes.of_type[:, types] - used, 0.0), 0.0)
            self._free = np.concatenate([self._free, of_types], axis=1)
        self.free: Floats = self._free[:, :n]
        order = np.argsort(on[:, 0], kind="stable")
        self._on = on[order]
        self._more = None if more is None else more[order]
        """of each allocation, by how many its parameter servers are more than its GPUs; None where no job has any"""
        self._first = np.searchsorted(self._on[:, 0], np.arange(len(jobs) + 1))
        self._places: dict[int, Placement] = {}
        self._holds: dict[tuple[int, Placement], list[tuple[int, Floats]]] = {}
        self._most_alike: dict[int, float] = {}

    @property
    def gpus(self) -> int:
        """The total number of free GPUs."""
        return int(np.maximum(self.free[:, 0], 0.0).sum())

    def place(self, row: int) -> Placement:
        """The placement of the job in the snapshot; without nodes if it does not run."""
        place = self._places.get(row)
        if place is None:
            here = slice(self._first[row], self._first[row + 1])
            _, nodes, shares = self._on[here].T.tolist()
            servers: tuple[int, ...] = ()
            if self._more is not None and self._more[here].any():
                servers = tuple((self._on[here, 2] + self._more[here]).tolist())
            place = self._places[row] = Placement(tuple(nodes), tuple(shares), servers)
        return place

    def fits_there(self, row: int, place: Placement) -> bool:
        """Whether all that the job needs in this placement is free; for a few numbers loops are faster than arrays."""
        held = self.on_each(row, place)
        for node, each in held:
            if not self._snapshot.nodes.up[node]:
                return False
            for has, wanted in zip(self._free[node].tolist(), each.tolist(), strict=True):
                if has + _SLACK < wanted:
                    return False
        return bool(held)

    def on_each(self, row: int, place: Placement) -> list[tuple[int, Floats]]:
        """The nodes of this placement, each with what the job holds there (resources,)."""
        held = self._holds.get((row, place))
        if held is None:
            shares = place.shares if self._by_gpus[row] else [1] * len(place.nodes)
            each = [self._per_gpu[row] * share for share in shares]
            if place.servers:
                pairs = zip(each, place.shares, place.servers, strict=True)
                each = [own + self._a_server[row] * (servers - share) for own, share, servers in pairs]
            held = self._holds[row, place] = list(zip(place.nodes, each, strict=True))
        return held

    def take(self, row: int, place: Placement) -> list[tuple[int, Floats]]:
        """Allocate this placement to the job; returns `on_each`."""
        held = self.on_each(row, place)
        for node, each in held:
            if self._snapshot.nodes.up[node]:
                self._free[node] -= each
        return held

    def give(self, row: int, place: Placement) -> list[tuple[int, Floats]]:
        """Free this placement of the job; returns `on_each`."""
        held = self.on_each(row, place)
        for node, each in held:
            if self._snapshot.nodes.up[node]:
                self._free[node] += each
        return held

    def give_all(self, rows: Ints) -> None:
        """Free all that these jobs hold in the snapshot."""
        gives = np.zeros(len(self._first) - 1, dtype=bool)
        gives[rows] = True
        given = gives[self._on[:, 0]] & self._snapshot.nodes.up[self._on[:, 1]]
        on, more = self._on[given], None if self._more is None else self._more[given]
        np.add.at(self._free, on[:, 1], self._held(on[:, 0], on[:, 2], more))

    def change(self, taken: Ints) -> None:
        """Apply several changes: (k, 3) job row, node row and GPUs taken, negative if given back."""
        np.subtract.at(self._free, taken[:, 1], self._held(taken[:, 0], taken[:, 2]))

    def fit(self, row: int, gpus: int, packing: Packing = "tight", nodes: Bools | None = None) -> Placement | None:
        """A placement with this many GPUs for the job, with CPUs and memory in proportion; None without room.

        On the one sufficient node with the fewest free GPUs (tight) or the most (wide); else on as few nodes as
        possible, those with the most room first, `together`: of two types that take as few nodes, that with less room
        (tight) or more (wide). A job without GPUs goes to one node. nodes (nodes,): only these.
        """
        jobs, snapshot = self._snapshot.jobs, self._snapshot
        allowed = snapshot.fits[jobs.placement[row]] & snapshot.nodes.up
        if nodes is not None:
            allowed = allowed & nodes
        if gpus <= 0:
            room = np.flatnonzero(allowed & np.all(self.free + _SLACK >= jobs.demand[row], axis=1))
            return Placement((int(room[self.free[room, 1].argmin()]),), (0,)) if len(room) else None
        return self._fit(row, gpus, packing, np.where(allowed, self.room(row), 0.0))

    def fit_with_servers(self, row: int, gpus: int, servers: int, packing: Packing = "tight") -> Placement | None:
        """A placement with this many GPUs and parameter servers; None without room for one of each.

        As many GPUs as there is room for are placed as by `fit`. Then of the servers as many in proportion, as far as
        there is room, go to the node with the most free CPUs each.
        """
        allowed = self._snapshot.fits[self._snapshot.jobs.placement[row]] & self._snapshot.nodes.up
        worker, cpus = self._per_gpu[row] - self._a_server[row], self._a_server[row, 1]
        units = np.where(allowed, self._room(row, worker), 0.0)
        most = min(gpus, max((int(units[each].sum()) for each in self.together(row, 1)), default=0))
        place = self._fit(row, most, packing, units) if most > 0 else None
        if place is None:
            return None
        free = np.where(allowed, self._free[:, 1], -np.inf)
        free[list(place.nodes)] -= worker[1] * np.array(place.shares)
        given: dict[int, int] = {}
        for _ in range(-(-servers * most // gpus)):
            node = int(free.argmax())
            if free[node] + _SLACK < cpus:
                break
            free[node] -= cpus
            given[node] = given.get(node, 0) + 1
        if not given:
            return None
        nodes = (*place.nodes, *(node for node in given if node not in place.nodes))
        shares = (*place.shares, *[0] * (len(nodes) - len(place.nodes)))
        counts = tuple(given.get(node, 0) for node in nodes)
        return Placement(nodes, shares, () if counts == shares else counts)

    def _fit(self, row: int, gpus: int, packing: Packing, units: Floats) -> Placement | None:
        """A placement on nodes with room for `units` (nodes,) GPUs of the job; None without room."""
        if units.sum() < gpus:
            return None
        enough = np.flatnonzero(units >= gpus)
        if len(enough):
            left = self.free[enough, 0]
            return Placement((int(enough[left.argmin() if packing == "tight" else left.argmax()]),), (gpus,))
        rooms = [np.where(each, units, 0.0) for each in self.together(row, gpus)]
        return on_fewest_nodes(
            [(float(room.sum()), _spread(room, gpus, packing)) for room in rooms if room.sum() >= gpus], packing
        )

    def together(self, row: int, gpus: int) -> tuple[Bools, ...]:
        """Sets of nodes (nodes,) to one of which a placement with so many GPUs keeps: those of one type of GPU, as a
        job trains as fast as on the slowest. All nodes are one set for a job that requests a type, and where no type
        has as many GPUs in service."""
        return self._types(row) if gpus <= self.most_alike(row) < np.inf else (self._anywhere,)

    def most_alike(self, row: int) -> float:
        """The number of GPUs of one type in service that the job could have at most, if it ran alone; infinite where
        types make no difference to it."""
        if not self._by_type:
            return np.inf
        kind = int(self._snapshot.jobs.placement[row])
        if kind not in self._most_alike:
            there = np.where(self._snapshot.nodes.up, gpu_capacity(self._snapshot, kind), 0.0)
            self._most_alike[kind] = max((float(there[each].sum()) for each in self._types(row)), default=np.inf)
        return self._most_alike[kind]

    def _types(self, row: int) -> tuple[Bools, ...]:
        """The nodes (nodes,) of each type of GPU, for a job that requests none; empty where they are alike to it."""
        requested = self._snapshot.type_of_class
        typed = len(requested) > 0 and requested[self._snapshot.jobs.placement[row]] >= 0
        return () if typed else self._by_type

    @cached_property
    def _by_type(self) -> tuple[Bools, ...]:
        return nodes_by_type(self._snapshot.nodes)

    @cached_property
    def _anywhere(self) -> Bools:
        return np.ones(len(self._free), dtype=bool)

    def room(self, row: int) -> Floats:
        """(nodes,) the number of GPUs that the job could get on each node, with CPUs and memory in proportion."""
        return self._room(row, self._per_gpu[row])

    def _room(self, row: int, per_gpu: Floats) -> Floats:
        """As `room`, with the amount `per_gpu` (resources,) of each resource for one GPU."""
        units = np.where(self._snapshot.fits[self._snapshot.jobs.placement[row]], self.free[:, 0], 0.0)
        for resource in range(1, self._free.shape[1]):
            each = per_gpu[resource]
            if each > 0:
                units = np.minimum(units, self._free[:, resource] / each)
        return np.asarray(np.floor(units + _SLACK))

    def whole_fits(self, row: int, at: int | slice | Ints = slice(None)) -> Bools:
        """(nodes,) on which of these nodes all that the job requests is free."""
        demand = self._snapshot.jobs.demand[row]
        if self.counts_types:
            demand = np.concatenate([demand, self._per_gpu[row, len(demand) :] * demand[0]])
        return np.asarray((self._free[at] + _SLACK >= demand).all(axis=-1))

    def room_in_all(self, row: int, least: int = 1) -> int:
        """The number of GPUs that the job could get on all nodes `together`, where it needs `least` of them."""
        room = self.room(row)
        return int(max(room[each].sum() for each in self.together(row, least)))

    def _held(self, rows: Ints, shares: Ints, more: Ints | None = None) -> Floats:
        """(k, resources) what jobs hold with these GPUs; a job that requests no GPUs holds its whole demand. more (k,):
        parameter servers beyond one a GPU."""
        parts = np.where(self._by_gpus[rows], shares, 1.0)
        held = self._per_gpu[rows] * parts[:, None]
        return np.asarray(held if more is None else held + self._a_server[rows] * more[:, None])


def on_fewest_nodes(found: Sequence[tuple[float, Placement]], packing: Packing) -> Placement | None:
    """The placement on the fewest nodes; of equal ones that with the least room (tight) or the most (wide).

    found: placements, each with the room on the nodes of its type of GPU.
    """
    sign = 1.0 if packing == "tight" else -1.0
    return min(found, key=lambda each: (len(each[1].nodes), sign * each[0]))[1] if found else None


def _spread(units: Floats, gpus: int, packing: Packing) -> Placement:
    """A placement on several nodes with room for `units` (nodes,), which suffice together and not alone."""
    most = np.argsort(-units, kind="stable")
    whole = int(np.searchsorted(np.cumsum(units[most]), gpus))
    shares = [int(share) for share in units[most[:whole]]]
    rest = gpus - sum(shares)
    last = most[whole:][units[most[whole:]] >= rest]
    chosen = last[units[last].argmin()] if packing == "tight" else most[whole]
    return Placement((*(int(node) for node in most[:whole]), int(chosen)), (*shares, rest))

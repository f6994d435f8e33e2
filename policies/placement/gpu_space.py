"""Free GPUs on each node, where GPUs alone decide which jobs fit: as `Space`, in whole numbers and much faster.

If no job needs more CPUs or memory per GPU than any node has free per GPU, a job fits wherever its GPUs are free. This
remains true whatever is taken and given, so only GPUs are counted. `tests/property/test_allocation.py` compares the
placements with those of `Space`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from policies.placement.gpu_types import nodes_by_type
from policies.placement.space import Packing, Placement, Space, on_fewest_nodes
from policies.snapshot import Snapshot
from predictors.arrays import Ints

_ROUNDING = 1.0 + 1e-12


class GPUSpace:
    """A working copy of a `Space` that counts GPUs only; `updated_space` applies its changes to the original.

    For each number of free GPUs there is a heap of nodes by row. An entry whose node has another number by now is
    dropped when it reaches the top.
    """

    def __init__(self, snapshot: Snapshot, space: Space) -> None:
        self._space = space
        self._up = snapshot.nodes.up.tolist()
        self._free: list[int] = space.free[:, 0].astype(np.int64).tolist()
        self.gpus: int = sum(self._free)
        """free GPUs in total"""
        capacity = int(max(snapshot.nodes.capacity[:, 0].max(initial=0), max(self._free, default=0)))
        self._with: list[list[int]] = [[] for _ in range(capacity + 1)]
        self._levels = 0
        """bit i: some node may have i free GPUs"""
        for node, free in enumerate(self._free):
            self._with[free].append(node)
            self._levels |= 1 << free
        self._changes: list[tuple[int, int, int]] = []
        by_type = nodes_by_type(snapshot.nodes)
        self._types = [np.flatnonzero(of_type).tolist() for of_type in by_type]
        """the nodes of each type of GPU; empty where all are alike"""
        in_service = np.where(snapshot.nodes.up, snapshot.nodes.capacity[:, 0], 0.0)
        self._most_alike = max((float(in_service[of_type].sum()) for of_type in by_type), default=np.inf)

    @classmethod
    def of(cls, snapshot: Snapshot, space: Space, rows: Ints) -> GPUSpace | None:
        """A copy if these rows may use all nodes, request GPUs, and fit by GPUs of any type alone; else None."""
        jobs, up, free = snapshot.jobs, snapshot.nodes.up, space.free
        if snapshot.servers is not None or space.counts_types or not len(rows) or not np.all(jobs.demand[rows, 0] > 0):
            return None
        if not snapshot.fits[np.unique(jobs.placement[rows])][:, up].all() or not np.all(free[:, 0] % 1 == 0):
            return None
        some = free[free[:, 0] > 0]
        a_gpu = (some[:, 1:] / some[:, :1]).min(axis=0, initial=np.inf)
        most = (jobs.demand[rows, 1:] / jobs.demand[rows, :1]).max(axis=0)
        return cls(snapshot, space) if np.all(most <= a_gpu * _ROUNDING) else None

    def updated_space(self) -> Space:
        """The original space, with all that was taken and given here."""
        if self._changes:
            self._space.change(np.array(self._changes, dtype=np.int64))
            self._changes = []
        return self._space

    def place(self, row: int) -> Placement:
        """The placement of the job in the snapshot; without nodes if it does not run."""
        return self._space.place(row)

    def fits_there(self, row: int, place: Placement) -> bool:  # noqa: ARG002 the same for all rows
        """Whether the GPUs of this placement are free."""
        pairs = zip(place.nodes, place.shares, strict=True)
        return bool(place.nodes) and all(self._up[node] and self._free[node] >= share for node, share in pairs)

    def take(self, row: int, place: Placement) -> None:
        """Allocate this placement to the job."""
        for node, share in zip(place.nodes, place.shares, strict=True):
            self._change(row, node, share)

    def give(self, row: int, place: Placement) -> None:
        """Free this placement of the job."""
        for node, share in zip(place.nodes, place.shares, strict=True):
            if self._up[node]:
                self._change(row, node, -share)

    def _change(self, row: int, node: int, taken: int) -> None:
        free = self._free[node] - taken
        self._free[node] = free
        self.gpus -= taken
        heapq.heappush(self._with[free], node)
        self._levels |= 1 << free
        self._changes.append((row, node, taken))

    def most_alike(self, row: int) -> float:  # noqa: ARG002
        """As `Space.most_alike`."""
        return self._most_alike

    def room_in_all(self, row: int, least: int = 1) -> int:  # noqa: ARG002
        """As `Space.room_in_all`."""
        return max(self._room(nodes) for nodes in self._types) if self._apart(least) else self.gpus

    def fit(self, row: int, gpus: int, packing: Packing = "tight") -> Placement | None:  # noqa: ARG002
        """A placement with this many GPUs; as `Space.fit`."""
        if gpus > self.gpus:
            return None
        if gpus < len(self._with):
            node = self._fullest(gpus) if packing == "tight" else self._emptiest(gpus)
            if node is not None:
                return Placement((node,), (gpus,))
        if not self._apart(gpus):
            return self._spread(gpus, packing)
        rooms = [(self._room(nodes), nodes) for nodes in self._types]
        found = [(room, self._spread(gpus, packing, frozenset(nodes))) for room, nodes in rooms if room >= gpus]
        return on_fewest_nodes(found, packing)

    def _apart(self, gpus: int) -> bool:
        """Whether a placement with so many GPUs keeps to those of one type."""
        return bool(self._types) and gpus <= self._most_alike

    def _room(self, nodes: Sequence[int]) -> int:
        return sum([self._free[node] for node in nodes])

    def _fullest(self, gpus: int) -> int | None:
        """The first of the nodes with the fewest free GPUs that are at least `gpus`."""
        levels = self._levels >> gpus
        while levels:
            node = self._top(gpus + (levels & -levels).bit_length() - 1)
            if node is not None:
                return node
            levels &= levels - 1
        return None

    def _emptiest(self, gpus: int) -> int | None:
        """The first of the nodes with the most free GPUs, if that is at least `gpus`."""
        levels = self._levels >> gpus
        while levels:
            highest = levels.bit_length() - 1
            node = self._top(gpus + highest)
            if node is not None:
                return node
            levels ^= 1 << highest
        return None

    def _top(self, free: int) -> int | None:
        """The first node with exactly this many free GPUs."""
        heap = self._with[free]
        while heap and self._free[heap[0]] != free:
            heapq.heappop(heap)
        if heap:
            return heap[0]
        self._levels &= ~(1 << free)
        return None

    def _spread(self, gpus: int, packing: Packing, among: Collection[int] | None = None) -> Placement:
        """Whole nodes, those with the most free GPUs first, and the rest on one more; `gpus` are free in total, or
        on the nodes `among`, which are then the only ones."""
        nodes: list[int] = []
        shares: list[int] = []
        for node in self._by_free_gpus():
            if among is not None and node not in among:
                continue
            if self._free[node] >= gpus:
                last = node if packing == "wide" else self._fullest_but(gpus, nodes, among)
                return Placement((*nodes, last), (*shares, gpus))
            nodes.append(node)
            shares.append(self._free[node])
            gpus -= self._free[node]
        raise RuntimeError("more GPUs are counted as free than the nodes have")

    def _by_free_gpus(self) -> Iterator[int]:
        """The nodes by free GPUs, descending, then by row."""
        for free in range(len(self._with) - 1, 0, -1):
            yield from sorted({node for node in self._with[free] if self._free[node] == free})

    def _fullest_but(self, gpus: int, chosen: list[int], among: Collection[int] | None) -> int:
        """As `_fullest`, without the nodes chosen already and those not `among`; one exists."""
        levels = self._levels >> gpus
        while levels:
            free = gpus + (levels & -levels).bit_length() - 1
            left = [node for node in self._with[free] if self._free[node] == free and node not in chosen]
            left = [node for node in left if among is None or node in among]
            if left:
                return min(left)
            levels &= levels - 1
        raise RuntimeError("more GPUs are counted as free than the nodes have")

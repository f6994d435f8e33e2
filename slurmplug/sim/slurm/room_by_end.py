"""Where there is room for a job as running jobs end, by their time limits.

What is held, an entry for each job and node, is in the order of its end, so that a time is a count of entries that are
over. What a node has free only grows with it: for so many parts of a request there is room from a count on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from operator import or_

import numpy as np

from policies.placement.parts import parts_on
from predictors.arrays import Floats, Ints
from slurmplug.sim.slurm.node_sets import NodeSet, flags
from slurmplug.sim.slurm.queue import Demand, HeldResources


class RoomByEnd:
    """How much m nodes have free once so many entries are over, and how many parts of a request fit there."""

    def __init__(self, free: Floats, held: HeldResources, now: float) -> None:
        """free: (m, resources) now. Nothing ends sooner than a second from now."""
        order = np.argsort(held.until, kind="stable")
        self._node: Ints = held.node[order]
        self.times: list[float] = np.maximum(held.until[order], now + 1).tolist()
        """when each entry ends, in this order"""
        self._node_of: list[int] = self._node.tolist()
        on_each = np.bincount(self._node, minlength=len(free))
        by_node = np.argsort(self._node, kind="stable")
        place = np.arange(len(by_node)) - np.repeat(np.cumsum(on_each) - on_each, on_each) + 1
        most = int(on_each.max(initial=0))
        self._counts = np.full((len(free), most + 1), len(by_node) + 1)
        self._counts[:, 0] = 0
        self._counts[self._node[by_node], place] = by_node + 1
        freed = np.zeros((len(free), most + 1, free.shape[1]))
        freed[:, 0] = free
        freed[self._node[by_node], place] = held.amount[order][by_node]
        self._free: Floats = np.cumsum(freed, axis=1)
        """(m, 1 + most entries of a node, resources) after so many of its entries, that are over at `_counts`"""
        self._counts_of: dict[int, list[int]] = {}
        """by node, its row of `_counts`"""
        self._cpus: dict[int, list[float]] = {}
        self._parts: dict[Demand, Floats] = {}
        self._gains: dict[Demand, tuple[Floats, Ints, Ints, Floats]] = {}
        """by demand: the parts that nodes (m,) have room for now, and where, when and how much more that gets"""
        self._from: dict[tuple[Demand, int], tuple[list[int], list[NodeSet]]] = {}

    def over(self, time: float) -> int:
        """How many entries are then."""
        return bisect_right(self.times, time)

    def nodes(self, demand: Demand, parts: int, over: int) -> NodeSet:
        """The nodes with room for so many parts, once so many entries are over."""
        counts, nodes = self._from_count(demand, parts)
        at = bisect_right(counts, over)
        return nodes[at - 1] if at else 0

    def parts(self, demand: Demand, over: int) -> Floats:
        """(m,) how many parts each node has room for, once so many entries are over."""
        own = (self._counts <= over).sum(axis=1) - 1
        return np.asarray(self._parts_on(demand)[np.arange(len(own)), own])

    def soonest(self, demand: Demand, parts: int, count: int, inside: NodeSet) -> int | None:
        """How many entries are over when so many nodes of this set have room for so many parts each; None for never."""
        counts, nodes = self._from_count(demand, parts)
        at = bisect_left(nodes, count, key=lambda each: (each & inside).bit_count())
        return counts[at] if at < len(counts) else None

    def soonest_spread(self, demand: Demand, parts: int, inside: NodeSet) -> int | None:
        """How many entries are over when the nodes of this set have room for so many parts together; None for never."""
        if demand not in self._gains:
            room = self._parts_on(demand).clip(0)
            where, entry = np.nonzero(np.diff(room, axis=1))
            order = np.argsort(self._counts[where, entry + 1])
            where, entry = where[order], entry[order] + 1
            gained = room[where, entry] - room[where, entry - 1]
            self._gains[demand] = room[:, 0], where, self._counts[where, entry], gained
        now, where, counts, gained = self._gains[demand]
        here = flags(inside, len(now))
        missing = parts - now @ here
        if missing <= 0:
            return 0
        at = int(np.searchsorted(np.cumsum(gained * here[where]), missing))
        return int(counts[at]) if at < len(counts) else None

    def cpus(self, node: int, over: int) -> float:
        """What the node has free of its CPUs, the second resource, once so many entries are over."""
        if node not in self._cpus:
            self._cpus[node] = self._free[node, :, 1].tolist()
        return self._cpus[node][self._over_on(node, over)]

    def first_end(self, nodes: NodeSet, first: int, last: int) -> float:
        """When the first of these entries that is on these nodes ends, or the first of all where none is."""
        return self.times[next((at for at in range(first, last) if nodes >> self._node_of[at] & 1), first)]

    def last_end(self, nodes: Iterable[int], over: int) -> float:
        """When the last entry on these nodes of so many ends."""
        last = max(self._counts_of[node][at] for node in nodes if (at := self._over_on(node, over)))
        return self.times[last - 1]

    def _over_on(self, node: int, over: int) -> int:
        """How many of the node's own entries are over once so many of all are."""
        if node not in self._counts_of:
            self._counts_of[node] = self._counts[node].tolist()
        return bisect_right(self._counts_of[node], over) - 1

    def _from_count(self, demand: Demand, parts: int) -> tuple[list[int], list[NodeSet]]:
        """From which counts on which nodes have room for so many parts, in order."""
        key = (demand, parts)
        if key not in self._from:
            enough = self._parts_on(demand) >= parts
            nodes = np.flatnonzero(enough[:, -1])
            counts = self._counts[nodes, enough[nodes].argmax(axis=1)]
            order = np.argsort(counts, kind="stable")
            self._from[key] = counts[order].tolist(), list(accumulate((1 << n for n in nodes[order].tolist()), or_))
        return self._from[key]

    def _parts_on(self, demand: Demand) -> Floats:
        """(m, 1 + most entries of a node) after so many of its entries."""
        if demand not in self._parts:
            self._parts[demand] = parts_on(self._free, np.array(demand))
        return self._parts[demand]

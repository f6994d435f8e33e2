"""Which nodes backfill has reserved for waiting jobs, and from when to when: the table of Slurm's sched/backfill.

A reservation has whole nodes, however little of them its job requests. Times are seconds.
"""

from bisect import bisect_left, bisect_right
from functools import reduce
from operator import and_

from slurmplug.sim.slurm.node_sets import NodeSet, all_of


class NodeSpace:
    """Slots of time, each with the nodes that nobody has reserved; the last ends with backfill's window."""

    def __init__(self, nodes: int, begin: float, end: float, resolution: float) -> None:
        """resolution: bf_resolution, to multiples of which times are rounded."""
        self._resolution = resolution
        self._begin = [self._rounded(begin)]
        self.end = self._rounded(end)
        self._all = all_of(nodes)
        self._free = [self._all]
        self._first: list[float] = []
        self._reserved: list[NodeSet] = []
        """the nodes with a reservation that begins until each of these times"""

    def __len__(self) -> int:
        return len(self._begin)

    def free_until(self, end: float) -> NodeSet:
        """The nodes that are free from the beginning until then."""
        at = bisect_right(self._first, max(end, self._begin[0]))
        return self._all & ~self._reserved[at - 1] if at else self._all

    def free(self, inside: NodeSet, start: float, end: float) -> tuple[NodeSet, float]:
        """Those nodes of this set that are free from start to end; and the end of the first slot after which others
        are, 0 where there is none."""
        begin, slots = self._begin, self._free
        first = max(bisect_right(begin, start) - 1, 0)
        last = bisect_right(begin, end) - 1
        found = reduce(and_, slots[first : last + 1], inside)
        free = inside
        for at in range(first, min(last + 2, len(slots) - 1)):
            free &= slots[at]
            if inside & slots[at + 1] & ~free:
                return found, begin[at + 1]
        return found, begin[last + 3] if last + 3 < len(begin) else 0.0

    def slot(self, start: float, seconds: float) -> tuple[float, float]:
        """From when to when nodes are reserved for a job of so many seconds."""
        return self._rounded(start), self._rounded(start + seconds + self._resolution - 1)

    def overlaps(self, nodes: NodeSet, start: float, end: float) -> bool:
        """Whether one of these nodes is reserved in a part of this time."""
        first, last = max(bisect_right(self._begin, start) - 1, 0), bisect_left(self._begin, end)
        return reduce(and_, self._free[first:last], nodes) != nodes

    def reserve(self, nodes: NodeSet, start: float, end: float) -> None:
        """Reserve these nodes."""
        start = max(start, self._begin[0])
        if start >= self.end:
            return
        end = max(end, start + self._resolution)
        first = self._cut(start)
        last = self._cut(end) if end < self.end else len(self)
        left = ~nodes
        self._free[first:last] = [each & left for each in self._free[first:last]]
        self._note_first(nodes, start)

    def _note_first(self, nodes: NodeSet, start: float) -> None:
        at = bisect_left(self._first, start)
        before = self._reserved[at - 1] if at else 0
        if not nodes & ~before:
            return
        if at == len(self._first) or self._first[at] != start:
            self._first.insert(at, start)
            self._reserved.insert(at, before)
        self._reserved[at:] = [each | nodes for each in self._reserved[at:]]

    def _cut(self, time: float) -> int:
        """The number of the slot that begins then, which it is made to do."""
        at = bisect_left(self._begin, time)
        if at == len(self) or self._begin[at] != time:
            self._begin.insert(at, time)
            self._free.insert(at, self._free[at - 1])
        return at

    def _rounded(self, time: float) -> float:
        return time // self._resolution * self._resolution

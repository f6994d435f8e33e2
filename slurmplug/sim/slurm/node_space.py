"""Which nodes backfill has reserved for waiting jobs, and from when to when: the table of Slurm's sched/backfill.

A reservation has whole nodes, however little of them its job requests. A set of nodes is an integer with a bit for each
node, which is faster here than an array. Times are seconds.
"""

from bisect import bisect_left, bisect_right
from functools import reduce
from operator import and_

import numpy as np

from predictors.arrays import Bools, Ints


def bits(nodes: Bools) -> int:
    """The set of these nodes (m,)."""
    return int.from_bytes(np.packbits(nodes, bitorder="little").tobytes(), "little")


class NodeSpace:
    """Slots of time, each with the nodes that nobody has reserved; the last ends with backfill's window."""

    def __init__(self, nodes: int, begin: float, end: float, resolution: float) -> None:
        """resolution: bf_resolution, to multiples of which times are rounded."""
        self._resolution, self._nodes = resolution, nodes
        self._begin = [self._rounded(begin)]
        self.end = self._rounded(end)
        self._free = [(1 << nodes) - 1]
        self._numbered: dict[int, Ints] = {}
        """sets of nodes, and the numbers of these"""

    def __len__(self) -> int:
        return len(self._begin)

    def free(self, inside: int, start: float, end: float) -> tuple[Ints, float]:
        """Those nodes (k,) of this set that are free from start to end; and the end of the first slot after which
        others are, 0 where there is none."""
        first = max(bisect_right(self._begin, start) - 1, 0)
        last = bisect_right(self._begin, end) - 1
        found = self._numbers(reduce(and_, self._free[first : last + 1], inside))
        free = inside
        for at in range(first, min(last + 2, len(self) - 1)):
            free &= self._free[at]
            if inside & self._free[at + 1] & ~free:
                return found, self._begin[at + 1]
        return found, self._begin[last + 3] if last + 3 < len(self) else 0.0

    def slot(self, start: float, seconds: float) -> tuple[float, float]:
        """From when to when nodes are reserved for a job of so many seconds."""
        return self._rounded(start), self._rounded(start + seconds + self._resolution - 1)

    def overlaps(self, nodes: Ints, start: float, end: float) -> bool:
        """Whether one of these nodes (k,) is reserved in a part of this time."""
        first, last = max(bisect_right(self._begin, start) - 1, 0), bisect_left(self._begin, end)
        wanted = self._set(nodes)
        return reduce(and_, self._free[first:last], wanted) != wanted

    def reserve(self, nodes: Ints, start: float, end: float) -> None:
        """Reserve these nodes (k,)."""
        start = max(start, self._begin[0])
        if start >= self.end:
            return
        end = max(end, start + self._resolution)
        first = self._cut(start)
        last = self._cut(end) if end < self.end else len(self)
        left = ~self._set(nodes)
        self._free[first:last] = [each & left for each in self._free[first:last]]

    def _cut(self, time: float) -> int:
        """The number of the slot that begins then, which it is made to do."""
        at = bisect_left(self._begin, time)
        if at == len(self) or self._begin[at] != time:
            self._begin.insert(at, time)
            self._free.insert(at, self._free[at - 1])
        return at

    def _rounded(self, time: float) -> float:
        return time // self._resolution * self._resolution

    def _set(self, nodes: Ints) -> int:
        return sum(1 << node for node in nodes.tolist())

    def _numbers(self, nodes: int) -> Ints:
        if nodes not in self._numbered:
            packed = np.frombuffer(nodes.to_bytes(-(-self._nodes // 8), "little"), dtype=np.uint8)
            self._numbered[nodes] = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
        return self._numbered[nodes]

"""What running rows hold, in columns that change by single rows: thousands run, and few start or end at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.slurm.queue import HeldResources, joined


@dataclass(frozen=True)
class Releasing:
    """Resources of a node that an ended or requeued job still holds."""

    node: int
    amount: Floats
    until: float


class HeldByRow:
    """Entries of `HeldResources`, by the row that holds them."""

    def __init__(self, resources: int) -> None:
        """resources: the length of an amount."""
        self._node = np.zeros(0, dtype=np.int64)
        self._amount: Floats = np.zeros((0, resources))
        self._until: Floats = np.zeros(0)
        self._free: list[int] = []
        self._places: dict[int, list[int]] = {}
        """by row, where its entries are"""

    def add(self, row: int, nodes: Sequence[int], amounts: Floats, until: float) -> None:
        """The row holds these amounts (k, resources) of these nodes until then, and nothing else."""
        self.remove(row)
        if len(self._free) < len(nodes):
            self._grow(len(nodes))
        places = [self._free.pop() for _ in nodes]
        self._node[places], self._amount[places], self._until[places] = nodes, amounts, until
        self._places[row] = places

    def remove(self, row: int) -> None:
        """The row holds nothing."""
        places = self._places.pop(row, [])
        self._node[places] = -1
        self._free += places

    def resources(self, nodes: Sequence[int], amounts: Floats, until: Sequence[float]) -> HeldResources:
        """All entries, and these (k,) that no row holds."""
        here = np.flatnonzero(self._node >= 0)
        of_rows = HeldResources(self._node[here], self._amount[here], self._until[here])
        return joined(of_rows, np.array(nodes), amounts, np.array(until)) if nodes else of_rows

    def _grow(self, least: int) -> None:
        size, more = len(self._node), max(least, len(self._node), 64)
        self._node = np.concatenate([self._node, np.full(more, -1)])
        self._amount = np.concatenate([self._amount, np.zeros((more, self._amount.shape[1]))])
        self._until = np.concatenate([self._until, np.zeros(more)])
        self._free += range(size + more - 1, size - 1, -1)

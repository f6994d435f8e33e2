"""What the jobs on a node share, and how it slows them.

On a node of whose CPUs, memory or network more than the share h (0.9) is in use, everything trains h / u as fast, u
being the greatest of the three shares: demand beyond h is shared evenly. CPUs and memory are used as
requested, and the network by what trainings on several nodes send when nothing slows them, evenly over these.
"""

from collections.abc import Iterable

import numpy as np

from predictors.arrays import Floats, Texts
from slurmplug.sim.engine.nodes import SimNodes

_ROUNDING = 1e-9


class SharedNodes:
    """Use of each node: `used` (nodes, resources) of `capacity`, and `network` (nodes,) bytes a second."""

    def __init__(self, nodes: SimNodes, threshold: float) -> None:
        """threshold: h."""
        self.names, self.threshold = nodes.names, threshold
        columns = (nodes.gpus, nodes.cpus, nodes.memory)
        self.capacity: Floats = np.stack([np.array(column, dtype=np.float64) for column in columns], axis=1)
        self.bandwidth: Floats = np.array(nodes.network, dtype=np.float64)
        self.gpu_type: Texts = np.array(nodes.gpu_type or ("",) * len(nodes), dtype=np.str_)
        """(nodes,) of its GPUs, empty where they have none"""
        self._most = self.capacity * (1 + _ROUNDING) + _ROUNDING
        self.used: Floats = np.zeros_like(self.capacity)
        self.network: Floats = np.zeros(len(nodes))
        self.slowdown: Floats = np.ones(len(nodes))
        """by what factor everything on the node takes longer"""
        self._overloaded = 0.0
        self._overloaded_since: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self.names)

    def shortage(self, node: int, demand: Floats, freed: Floats | float) -> str:
        """Which resource of this demand is not free on the node once `freed` is; empty where all are."""
        over = self.used[node] - freed + demand > self._most[node]
        return ("GPUs", "CPUs", "memory")[int(over.argmax())] if over.any() else ""

    def changed(self, nodes: Iterable[int], now: float) -> list[int]:
        """Note that what these nodes hold has changed; returns those whose slowdown differs from before."""
        found = []
        for node in nodes:
            (_, cpus, memory), (_, has_cpus, has_memory) = self.used[node].tolist(), self.capacity[node].tolist()
            sends = float(self.network[node] / self.bandwidth[node])
            share = max(cpus / has_cpus if has_cpus else 0.0, memory / has_memory if has_memory else 0.0, sends)
            slowdown = max(1.0, round(share / self.threshold, 9))
            if slowdown != self.slowdown[node]:
                self.slowdown[node] = slowdown
                self._note(node, now, over=slowdown > 1)
                found.append(node)
        return found

    def overloaded(self, now: float) -> float:
        """Node seconds until now with a share above the threshold."""
        return self._overloaded + sum(now - since for since in self._overloaded_since.values())

    def _note(self, node: int, now: float, *, over: bool) -> None:
        if over:
            self._overloaded_since.setdefault(node, now)
        elif node in self._overloaded_since:
            self._overloaded += now - self._overloaded_since.pop(node)

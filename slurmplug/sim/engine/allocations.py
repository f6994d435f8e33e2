"""What the rows of a simulated cluster hold of its nodes: GPUs, CPUs and memory; and whether a row fits somewhere."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.contention import SharedNodes
from slurmplug.sim.engine.workload_table import WorkloadTable

GpusByNode: TypeAlias = tuple[tuple[int, int], ...]
"""Nodes, and the GPUs on each."""


class Allocations:
    """The allocations of the running rows, of which `used` of the nodes is the sum."""

    def __init__(self, table: WorkloadTable, nodes: SharedNodes) -> None:
        self._table, self._nodes = table, nodes
        self.holds: dict[int, GpusByNode] = {}
        self.servers: dict[int, tuple[int, ...]] = {}
        """of rows with parameter servers, how many they hold on each of the nodes of `holds`"""
        self.on_free: Callable[[int, GpusByNode], None] | None = None
        """is told of each row that no longer holds what it did"""

    def problem(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> str:
        """Why the row cannot hold this in place of what it holds now; empty where it can. servers: see `servers_on`."""
        if problem := self._problem_of_servers(row, where, servers):
            return problem
        servers = self.servers_on(row, where, servers)
        return self._problem_of_nodes(row, where, servers) or self._problem_of_size(row, where, servers)

    def servers_on(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> tuple[int, ...]:
        """The parameter servers on each of these nodes: those given, else as many as GPUs; empty for a row without."""
        return servers or (tuple(share for _, share in where) if self._has_servers(row) else ())

    def allocate(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> None:
        """Give this to a row that holds nothing. servers: on each of the nodes, empty for a row without any."""
        self.holds[row] = where
        if servers:
            self.servers[row] = servers
        for node, demand in self._demands(row, where, servers):
            self._nodes.used[node] += demand

    def free(self, row: int) -> list[int]:
        """Take back all that the row holds; returns the nodes that it was on."""
        where = self.holds.pop(row)
        for node, demand in self._demands(row, where, self.servers.pop(row, ())):
            self._nodes.used[node] -= demand
        if self.on_free:
            self.on_free(row, where)
        return [node for node, _ in where]

    def demand(self, row: int, share: int, servers: int | None = None) -> Floats:
        """(resources,) what the row holds with so many GPUs, and so many parameter servers if it has any: without a
        number, as many."""
        held = np.asarray(self._table.per_gpu[row] * (share if self._table.requested[row] else 1))
        if servers is not None and self._table.servers is not None:
            held[1] += self._table.servers.cpus[row] * (servers - share)
        return held

    def _demands(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> Iterator[tuple[int, Floats]]:
        """Each of these nodes, and what the row holds there."""
        for (node, share), count in zip(where, servers or (None,) * len(where), strict=True):
            yield node, self.demand(row, share, count)

    def _has_servers(self, row: int) -> bool:
        return self._table.servers is not None and bool(self._table.servers.most[row])

    def _problem_of_servers(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> str:
        if not servers:
            return ""
        if not self._has_servers(row):
            return "the job has no parameter servers"
        if len(servers) != len(where) or min(servers) < 0:
            return "parameter servers are a number from 0 on for each node"
        return ""

    def _problem_of_nodes(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> str:
        held = dict(self._demands(row, self.holds.get(row, ()), self.servers.get(row, ())))
        for (node, share), (_, demand) in zip(where, self._demands(row, where, servers), strict=True):
            if share < 0:
                return "a share is negative"
            if lack := self._nodes.shortage(node, demand, held.get(node, 0.0)):
                return f"not enough {lack} free on {self._nodes.names[node]}"
        if len({node for node, _ in where}) < len(where) or not where:
            return "no node is named, or one twice"
        wanted = self._table.columns["gpu_type"][row]
        if wanted and any(share and self._nodes.gpu_type[node] != wanted for node, share in where):
            return f"it requests GPUs of the type {wanted}"
        return ""

    def _problem_of_size(self, row: int, where: GpusByNode, servers: tuple[int, ...]) -> str:
        gpus = sum(share for _, share in where)
        least, most = (int(self._table.columns[name][row]) for name in ("gpus_min", "gpus_max"))
        if not least <= gpus <= most:
            return f"{gpus} GPUs are not between {least} and {most}"
        if self._table.servers is not None and servers:
            held, allowed = sum(servers), int(self._table.servers.most[row])
            return "" if 1 <= held <= allowed else f"{held} parameter servers are not between 1 and {allowed}"
        return ""

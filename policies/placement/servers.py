"""Workers and parameter servers to jobs, counted by the GPUs and CPUs of the whole cluster, on whichever nodes.

A worker is a GPU with its share of the job's CPUs, a server some CPUs. A job without servers counts by its GPUs.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from policies.placement.allocation import elastic, held_gpus, held_servers, movable, startable
from policies.placement.space import Space
from policies.snapshot import JobServers, Snapshot
from predictors.arrays import Bools, Ints

_SLACK = 1e-9


class Step(NamedTuple):
    """A number of workers and servers that a job may be given in addition, and the worth of that."""

    worth: float
    workers: int
    servers: int


class Budget:
    """What is left of GPUs and CPUs, where the jobs `yields` (n,) give back what they hold."""

    def __init__(self, snapshot: Snapshot, servers: JobServers, yields: Bools) -> None:
        space = Space(snapshot)
        space.give_all(np.flatnonzero(yields))
        self.gpus, self.cpus = float(space.free[:, 0].sum()), float(space.free[:, 1].sum())
        jobs = snapshot.jobs
        self.of_server = np.where(servers.most > 0, servers.cpus, 0.0)
        """(n,) CPUs"""
        self.of_worker = jobs.demand[:, 1] / np.maximum(jobs.demand[:, 0], 1.0) - self.of_server
        """(n,) the same"""

    def fits(self, row: int, workers: int, servers: int) -> bool:
        """Whether so many more are left for this job."""
        cpus = workers * self.of_worker[row] + servers * self.of_server[row]
        return bool(workers <= self.gpus and cpus <= self.cpus + _SLACK)

    def take(self, row: int, workers: int, servers: int) -> None:
        """Take so many."""
        self.gpus -= workers
        self.cpus -= workers * self.of_worker[row] + servers * self.of_server[row]


def shared_out(
    snapshot: Snapshot,
    servers: JobServers,
    order: Ints,
    *,
    least: Ints,
    least_servers: Ints,
    preempt: Bools | bool,
    steps: Callable[[int, int, int], Sequence[Step]],
) -> tuple[Ints, Ints]:
    """(n,) the workers of each job, and (n,) its servers.

    First, in this order of rows, the least workers and servers (n,) of each job; then, one after another, the step of
    the greatest worth above 0 that fits, of the elastic jobs. Jobs keep what they hold, but those of `preempt` that
    are movable. steps(row, workers, servers): what may be added to a job that has these.
    """
    jobs = snapshot.jobs
    yields = movable(jobs) & preempt
    budget = Budget(snapshot, servers, yields)
    workers = np.where(yields, 0, held_gpus(snapshot))
    counts = np.where(yields, 0, held_servers(snapshot))
    grows = elastic(jobs)
    heap: list[tuple[float, int, int, int]] = []

    def offer(row: int) -> None:
        at = int(workers[row]), int(counts[row])
        for step in steps(row, *at):
            inside = at[0] + step.workers <= jobs.gpus_max[row] and at[1] + step.servers <= servers.most[row]
            if inside and step.worth > 0:
                heapq.heappush(heap, (-step.worth, row, step.workers, step.servers))

    for row in order[(yields | startable(jobs))[order]].tolist():
        first = int(least[row]), int(least_servers[row])
        if budget.fits(row, *first):
            budget.take(row, *first)
            workers[row], counts[row] = first
            if grows[row]:
                offer(row)
    while heap:
        _, row, more, more_servers = heapq.heappop(heap)
        if budget.fits(row, more, more_servers):
            budget.take(row, more, more_servers)
            workers[row] += more
            counts[row] += more_servers
            heap = [each for each in heap if each[1] != row]
            heapq.heapify(heap)
            offer(row)
    return workers, counts

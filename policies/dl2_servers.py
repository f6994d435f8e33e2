"""DL2's time slots where jobs have parameter servers: the paper's 3J + 1 actions (arXiv 1909.06040, section 4.1).

For job i: one worker more, (i, 0), one server more, (i, 1), or one of each, (i, 2). A job that has workers and no
server in the end, or servers and no worker, cannot train, and gets nothing in the slot.
"""

from typing import ClassVar

import numpy as np

from policies.dl2_allocation import FEATURES, GPUS, Allocation, Allocator
from policies.model import Singles
from policies.placement.allocation import held_servers
from policies.placement.plans import plan_allocation
from policies.placement.servers import Budget
from policies.plan import Memory, Plan
from policies.snapshot import JobServers, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts

SERVER_FEATURES = ("servers", "log servers", "no server yet", "server fits", "both fit", "cpus free", "worker's cpus",
                   "server's cpus", "servers held")  # fmt: skip
"""The columns of the state after `FEATURES`: the paper's number of servers, and what the others are for with them."""
CPUS = 4.0
"""unit of the CPUs of a worker and a server"""
_DOMINANT = FEATURES.index("dominant share")


class ServerAllocator(Allocator):
    """What an allocation with parameter servers needs to know beside the cluster."""

    actions: ClassVar[int] = 3
    columns: ClassVar[tuple[str, ...]] = FEATURES + SERVER_FEATURES

    def choices(self, snapshot: Snapshot, forecasts: Forecasts, *, begins: bool) -> "ServerAllocation":
        """The allocation of a slot that `begins`; within a slot, of what is free to jobs that wait."""
        return ServerAllocation(self, snapshot, forecasts, begins=begins)


class ServerAllocation(Allocation):
    """The allocation of one slot under way: choice 3 i + a gives job i of the present batch a worker (a = 0), a server
    (1) or one of each (2); the last choice is void. A first worker is the job's minimum.
    """

    def _count_more(self, yields: Bools) -> None:
        snapshot, jobs = self._snapshot, self._snapshot.jobs
        known = snapshot.servers or JobServers.none(len(jobs), len(snapshot.runs_on))
        self._budget = Budget(snapshot, known, yields)
        self._known = known
        self.servers: Ints = np.zeros(len(self.rows), dtype=np.int64)
        """(jobs,) allocated so far"""
        capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
        self._gpus, self._cpus = (max(float(each), 1.0) for each in capacity[:2])
        for row in self._others[jobs.pending[self._others] & (self._wanted[self._others] > 0)].tolist():
            gpus = int(self._wanted[row])
            self._budget.take(row, gpus, gpus if known.most[row] else 0)

    @property
    def begin(self) -> int:
        """The place in `rows` of the first job of the present batch."""
        return self._begin

    @property
    def cpus(self) -> tuple[Floats, Floats]:
        """(n,) CPUs of a worker, and (n,) of a server, of each job of the snapshot."""
        return self._budget.of_worker, self._budget.of_server

    @property
    def mask(self) -> Bools:
        """(3 k + 1,) what may be added for which there is room, and void."""
        return np.append(self._fits, True)

    def choose(self, number: int) -> None:
        """Make the present choice."""
        if number == len(self._fits):
            self._begin += self._limit
        else:
            at, action = self._begin + number // 3, number % 3
            workers, servers = self._step(at) if action != 1 else 0, int(action != 0)
            self._budget.take(int(self.rows[at]), workers, servers)
            self._pools.take(int(self._classes[at]), workers)
            if not self.workers[at] + self.servers[at]:
                self._first.append(at)
            self.workers[at] += workers
            self.servers[at] += servers
        self._update()

    def plan(self, memory: Memory | None = None) -> Plan:
        """The plan that gives each job its workers and servers, where it can train with them."""
        has, held = self._known.most > 0, held_servers(self._snapshot)
        wanted, servers = self._wanted.copy(), np.where(has & (held == 0), self._wanted, held)
        trains = (self.workers > 0) & ((self.servers > 0) | ~has[self.rows])
        wanted[self.rows] = np.where(trains, self.workers, 0)
        servers[self.rows] = np.where(trains, self.servers, 0)
        first = np.array(self._first, dtype=np.int64)
        rest = np.setdiff1d(np.arange(len(self.rows)), first)
        order = np.concatenate([self._others, self.rows[first], self.rows[rest]])
        return plan_allocation(self._snapshot, order, wanted, memory=memory or {}, servers=servers)

    def _update(self) -> None:
        while self._begin < len(self.rows):
            batch = slice(self._begin, self._begin + self._limit)
            rows, workers, servers = self.rows[batch], self.workers[batch], self.servers[batch]
            room = {each: self._pools.available(each) for each in set(self._classes[batch].tolist())}
            left = np.array([room[each] for each in self._classes[batch].tolist()])
            step = np.where(workers > 0, 1, self._least[batch])
            of_workers, of_server = step * self._budget.of_worker[rows], self._budget.of_server[rows]
            cpus = self._budget.cpus + 1e-9
            worker = (workers + step <= self._most[batch]) & (step <= left) & (of_workers <= cpus)
            server = (servers < self._known.most[rows]) & (of_server <= cpus)
            both = worker & server & (of_workers + of_server <= cpus)
            fits = np.stack([worker, server, both], axis=1)
            if fits.any():
                self._fits = fits.ravel()
                self._state = self._with_servers(batch, fits)
                return
            self._begin += self._limit
        self.done = True

    def _with_servers(self, batch: slice, fits: Bools) -> Singles:
        """The state of a batch; fits (k, 3): who may have a worker, a server, and one of each."""
        state, at = self._with_workers(batch, fits[:, 0]), self._at + len(FEATURES)
        servers, rows = self.servers[batch], self.rows[batch]
        state[:, self._at + _DOMINANT] = 4.0 * self._dominant(rows, self.workers[batch], servers)
        state[:, at] = servers / GPUS
        state[:, at + 1] = np.log1p(servers) / 3.0
        state[:, at + 2] = servers == 0
        state[:, at + 3 : at + 5] = fits[:, 1:]
        state[:, at + 5] = self._budget.cpus / self._cpus
        return state

    def _dominant(self, rows: Ints, workers: Ints, servers: Ints) -> Floats:
        """(k,) the share of its dominant resource that each job has been given so far."""
        cpus = workers * self._budget.of_worker[rows] + servers * self._budget.of_server[rows]
        return np.maximum(workers / self._gpus, cpus / self._cpus)

    def _fixed(self, allocator: Allocator, forecasts: Forecasts) -> Singles:
        table, at = super()._fixed(allocator, forecasts), self._at + len(FEATURES)
        table[:, at + 6] = self._budget.of_worker[self.rows] / CPUS
        table[:, at + 7] = self._budget.of_server[self.rows] / CPUS
        table[:, at + 8] = held_servers(self._snapshot)[self.rows] / GPUS
        return table

"""The cluster port of a simulation whose jobs start where the policy places them."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import fields

import numpy as np

from predictors.arrays import Bools, Ints
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Command, JobRows, NodeRows, Outcome, Reading, ResourceRequest, Site, Submission
from slurmplug.sim.engine.allocations import GpusByNode
from slurmplug.sim.engine.engine import PENDING, Engine
from slurmplug.sim.engine.workload_table import CLUSTER

SITE = Site(CLUSTER, "", places=True)
NO_JOBS = JobRows(**{column.name: np.empty(0, dtype=np.int64) for column in fields(JobRows)})  # type: ignore[arg-type]
NO_NODES = NodeRows((), (), (), (), (), (), *(np.empty(0) for _ in range(6)))  # type: ignore[arg-type]


class SimCluster:
    """`ClusterPort` to an engine: commands change its jobs at once.

    A reading has no rows: `slurmplug.sim.adapters.intake` reads the engine itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.refused = 0
        """number of refused commands so far"""
        self.site_factors, self.priority = np.zeros(len(engine.state)), np.ones(len(engine.state))
        """(rows,) SiteFactors and priorities; they change only where Slurm places the jobs"""
        self.reservations: dict[int, str] = {}
        """by row, the reservation that a job requests"""
        self.node_sets: Bools = np.ones((1, len(engine.nodes)), dtype=bool)
        """(sets, nodes) which nodes each set has"""
        self.set_of: Ints = np.zeros(len(engine.state), dtype=np.int64)
        """(rows,) on the nodes of which set each may run"""
        self._node = {name: node for node, name in enumerate(engine.nodes.names)}
        self._handlers: Mapping[str, Callable[[int, Command], str]] = {
            "place": self._place,
            "requeue": lambda row, _: engine.requeue(row),
            "cancel": lambda row, _: self._end(row),
            "ask": self._request,
            "withdraw": self._withdraw,
            "signal": self._signal,
        }

    def read(self, known: Container[Submission], alive: Mapping[int, int]) -> Reading:  # noqa: ARG002 the engine is at hand
        """The time and the site; never fails."""
        return Reading(self.engine.now, SITE, NO_JOBS, NO_NODES)

    def site_factors_in_slurm(self, booted: float) -> Mapping[int, int]:  # noqa: ARG002 it never starts again
        """The SiteFactors of the pending jobs that may start, by id."""
        engine, arrived = self.engine, slice(self.engine.arrived)
        may_start = (engine.state[arrived] == PENDING) & (engine.waits_since[arrived] <= engine.now)
        rows = np.flatnonzero(may_start)
        return {row + 1: int(self.site_factors[row]) for row in rows.tolist()}

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:  # noqa: ARG002
        """Empty: jobs are placed at once, so no operation rewrites a request."""
        return {}

    def limits(self) -> Limits:
        """No limits."""
        return Limits()

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Carry the commands out in order; returns one outcome for each."""
        outcomes = []
        for command in commands:
            row = command.job.job_id - 1
            handler = self._handlers.get(command.verb)
            problem = (
                f"{command.verb} is not supported by the simulated cluster"
                if handler is None
                else handler(row, command)
            )
            self.refused += bool(problem)
            outcomes.append(Outcome(command.id, "refused" if problem else "done", problem))
        return outcomes

    def now(self) -> float:
        """Seconds from the workload's start."""
        return self.engine.now

    def wait(self, until: float) -> bool:
        """Simulate until that time; False once all jobs have ended."""
        self.engine.run_until(until)
        return self.engine.unfinished > 0

    def _place(self, row: int, command: Command) -> str:
        where: list[tuple[int, int]] = []
        servers: list[int] = []
        for item in command.fields["nodes"].split(","):
            name, share, *count = item.split(":")
            if name not in self._node:
                return f"there is no node {name}"
            where.append((self._node[name], int(share)))
            servers += map(int, count)
        place: GpusByNode = tuple(where)
        return self.engine.place(row, place, tuple(servers))

    def _end(self, row: int) -> str:
        if problem := self._ended(row):
            return problem
        self.engine.end(int(self.engine.table.training[row]), "CANCELLED")
        return ""

    def _request(self, row: int, command: Command) -> str:
        training = int(self.engine.table.training[row])
        if problem := self._not_running(row):
            return problem
        if command.fields["what"] == "stop":
            self.engine.stop(training)
        else:
            self.engine.save(training)
        return ""

    def _withdraw(self, row: int, command: Command) -> str:
        training = int(self.engine.table.training[row])
        if command.fields["what"] == "stop" and not self._not_running(row):
            self.engine.withdraw_stop(training)
        return ""

    def _signal(self, row: int, command: Command) -> str:  # noqa: ARG002 any signal saves
        if problem := self._not_running(row):
            return problem
        self.engine.save(int(self.engine.table.training[row]))
        return ""

    def _ended(self, row: int) -> str:
        return "" if self.engine.state[row] in (PENDING, PENDING + 1) else "the job has ended"

    def _not_running(self, row: int) -> str:
        return "the job is not running" if row not in self.engine.allocations.holds else ""

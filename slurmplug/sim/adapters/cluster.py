"""A simulated cluster behind the door of a live one."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType

import numpy as np

from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Command, JobRows, NodeRows, Outcome, Reading, ResourceRequest, Site
from slurmplug.sim.engine.engine import PENDING, Engine, Where
from slurmplug.sim.engine.workload_table import CLUSTER

PLACES = Site(CLUSTER, "", "", MappingProxyType({}), places=True)
NO_JOBS = JobRows(**{column.name: np.empty(0, dtype=np.int64) for column in fields(JobRows)})  # type: ignore[arg-type]
NO_NODES = NodeRows((), (), (), (), (), (), *(np.empty(0) for _ in range(6)))  # type: ignore[arg-type]


class SimCluster:
    """The port to an engine whose jobs start where a policy places them.

    The reading has no rows: `slurmplug.sim.adapters.intake` looks at the engine itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.refused = 0
        """commands so far"""
        self.site_factors, self.priority = np.zeros(len(engine.state)), np.ones(len(engine.state))
        """(rows,) nobody asks for them where the policy places"""
        self.reservations: dict[int, str] = {}
        """by row, which reservation a job asks for"""
        self._node = {name: node for node, name in enumerate(engine.nodes.names)}
        self._do: Mapping[str, Callable[[int, Command], str]] = {
            "place": self._place,
            "requeue": lambda row, _: engine.requeue(row),
            "cancel": lambda row, _: self._end(row),
            "ask": self._ask,
            "withdraw": self._withdraw,
            "signal": self._signal,
        }

    def read(self, known: Container[int], alive: Collection[int]) -> Reading:  # noqa: ARG002 nothing has to be looked up
        """Look at the cluster; it can always be read."""
        return Reading(self.engine.now, PLACES, NO_JOBS, NO_NODES)

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:  # noqa: ARG002
        """Nobody asks: jobs are placed at once, and no operation has to know how they asked."""
        return {}

    def limits(self) -> Limits:
        """Nobody's use is limited."""
        return Limits()

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Carry the commands out in order; one outcome each."""
        outcomes = []
        for command in commands:
            row = command.job.job_id - 1
            do = self._do.get(command.verb)
            problem = f"{command.verb} means nothing here" if do is None else do(row, command)
            self.refused += bool(problem)
            outcomes.append(Outcome(command.id, "refused" if problem else "done", problem))
        return outcomes

    def now(self) -> float:
        """Seconds from the workload's start."""
        return self.engine.now

    def wait(self, until: float) -> bool:
        """Let everything happen that happens until then; False once all jobs have ended."""
        self.engine.run_until(until)
        return self.engine.left > 0

    def _place(self, row: int, command: Command) -> str:
        where: list[tuple[int, int]] = []
        for item in command.fields["nodes"].split(","):
            name, _, share = item.partition(":")
            if name not in self._node:
                return f"there is no node {name}"
            where.append((self._node[name], int(share)))
        place: Where = tuple(where)
        return self.engine.place(row, place)

    def _end(self, row: int) -> str:
        if problem := self._over(row):
            return problem
        self.engine.end(int(self.engine.table.training[row]), "CANCELLED")
        return ""

    def _ask(self, row: int, command: Command) -> str:
        training = int(self.engine.table.training[row])
        if problem := self._waits(row):
            return problem
        if command.fields["what"] == "stop":
            self.engine.stop(training)
        else:
            self.engine.save(training)
        return ""

    def _withdraw(self, row: int, command: Command) -> str:
        training = int(self.engine.table.training[row])
        if command.fields["what"] == "stop" and not self._waits(row):
            self.engine.go_on(training)
        return ""

    def _signal(self, row: int, command: Command) -> str:  # noqa: ARG002 whichever it is, the job saves
        if problem := self._waits(row):
            return problem
        self.engine.save(int(self.engine.table.training[row]))
        return ""

    def _over(self, row: int) -> str:
        return "" if self.engine.state[row] in (PENDING, PENDING + 1) else "it has ended"

    def _waits(self, row: int) -> str:
        return "it does not run" if row not in self.engine.holds else ""

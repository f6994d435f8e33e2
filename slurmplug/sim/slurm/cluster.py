"""A simulated cluster whose jobs Slurm starts: multifactor priority, EASY backfill, and SiteFactors on top.

Slurm schedules after each change of the queue, but at most once each `pace` seconds; backfill may have an interval of
its own. What a job held is free once Slurm has cleaned up behind it. A job of several parts waits as one
heterogeneous job does: its parts start together or not at all, and are requeued together. The nodes that a requeued job
requires or excludes (ReqNodeList, ExcNodeList) are stored and not heeded: as the first in the queue, it starts where
the reservation was that held its place.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from predictors.arrays import Ints
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Command, Reading, Reservation, ResourceRequest, Site, Submission
from slurmplug.sim.adapters.cluster import NO_JOBS, NO_NODES, SimCluster
from slurmplug.sim.engine.allocations import GpusByNode
from slurmplug.sim.engine.engine import DONE, PENDING, Engine
from slurmplug.sim.engine.workload_table import CLUSTER
from slurmplug.sim.slurm.assoc_priority import factors
from slurmplug.sim.slurm.fairshare import Fairshare, associations
from slurmplug.sim.slurm.job_limits import JobLimits
from slurmplug.sim.slurm.job_requests import JobRequests
from slurmplug.sim.slurm.launcher import jobs_to_start, priorities
from slurmplug.sim.slurm.node_use import NodeUse
from slurmplug.sim.slurm.partitions import job_partitions
from slurmplug.sim.slurm.queue import NodeResources, Pending, Start
from slurmplug.sim.slurm.settings import LauncherSettings

SCHED_INTERVAL = 60.0
"""Seconds after which Slurm schedules though nothing has changed, by default."""
REQUEUE_DELAY = 120.0
"""Seconds until a requeued job is eligible again: Slurm gives it a start time by itself."""
_SHAPE = frozenset({"NumNodes", "NumTasks", "MinCPUsNode", "CPUsPerTask", "NumCPUs", "MinMemoryNode"})
"""What is rewritten along with the GPUs; here CPUs and memory follow them."""
_NODE_LISTS = frozenset({"ReqNodeList", "ExcNodeList"})
_OTHERS = frozenset({"SiteFactor", "Nice", "Gres", "StartTime", "ReservationName"})


@dataclass
class _Reserved:
    nodes: frozenset[int]
    until: float


class SlurmSimCluster(SimCluster):
    """`ClusterPort` to an engine whose jobs Slurm starts."""

    def __init__(self, engine: Engine, settings: LauncherSettings | None = None) -> None:
        super().__init__(engine)
        self._settings = settings or LauncherSettings()
        self._in_order_only = replace(self._settings, backfill=False)
        self._node_lists: dict[int, dict[str, str]] = {}
        """by row, the nodes that a job requires or excludes"""
        self._node_counts: dict[int, int] = {}
        """by row, on how many nodes a pending job has run, or is to run"""
        self._ran_on: dict[int, int] = {}
        """by row, the GPUs of the run before the last requeue"""
        self._nice: dict[int, int] = {}
        self._taking: dict[int, str] = {}
        """by row, the deleted reservation of a pending job that goes first in the queue: it takes that place"""
        self._reserved: dict[str, _Reserved] = {}
        self._seen = self._backfilled = -1
        self._last_pass = -np.inf
        self._oldest = 0
        """the first row that has not ended"""
        table = engine.table
        self._requests = requests = JobRequests.of(table, float(engine.nodes.capacity[:, 0].max()))
        self._use = NodeUse(
            engine, requests,
            release_seconds=self._settings.release_seconds, default_limit=self._settings.default_limit,
        )  # fmt: skip
        engine.allocations.on_free = self._freed
        self._single = np.diff(table.first_row) == 1
        self._fairshare = Fairshare.of(table, self._settings)
        priorities = self._settings.assoc_priority
        self._assoc = factors(priorities, associations(table)) if priorities else None
        trainings = np.arange(len(requests.gpus))
        self._partitions = job_partitions(
            self._settings.partitions, requests.columns["partition"],
            gpus=requests.gpus, nodes=requests.nodes,
            demand=requests.demand_of(trainings, requests.gpus, requests.nodes), total=self._use.total,
        )  # fmt: skip
        self.node_sets, self.set_of = self._partitions.nodes, self._partitions.where[table.training]
        at_most = np.where(np.isnan(requests.time_limit), self._settings.default_limit, requests.time_limit)
        self._limits = JobLimits.of(self._settings, table, requests.demand, requests.gpu_types, at_most)
        self._handlers = {
            **{verb: handle for verb, handle in self._handlers.items() if verb != "place"},
            "update": self._update,
            "requeue": self._requeue,
            "reserve": self._reserve,
            "unreserve": self._unreserve,
        }

    # --- the port ---------------------------------------------------------------------------------------------------

    def read(self, known: Container[Submission], alive: Mapping[int, int]) -> Reading:  # noqa: ARG002 the engine is at hand
        """The time, the site and its reservations; never fails. Priorities are those of now, as in Slurm."""
        waiting = self._waiting()
        if len(waiting):
            self._set_priorities(waiting, self._pending(waiting), self._room())
        names = self.engine.nodes.names
        return Reading(
            now=self.engine.now,
            site=Site(CLUSTER, ""),
            jobs=NO_JOBS,
            nodes=NO_NODES,
            reservations=tuple(
                Reservation(name, frozenset(names[n] for n in each.nodes), frozenset(), frozenset(), 0.0, each.until)
                for name, each in self._reserved.items()
                if name not in self._taking.values()
            ),
        )

    def wait(self, until: float) -> bool:
        """Simulate until that time; False once all jobs have ended."""
        engine = self.engine
        while engine.unfinished:
            self._use.clean_up()
            scheduling, backfill = self._next_pass(), self._next_backfill()
            time = min(engine.next_event(), scheduling, backfill, self._use.next_release())
            if time > until:
                break
            engine.run_until(time)
            self._use.clean_up()
            if time == backfill:
                self._schedule(backfill=True)
            elif time == scheduling:
                self._schedule(backfill=self._settings.backfill and not self._settings.bf_interval)
        engine.run_until(until)
        return engine.unfinished > 0

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """The resource requests of these jobs by id: as many GPUs on each node, one task a node."""
        return {
            job_id: self._resource_request(job_id - 1) for job_id in job_ids if 0 < job_id <= len(self.engine.state)
        }

    def limits(self) -> Limits:
        """The limits of QOS and associations."""
        return self._settings.limits

    # --- commands to Slurm --------------------------------------------------------------------------------------

    def _update(self, row: int, command: Command) -> str:
        engine, fields = self.engine, dict(command.fields)
        if engine.state[row] != PENDING and fields.keys() & {"Gres", "StartTime"}:
            return "the job is not pending"
        if unknown := fields.keys() - _SHAPE - _NODE_LISTS - _OTHERS:
            return f"{', '.join(sorted(unknown))} cannot be changed here"
        if "Gres" in fields:
            per_node, nodes = int(fields["Gres"].rpartition(":")[2]), int(fields.get("NumNodes", "1").partition("-")[0])
            if "NumNodes" not in fields:
                nodes = self._resource_request(row).nodes
            if self._limits and self._limits.never_starts(int(engine.table.training[row]), per_node * nodes):
                return "a limit of its QOS or associations would keep it pending for good"
            engine.reshape(row, per_node * nodes)
            self._node_counts[row] = nodes
        if "Nice" in fields:
            self._nice[row] = int(fields["Nice"])
            if self._nice[row] >= 0:
                self._reserved.pop(self._taking.pop(row, ""), None)
        if "SiteFactor" in fields:
            self.site_factors[row] = float(fields["SiteFactor"])
        if "ReservationName" in fields:
            self.reservations[row] = fields["ReservationName"]
        if "StartTime" in fields:
            start = fields["StartTime"]
            engine.eligible(row, engine.now if start == "now" else float(start.removeprefix("uts")))
        self._node_lists.setdefault(row, {}).update({name: fields[name] for name in fields.keys() & _NODE_LISTS})
        engine.changes += 1
        return ""

    def _requeue(self, row: int, command: Command) -> str:  # noqa: ARG002 the row is enough
        engine, gpus = self.engine, int(self.engine.gpus[row])
        nodes = len(engine.allocations.holds.get(row, ()))
        problem = engine.requeue(row, REQUEUE_DELAY)
        if not problem:
            engine.reshape(row, gpus)  # Slurm keeps what the job requests
            self._ran_on[row] = gpus
            self._node_counts[row] = nodes
            for part in engine.table.rows_of(int(engine.table.training[row])):
                if part != row:
                    engine.requeue(part, REQUEUE_DELAY)
        return problem

    def _reserve(self, row: int, command: Command) -> str:  # noqa: ARG002 the nodes are what is set aside
        fields = command.fields
        names = fields["nodes"].split(",")
        if any(name not in self._node for name in names):
            return "there is no such node"
        nodes = frozenset(self._node[name] for name in names)
        if any(nodes & each.nodes for each in self._reserved.values()):
            return "reservations do not overlap"
        self._reserved[fields["name"]] = _Reserved(nodes, self.engine.now + float(fields["seconds"]))
        return ""

    def _unreserve(self, row: int, command: Command) -> str:
        name = command.fields["name"]
        if name not in self._reserved or name in self._taking.values():
            return "there is no such reservation"
        if self.engine.state[row] == PENDING and self._nice.get(row, 0) < 0:
            self._taking[row] = name
        else:
            del self._reserved[name]
        self.engine.changes += 1
        return ""

    def _resource_request(self, row: int) -> ResourceRequest:
        engine = self.engine
        gpus = int(engine.gpus[row])
        demand = engine.table.per_gpu[row] * int(engine.table.units(row, gpus))
        most = max(1, int(engine.nodes.capacity[:, 0].max()))
        nodes = len(engine.allocations.holds.get(row, ())) or self._node_counts.get(row) or max(1, -(-gpus // most))
        nodes = next((count for count in range(nodes, gpus) if gpus % count == 0), max(gpus, 1))
        noted = self._node_lists.get(row, {})
        gpu_type = "".join(f"{kind}:" for kind in [engine.table.columns["gpu_type"][row]] if kind)
        return ResourceRequest(
            nodes=nodes, gpus=gpus, cpus=int(demand[1]), memory=float(demand[2]),
            het_id=row + 1 if len(engine.table.rows_of(int(engine.table.training[row]))) > 1 else 0,
            reservation=self.reservations.get(row, ""), gres=f"gres:gpu:{gpu_type}{gpus // nodes}", gres_per_job="",
            max_nodes=nodes, tasks=nodes, tasks_per_node=1, cpus_per_task=1, min_cpus_per_node=1,
            memory_requested=False, min_memory=0.0, cpus_follow_gpus=True, requeue=True,
            excluded_nodes=noted.get("ExcNodeList", ""), required_nodes=noted.get("ReqNodeList", ""),
            time_limit=None, nice=self._nice.get(row, 0), pending=bool(engine.state[row] == PENDING),
        )  # fmt: skip

    # --- what Slurm does --------------------------------------------------------------------------------------------

    def _next_pass(self) -> float:
        if self.engine.changes != self._seen:
            return max(self.engine.now, self._last_pass + self._settings.pace)
        if self._limits and self._limits.change_with_time:
            return max(self.engine.now, self._last_pass + SCHED_INTERVAL)
        return np.inf

    def _next_backfill(self) -> float:
        every = self._settings.bf_interval
        if not every or not self._settings.backfill or self.engine.changes == self._backfilled:
            return np.inf
        return (self.engine.now // every + 1) * every

    def _schedule(self, *, backfill: bool) -> None:
        """Run one scheduling pass: start what can start now."""
        engine, now = self.engine, self.engine.now
        self._last_pass, self._seen = now, engine.changes
        self._reserved = {name: each for name, each in self._reserved.items() if each.until > now}
        self._taking = {row: name for row, name in self._taking.items() if name in self._reserved}
        waiting = self._waiting()
        self._fairshare.advance(now)
        if self._limits:
            self._limits.advance(now)
        if len(waiting):
            pending, room = self._pending(waiting), self._room()
            of_priority = self._set_priorities(waiting, pending, room)
            settings = self._settings if backfill else self._in_order_only
            held = self._use.held() if backfill else self._use.nothing
            partitions, limited = self._partitions.of(waiting), None
            if self._limits:
                limited = self._limits.left(engine, self._use, waiting, self._use.requested(pending, partitions))
            found = jobs_to_start(
                pending, held, room, of_priority,
                now=now, settings=settings, limited=limited, partitions=partitions,
            )  # fmt: skip
            for start in found:
                self._start(int(waiting[start.row]), start)
        self._fairshare.note_held()
        if self._limits:
            self._limits.note_held(engine, self._use)
        self._seen = engine.changes
        if backfill:
            self._backfilled = engine.changes

    def _waiting(self) -> Ints:
        """The pending trainings."""
        state = self.engine.state[self._oldest : self.engine.arrived]
        if len(state) and state[0] == DONE:
            left = np.flatnonzero(state != DONE)
            self._oldest += int(left[0]) if len(left) else len(state)
            state = self.engine.state[self._oldest : self.engine.arrived]
        found = self.engine.table.training[np.flatnonzero(state == PENDING) + self._oldest]
        return found if self._single.all() else found[np.diff(found, prepend=-1) > 0]

    def _set_priorities(self, waiting: Ints, pending: Pending, room: NodeResources) -> Ints:
        first = self.engine.table.first_row[waiting]
        found = priorities(pending, room, self._fairshare.factors(first), self.engine.now, self._settings)
        self.priority[first] = found
        return found

    def _start(self, training: int, start: Start) -> None:
        """Start the rows of a training on these nodes, each on as few of them as hold it."""
        engine = self.engine
        left = dict(zip(start.nodes, start.shares, strict=True))
        for row in engine.table.rows_of(training):
            wanted, where = int(engine.gpus[row]), []
            if not wanted:
                where = [(node, 0) for node in start.nodes[: max(int(engine.table.nodes[row]), 1)]]
            for node in sorted(
                left, key=lambda node: (left[node] < wanted, -left[node] if left[node] < wanted else left[node])
            ):
                share = min(wanted, left[node])
                if share:
                    where.append((node, share))
                    left[node] -= share
                    wanted -= share
            self._count_move(row)
            if not engine.place(row, tuple(sorted(where))):
                self._use.start(row)
                self._fairshare.start(row, self._use.allocated(np.array([row]))[0])
            self._reserved.pop(self._taking.pop(row, ""), None)

    def _freed(self, row: int, where: GpusByNode) -> None:
        self._use.release(row, where)
        self._fairshare.end(row)

    def _count_move(self, row: int) -> None:
        """A requeue after which the job is put first in the queue is a resize or a migration, not a preemption."""
        if self._nice.get(row, 0) >= 0 or row not in self._ran_on:
            return
        engine = self.engine
        log = engine.logs[int(engine.table.training[row])]
        log.preemptions -= 1
        if self._ran_on.pop(row) == engine.gpus[row]:
            log.migrations += 1
        else:
            log.resizes += 1

    def _pending(self, waiting: Ints) -> Pending:
        engine = self.engine
        first = engine.table.first_row[waiting]
        eligible = np.maximum(engine.waits_since[first], engine.table.submit[waiting])
        requests, gpus = self._requests, self._requests.gpus[waiting]
        now_gpus = np.where(self._single[waiting], engine.gpus[first], gpus)
        nodes = requests.nodes_of(waiting, now_gpus)
        return Pending(
            gpus=now_gpus,
            nodes=nodes,
            demand=requests.demand_of(waiting, now_gpus, nodes),
            time_limit=requests.time_limit[waiting],
            eligible=eligible,
            begin=eligible,
            **{name: column[waiting] for name, column in requests.columns.items()},
            reservation=np.array(
                [self._taking.get(row) or self.reservations.get(row, "") for row in first.tolist()], dtype=np.str_
            )
            if self._taking or self.reservations
            else np.zeros(len(first), dtype="U1"),
            nice=np.array([self._nice.get(row, 0) for row in first.tolist()], dtype=np.float64)
            if self._nice
            else np.zeros(len(first)),
            site_factor=self.site_factors[first],
            whole=requests.whole[waiting] if requests.any_whole else None,
            assoc=self._assoc[first] if self._assoc is not None else None,
        )

    def _room(self) -> NodeResources:
        return self._use.room({name: each.nodes for name, each in self._reserved.items()})

"""The simulated cluster itself: jobs arrive, hold GPUs, train, slow each other down, and end.

Event driven.

- A training goes on while all of its rows (its Slurm jobs) hold their GPUs. Its speed is that of all their GPUs and of
  the nodes that these are on, by the workload's profile; where it has parameter servers, that of its workers, a GPU
  each, and its servers, which hold CPUs of any nodes. Parts that depend on each other do so in every iteration, so
  none trains without the others; a part that runs while another waits holds its GPUs idle.
- A node whose CPUs, memory or network are in use by too much slows what is on it (`slurmplug.sim.engine.contention`);
  a training on several nodes is as fast as on the slowest.
- Of a training in parts, that share of its traffic crosses nodes which the dependencies between parts on different
  nodes are of all its dependencies; of any other training all of it, where it is on several nodes.
- A first start takes `startup` seconds in which the GPUs are held; one from a checkpoint, or with other GPUs, `restart`
  seconds. Work since the last checkpoint is lost with a requeue or a move: one each `checkpoint_every` seconds of
  training, and those requested. A training that names no interval saves when it has to, and loses nothing; one that is
  not managed loses everything.
"""

from collections.abc import Sequence
from math import floor

import numpy as np

from slurmplug.sim.engine.allocations import Allocations, GpusByNode
from slurmplug.sim.engine.contention import SharedNodes
from slurmplug.sim.engine.event_queue import Event, EventQueue
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.run_log import ALMOST
from slurmplug.sim.engine.training_progress import TrainingProgress
from slurmplug.sim.engine.workload_table import WorkloadTable

FUTURE, PENDING, RUNNING, DONE = range(4)
BYTES_A_PARAMETER = 4.0
"""of a checkpoint"""
PACE_SECONDS = 3600.0
"""for which one of a job's `paces` lasts"""


class Engine(TrainingProgress):
    """The cluster at `now`, in columns of rows, of trainings and of nodes."""

    def __init__(self, table: WorkloadTable, nodes: SimNodes, threshold: float = 0.9, *, limits: bool = True) -> None:
        """threshold: see `slurmplug.sim.engine.contention`. limits: whether a run ends at its time limit."""
        super().__init__(table)
        self.nodes = SharedNodes(nodes, threshold)
        self.allocations = Allocations(table, self.nodes)
        self._limits = limits
        rows, trainings = len(table.training), len(table.jobs)
        self.state = np.full(rows, FUTURE, dtype=np.int8)
        self.gpus = table.requested.copy()
        self.restarts = np.zeros(rows, dtype=np.int64)
        self.started, self.waits_since = np.full(rows, np.nan), np.full(rows, np.nan)
        self.waited, self.attained = np.zeros(rows), np.zeros(rows)
        self.resumed_at, self.trained_restart = np.zeros(rows), np.full(rows, -1)
        """the iteration at which the last run that trained began, and its number of restarts"""
        self.first_started, self.ended = np.full(trainings, np.nan), np.full(trainings, np.nan)
        self._rows_missing = np.diff(table.first_row)
        self._nodes_of: dict[int, tuple[int, ...]] = {}
        self._trainings_on: list[dict[int, None]] = [{} for _ in range(len(nodes))]

        self.changes, self.arrived, self.unfinished = 0, 0, trainings
        """a counter of starts, ends and other changes of the queue; rows submitted; trainings that have not ended"""
        self._events = EventQueue(self._is_obsolete)
        self._version = np.zeros(trainings, dtype=np.int64)
        self._paced = any(len(job.paces) for job in table.jobs)

    # --- time -------------------------------------------------------------------------------------------------------

    def next_event(self) -> float:
        """The time of the next event; infinite where there is none."""
        first = self._events.first()
        return min(self._arrival(), first.time if first else np.inf, self._next_pace())

    def run_until(self, until: float) -> None:
        """Simulate until that time."""
        while (time := self.next_event()) <= until:
            paced = time == self._next_pace()
            self.now = max(self.now, time)
            if paced:
                for training in list(self._nodes_of):
                    self._set_rate(training)
                continue
            event = self._events.first()
            if event is None or event.time > time:
                self._arrive()
                continue
            self._events.pop()
            if event.kind == "end":
                self.end(event.which, "COMPLETED")
            elif event.kind == "limit":
                self.end(int(self.table.training[event.which]), "TIMEOUT")
            else:
                self.changes += 1
        self.now = max(self.now, until)

    def gpu_seconds(self) -> float:
        """What all rows have held so far."""
        holds = np.nan_to_num(self.gpus * (self.now - self.started))
        return float((self.attained + holds).sum())

    def _is_obsolete(self, event: Event) -> bool:
        if event.kind == "end":
            return bool(event.version != self._version[event.which])
        if event.kind == "limit":
            return bool(self.state[event.which] != RUNNING or event.version != self.restarts[event.which])
        return bool(self.state[event.which] != PENDING)

    def _arrival(self) -> float:
        waiting = self.arrived < len(self.state)
        return float(self.table.submit[self.table.training[self.arrived]]) if waiting else np.inf

    def _next_pace(self) -> float:
        """When speeds change next by `SimJob.paces`; infinite where none does."""
        return (self.now // PACE_SECONDS + 1) * PACE_SECONDS if self._paced and self._nodes_of else np.inf

    def _arrive(self) -> None:
        training = int(self.table.training[self.arrived])
        rows = self.table.rows_of(training)
        self.state[rows.start : rows.stop] = PENDING
        self.waits_since[rows.start : rows.stop] = self.now
        self.logs[training].idle_since = self.now
        self.arrived = rows.stop
        self.changes += 1

    # --- commands to the jobs -----------------------------------------------------------------------------------

    def place(self, row: int, where: GpusByNode, servers: tuple[int, ...] = ()) -> str:
        """Start a row on these nodes, or move it there; returns why not, and then nothing has changed.

        servers: the parameter servers on each of the nodes; empty for as many as GPUs of a row that has any.
        """
        state, training = self.state[row], int(self.table.training[row])
        if state not in (PENDING, RUNNING):
            return "the job is neither pending nor running"
        if problem := self.allocations.problem(row, where, servers):
            return problem
        servers = self.allocations.servers_on(row, where, servers)
        held_servers = self.allocations.servers.get(row, ())
        if (self.allocations.holds.get(row), held_servers) == (where, servers):
            return ""
        gpus = sum(share for _, share in where)
        if state == RUNNING:
            self.allocations.free(row)
            self._pause(training)
            self.attained[row] += self.gpus[row] * (self.now - self.started[row])
            self.waits_since[row] = self.now
            self.restarts[row] += 1
            log = self.logs[training]
            resized = gpus != self.gpus[row] or sum(servers) != sum(held_servers)
            log.resizes += int(resized)
            log.migrations += int(not resized)
            self._rows_missing[training] += 1
        else:
            self.waited[row] += max(0.0, self.now - self.waits_since[row])
            self.logs[training].resized_starts += int(gpus != self.table.requested[row])
        self.state[row] = RUNNING
        self.started[row] = self.now
        self.gpus[row] = gpus
        self.allocations.allocate(row, where, servers)
        self._update_rates([node for node, _ in where])
        limit = self.table.columns["time_limit"][row]
        if self._limits and limit == limit:
            self._events.add(self.now + limit, "limit", row, int(self.restarts[row]))
        self._rows_missing[training] -= 1
        if not self._rows_missing[training]:
            self._start_training(training)
        self.changes += 1
        return ""

    def requeue(self, row: int, delay: float = 0.0) -> str:
        """Requeue a running row, not to start for `delay` seconds; returns why not."""
        if self.state[row] != RUNNING:
            return "the job is not running"
        training = int(self.table.training[row])
        self._pause(training)
        self._rows_missing[training] += 1
        log = self.logs[training]
        log.preemptions += 1
        self._release(row)
        self.state[row] = PENDING
        self.restarts[row] += 1
        self.waits_since[row] = self.now + delay
        self.gpus[row] = self.table.requested[row]
        if delay:
            self._events.add(self.now + delay, "eligible", row, 0)
        self.changes += 1
        return ""

    def eligible(self, row: int, when: float) -> None:
        """Set when a waiting row may start."""
        self.waits_since[row] = when if when > self.now else min(self.waits_since[row], self.now)
        if when > self.now:
            self._events.add(when, "eligible", row, 0)
        self.changes += 1

    def reshape(self, row: int, gpus: int) -> None:
        """Set the number of GPUs that a waiting row requests."""
        self.gpus[row] = gpus
        self.changes += 1

    def stop(self, training: int) -> None:
        """Stop it after the present iteration, as a job does on request."""
        done = self.iterations_done(training)
        goal = min(floor(done + ALMOST) + 1.0, float(self.iterations[training]))
        self._set_goal(training, goal)
        self.logs[training].stopped = goal < self.iterations[training]

    def withdraw_stop(self, training: int) -> None:
        """Take a stop back."""
        self.logs[training].stopped = False
        self._set_goal(training, float(self.iterations[training]))

    def end(self, training: int, state: str) -> None:
        """End it as COMPLETED, TIMEOUT or CANCELLED."""
        self._stop_training(training)
        if state == "COMPLETED":
            self.iteration[training] = self.goal[training]
        log = self.logs[training]
        log.corner(self.now, float(self.iteration[training]))
        log.state, log.stopped = state, log.stopped and state == "COMPLETED"
        for row in self.table.rows_of(training):
            if self.state[row] == RUNNING:
                self._release(row)
            self.state[row] = DONE
        self.ended[training] = self.now
        self.unfinished -= 1
        self.changes += 1

    def _release(self, row: int) -> None:
        nodes = self.allocations.free(row)
        self.attained[row] += self.gpus[row] * (self.now - self.started[row])
        self.started[row] = np.nan
        self._update_rates(nodes)

    # --- training ---------------------------------------------------------------------------------------------------

    def _start_training(self, training: int) -> None:
        """Begin a training all of whose rows run; it progresses once it has started up."""
        job, log, table = self.table.jobs[training], self.logs[training], self.table
        rows = table.rows_of(training)
        nodes = tuple(sorted({node for row in rows for node, _ in self.allocations.holds[row]}))
        again = self.first_started[training] == self.first_started[training]
        log.wait += self.now - log.idle_since
        done = float(self.iteration[training])
        log.corner(self.now, done)
        resume = self.now + (job.restart if again else job.startup)
        log.corner(resume, done)
        if again:
            if log.placed != set(nodes) and job.params == job.params:
                log.bandwidth += BYTES_A_PARAMETER * job.params
        else:
            self.first_started[training] = self.now
        log.placed, log.resumed_from = frozenset(nodes), done
        self.anchor[training] = self.run_since[training] = resume
        self.save_at[training] = np.nan
        for row in rows:
            if self.trained_restart[row] != self.restarts[row]:
                self.trained_restart[row], self.resumed_at[row] = self.restarts[row], done
        servers = sum(sum(self.allocations.servers.get(row, ())) for row in rows)
        nominal = self.speed(training, max(1, int(self.gpus[rows.start : rows.stop].sum())), len(nodes), servers)
        self.nominal[training] = nominal * job.type_speed(self.nodes.gpu_type[list(nodes)].tolist())
        self._crossing[training] = self._crossing_share(rows, len(nodes))
        self.traffic_rate[training] = job.traffic * self._crossing[training] * self.nominal[training]
        self._nodes_of[training] = nodes
        for node in nodes:
            self._trainings_on[node][training] = None
            self.nodes.network[node] += self.traffic_rate[training] / len(nodes)
        self._set_rate(training)
        self._update_rates(nodes)

    def _crossing_share(self, rows: range, nodes: int) -> float:
        edges = [(row, parent) for row in rows for parent in self.table.parents.get(row, ())]
        if not edges:
            return float(nodes > 1)
        there = {row: {node for node, _ in self.allocations.holds[row]} for row in rows}
        return sum(len(there[row] | there[parent]) > 1 for row, parent in edges) / len(edges)

    def _pause(self, training: int) -> None:
        """A row of it loses its GPUs: work since the last checkpoint is lost."""
        if training not in self._nodes_of:
            return
        kept = self.resume_iteration(training)
        self.checkpoint[training], self.checkpointed[training] = self._checkpoint_of_pause(training)
        self._stop_training(training)
        log = self.logs[training]
        self.iteration[training] = kept
        log.corner(self.now, kept)
        log.idle_since = self.now
        if log.stopped:
            self.withdraw_stop(training)

    def _stop_training(self, training: int) -> None:
        """End the progress of a training; its rows keep their GPUs."""
        if training not in self._nodes_of:
            return
        self._record_progress(training)
        nodes = self._nodes_of.pop(training)
        for node in nodes:
            del self._trainings_on[node][training]
            self.nodes.network[node] -= self.traffic_rate[training] / len(nodes)
        self.traffic_rate[training] = self.rate[training] = 0.0
        self._version[training] += 1
        self._update_rates(nodes)

    def _set_goal(self, training: int, goal: float) -> None:
        if self.goal[training] != goal:
            self.goal[training] = goal
            if training in self._nodes_of:
                self._schedule_end(training)

    def _set_rate(self, training: int) -> None:
        rate = self.nominal[training] / max(self.nodes.slowdown[node] for node in self._nodes_of[training])
        if len(paces := self.table.jobs[training].paces):
            rate *= paces[int(self.now // PACE_SECONDS) % len(paces)]
        if rate != self.rate[training]:
            self._record_progress(training)
            self.rate[training] = rate
            self._schedule_end(training)

    def _schedule_end(self, training: int) -> None:
        self._version[training] += 1
        left = max(0.0, self.goal[training] - self.iteration[training])
        when = float(self.anchor[training] + left / self.rate[training])
        self._events.add(max(when, self.now), "end", training, int(self._version[training]))

    def _update_rates(self, nodes: Sequence[int]) -> None:
        """The use of these nodes changed: so do the rates of the trainings there if the slowdown does."""
        for node in self.nodes.changed(nodes, self.now):
            for training in list(self._trainings_on[node]):
                self._set_rate(training)

"""The simulated cluster itself: jobs arrive, hold GPUs, train, slow each other down, and end.

Event driven. Between two events a training's progress is linear in time, so it is computed when asked for.

- A training goes on while all of its rows (its Slurm jobs) hold their GPUs. Its speed is that of all their GPUs and of
  the nodes that these are on, by the workload's profile. Parts that depend on each other do so in every iteration, so
  none trains without the others; a part that runs while another waits holds its GPUs idle.
- A node whose CPUs, memory or network are in use by too much slows what is on it (`slurmplug.sim.shared`); a training
  on several nodes is as fast as on the slowest.
- Of a training in parts, that share of its traffic crosses nodes which the dependencies between parts on different
  nodes are of all its dependencies; of any other training all of it, where it is on several nodes.
- A first start takes `startup` seconds in which the GPUs are held; one from a checkpoint, or with other GPUs, `restart`
  seconds. Work since the last checkpoint is lost with a requeue or a move: one each `checkpoint_every` seconds of
  training, and those asked for. A training that names no interval saves when it has to, and loses nothing; one that is
  not managed loses everything.
"""

from collections.abc import Sequence
from math import floor
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.sim.agenda import Agenda, Event
from slurmplug.sim.job import Speed
from slurmplug.sim.last_reports import LastReports
from slurmplug.sim.nodes import SimNodes
from slurmplug.sim.shared import SharedNodes
from slurmplug.sim.story import Story
from slurmplug.sim.table import Table

FUTURE, PENDING, RUNNING, DONE = range(4)
BYTES_A_PARAMETER = 4.0
"""of a checkpoint"""
Where: TypeAlias = tuple[tuple[int, int], ...]
"""Nodes, and the GPUs on each."""
_ALMOST = 1e-9


class Engine:
    """The state of the cluster at `now`, in columns of rows, of trainings (by `Table.training`) and of nodes."""

    def __init__(self, table: Table, nodes: SimNodes, threshold: float = 0.9, *, limits: bool = True) -> None:
        """threshold: see `slurmplug.sim.shared`. limits: whether a run ends at its time limit."""
        self.table, self.nodes, self.now = table, SharedNodes(nodes, threshold), 0.0
        self._limits = limits
        rows, trainings = len(table.training), len(table.jobs)
        self.state = np.full(rows, FUTURE, dtype=np.int8)
        self.gpus = table.asked.copy()
        self.restarts = np.zeros(rows, dtype=np.int64)
        self.started, self.waits_since = np.full(rows, np.nan), np.full(rows, np.nan)
        self.waited, self.attained = np.zeros(rows), np.zeros(rows)
        self.holds: dict[int, Where] = {}

        self.iterations = np.array([job.iterations for job in table.jobs], dtype=np.float64)
        """as asked for"""
        self.goal = self.iterations.copy()
        """where it ends"""
        self.iteration, self.anchor = np.zeros(trainings), np.zeros(trainings)
        """the progress at the anchor, when the present piece of it began or will begin"""
        self.rate, self.nominal = np.zeros(trainings), np.zeros(trainings)
        """iterations a second now, and where nothing slows it"""
        self.run_iteration, self.run_since = np.zeros(trainings), np.full(trainings, np.nan)
        """where the present run took up, and when it began to train"""
        self.save_at = np.full(trainings, np.nan)
        """the iteration after which the present run was asked to save"""
        self.took_up, self.trained_in = np.zeros(rows), np.full(rows, -1)
        """where the run in which each row trained last took up, and which restart that was"""
        self.reports = LastReports(trainings)
        self.checkpoint, self.checkpointed = np.full(trainings, np.nan), np.full(trainings, np.nan)
        """the last checkpoint before the present run, and when it was saved"""
        self.sent, self._crossing = np.zeros(trainings), np.zeros(trainings)
        """bytes a second between nodes at full speed; the share of its traffic that crosses nodes"""
        self.first_started, self.ended = np.full(trainings, np.nan), np.full(trainings, np.nan)
        self.stories = [Story() for _ in range(trainings)]
        self._missing = np.diff(table.first_row)
        self._spread: dict[int, tuple[int, ...]] = {}
        self._on: list[dict[int, None]] = [{} for _ in range(len(nodes))]
        self._speeds: dict[tuple[Speed, int, int], float] = {}

        self.changes, self.arrived, self.left = 0, 0, trainings
        """what changed who holds what or who waits; rows submitted; trainings that have not ended"""
        self._agenda = Agenda(self._overtaken)
        self._version = np.zeros(trainings, dtype=np.int64)

    # --- time -------------------------------------------------------------------------------------------------------

    def next_event(self) -> float:
        """When something happens by itself next; infinite where nothing will."""
        first = self._agenda.first()
        return min(self._arrival(), first.time if first else np.inf)

    def next_report(self) -> float:
        """When the next iteration of any training is done, but for its last, or a moment before; infinite for none."""
        trains = np.flatnonzero(self.rate > 0)
        to_come = np.floor(self.progress(trains) + _ALMOST) + 1.0
        times = self.anchor[trains] + (to_come - 2 * _ALMOST - self.iteration[trains]) / self.rate[trains]
        return float(times.min(initial=np.inf, where=to_come < self.goal[trains]))

    def run_until(self, until: float) -> None:
        """Let everything happen that happens by then."""
        while (time := self.next_event()) <= until:
            self.now = max(self.now, time)
            event = self._agenda.first()
            if event is None or event.time > time:
                self._arrive()
                continue
            self._agenda.pop()
            if event.kind == "end":
                self.end(event.which, "COMPLETED")
            elif event.kind == "limit":
                self.end(int(self.table.training[event.which]), "TIMEOUT")
            else:
                self.changes += 1
        self.now = max(self.now, until)

    def progress(self, trainings: Ints) -> Floats:
        """(k,) iterations that these have done, with the fraction of the present one."""
        done = self.iteration[trainings] + self.rate[trainings] * np.maximum(self.now - self.anchor[trainings], 0.0)
        return np.minimum(done, self.goal[trainings])

    def done(self, training: int) -> float:
        """The same of one training."""
        rate, since = self.rate[training], self.anchor[training]
        if rate == 0 or self.now <= since:
            return float(self.iteration[training])
        return float(min(self.iteration[training] + rate * (self.now - since), self.goal[training]))

    def speed(self, training: int, gpus: int, nodes: int) -> float:
        """Iterations a second where nothing else runs."""
        key = (self.table.jobs[training].speed, gpus, nodes)
        if key not in self._speeds:
            self._speeds[key] = key[0].at(gpus, nodes)
        return self._speeds[key]

    def placement(self, training: int) -> tuple[int, int]:
        """The GPUs and the nodes that it trains on."""
        rows = self.table.rows_of(training)
        return int(self.gpus[rows.start : rows.stop].sum()), len(self._spread[training])

    def _overtaken(self, event: Event) -> bool:
        if event.kind == "end":
            return bool(event.version != self._version[event.which])
        if event.kind == "limit":
            return bool(self.state[event.which] != RUNNING or event.version != self.restarts[event.which])
        return bool(self.state[event.which] != PENDING)

    def _arrival(self) -> float:
        waiting = self.arrived < len(self.state)
        return float(self.table.submit[self.table.training[self.arrived]]) if waiting else np.inf

    def _arrive(self) -> None:
        training = int(self.table.training[self.arrived])
        rows = self.table.rows_of(training)
        self.state[rows.start : rows.stop] = PENDING
        self.waits_since[rows.start : rows.stop] = self.now
        self.stories[training].idle_since = self.now
        self.arrived = rows.stop
        self.changes += 1

    # --- what is told to the jobs -----------------------------------------------------------------------------------

    def place(self, row: int, where: Where) -> str:
        """Start a row there, or move it there; why not, where it cannot be, and then nothing has changed."""
        state, training = self.state[row], int(self.table.training[row])
        if state not in (PENDING, RUNNING):
            return "it neither waits nor runs"
        held = self.holds.get(row, ())
        if held and held == where:
            return ""
        if held:
            self._give(row)
        if problem := self._problem(row, where):
            if held:
                self._take(row, held)
            return problem
        gpus = sum(share for _, share in where)
        if state == RUNNING:
            self._pause(training)
            self.attained[row] += self.gpus[row] * (self.now - self.started[row])
            self.waits_since[row] = self.now
            self.restarts[row] += 1
            story = self.stories[training]
            story.resizes += int(gpus != self.gpus[row])
            story.migrations += int(gpus == self.gpus[row])
            self._missing[training] += 1
        else:
            self.waited[row] += max(0.0, self.now - self.waits_since[row])
        self.state[row] = RUNNING
        self.started[row] = self.now
        self.gpus[row] = gpus
        self._take(row, where)
        self._retime([node for node, _ in where])
        limit = self.table.columns["time_limit"][row]
        if self._limits and limit == limit:
            self._agenda.add(self.now + limit, "limit", row, int(self.restarts[row]))
        self._missing[training] -= 1
        if not self._missing[training]:
            self._go_on(training)
        self.changes += 1
        return ""

    def requeue(self, row: int, delay: float = 0.0) -> str:
        """Let a running row wait again, for `delay` seconds at least; why not, where it cannot."""
        if self.state[row] != RUNNING:
            return "it does not run"
        training = int(self.table.training[row])
        self._pause(training)
        self._missing[training] += 1
        story = self.stories[training]
        story.preemptions += 1
        self._release(row)
        self.state[row] = PENDING
        self.restarts[row] += 1
        self.waits_since[row] = self.now + delay
        self.gpus[row] = self.table.asked[row]
        if delay:
            self._agenda.add(self.now + delay, "eligible", row, 0)
        self.changes += 1
        return ""

    def eligible(self, row: int, when: float) -> None:
        """A waiting row may start from then on."""
        self.waits_since[row] = when if when > self.now else min(self.waits_since[row], self.now)
        if when > self.now:
            self._agenda.add(when, "eligible", row, 0)
        self.changes += 1

    def reshape(self, row: int, gpus: int) -> None:
        """A waiting row asks for so many GPUs from now on."""
        self.gpus[row] = gpus
        self.changes += 1

    def stop(self, training: int) -> None:
        """Let it end after the iteration it is in, as a job does that is asked to."""
        done = self.done(training)
        goal = min(floor(done + _ALMOST) + 1.0, float(self.iterations[training]))
        self._aim(training, goal)
        self.stories[training].stopped = goal < self.iterations[training]

    def go_on(self, training: int) -> None:
        """Take a stop back."""
        self.stories[training].stopped = False
        self._aim(training, float(self.iterations[training]))

    def save(self, training: int) -> None:
        """Let it save a checkpoint after the iteration it is in."""
        self.save_at[training] = floor(self.done(training) + _ALMOST) + 1.0

    def saved(self, training: int) -> float:
        """The iteration of the last checkpoint, were it to go on from there now."""
        story, job, done = self.stories[training], self.table.jobs[training], self.done(training)
        if not job.managed:
            return 0.0
        if not job.checkpoint_every:
            return done
        kept = story.saved
        if self.save_at[training] <= done:
            kept = max(kept, float(self.save_at[training]))
        trained = self.now - float(self.run_since[training])
        if self.rate[training] and trained >= job.checkpoint_every:
            story.corner(self.now, done)
            last = float(self.run_since[training]) + floor(trained / job.checkpoint_every) * job.checkpoint_every
            kept = max(kept, story.iteration_at(last))
        return min(kept, done)

    def last_checkpoint(self, training: int) -> tuple[float, float]:
        """The iteration of the last checkpoint that it has reported, and when; NaN before the first."""
        before = float(self.checkpoint[training]), float(self.checkpointed[training])
        job, story = self.table.jobs[training], self.stories[training]
        if not job.managed or not self.rate[training] or self.now <= self.anchor[training]:
            return before
        story.corner(self.now, self.done(training))
        asked, since = float(self.save_at[training]), float(self.run_since[training])
        return story.last_checkpoint(before, asked, since, job.checkpoint_every)

    def _last_saved(self, training: int) -> tuple[float, float]:
        """The same once it is paused: a training without checkpoints of its own saves then."""
        job, done = self.table.jobs[training], floor(self.done(training) + _ALMOST)
        if job.managed and not job.checkpoint_every and done:
            return float(done), self.now
        return self.last_checkpoint(training)

    def end(self, training: int, state: str) -> None:
        """It is over: COMPLETED, TIMEOUT or CANCELLED."""
        self._halt(training)
        if state == "COMPLETED":
            self.iteration[training] = self.goal[training]
        story = self.stories[training]
        story.corner(self.now, float(self.iteration[training]))
        story.state, story.stopped = state, story.stopped and state == "COMPLETED"
        for row in self.table.rows_of(training):
            if self.state[row] == RUNNING:
                self._release(row)
            self.state[row] = DONE
        self.ended[training] = self.now
        self.left -= 1
        self.changes += 1

    # --- GPUs, CPUs, memory -----------------------------------------------------------------------------------------

    def _problem(self, row: int, where: Where) -> str:
        total = 0
        for node, share in where:
            if share < 0 or (lack := self.nodes.lacks(node, self.demand(row, share))):
                return f"not enough {lack} free on {self.nodes.names[node]}" if share >= 0 else "no share is negative"
            total += share
        if len({node for node, _ in where}) < len(where) or not where:
            return "nodes are named once each"
        least, most = (int(self.table.columns[name][row]) for name in ("gpus_min", "gpus_max"))
        return "" if least <= total <= most else f"{total} GPUs are not between {least} and {most}"

    def demand(self, row: int, share: int) -> Floats:
        """(resources,) what the row holds with so many GPUs."""
        return np.asarray(self.table.per_gpu[row] * (share if self.table.asked[row] else 1))

    def _take(self, row: int, where: Where) -> None:
        self.holds[row] = where
        for node, share in where:
            self.nodes.used[node] += self.demand(row, share)

    def _give(self, row: int) -> None:
        for node, share in self.holds.pop(row):
            self.nodes.used[node] -= self.demand(row, share)

    def _release(self, row: int) -> None:
        nodes = [node for node, _ in self.holds[row]]
        self._give(row)
        self.attained[row] += self.gpus[row] * (self.now - self.started[row])
        self.started[row] = np.nan
        self._retime(nodes)

    # --- training ---------------------------------------------------------------------------------------------------

    def _go_on(self, training: int) -> None:
        """All rows run: it trains from now on, or once it has restarted."""
        job, story, table = self.table.jobs[training], self.stories[training], self.table
        rows = table.rows_of(training)
        nodes = tuple(sorted({node for row in rows for node, _ in self.holds[row]}))
        again = self.first_started[training] == self.first_started[training]
        story.wait += self.now - story.idle_since
        done = float(self.iteration[training])
        story.corner(self.now, done)
        resume = self.now + (job.restart if again else job.startup)
        story.corner(resume, done)
        if again:
            if story.placed != set(nodes) and job.params == job.params:
                story.bandwidth += BYTES_A_PARAMETER * job.params
        else:
            self.first_started[training] = self.now
        story.placed, story.saved = frozenset(nodes), done
        self.anchor[training] = self.run_since[training] = resume
        self.run_iteration[training], self.save_at[training] = done, np.nan
        for row in rows:
            if self.trained_in[row] != self.restarts[row]:
                self.trained_in[row], self.took_up[row] = self.restarts[row], done
        self.nominal[training] = self.speed(training, max(1, int(self.gpus[rows.start : rows.stop].sum())), len(nodes))
        self._crossing[training] = self._crossing_share(rows, len(nodes))
        self.sent[training] = job.traffic * self._crossing[training] * self.nominal[training]
        self._spread[training] = nodes
        for node in nodes:
            self._on[node][training] = None
            self.nodes.network[node] += self.sent[training] / len(nodes)
        self._set_rate(training)
        self._retime(nodes)

    def _crossing_share(self, rows: range, nodes: int) -> float:
        edges = [(row, parent) for row in rows for parent in self.table.parents.get(row, ())]
        if not edges:
            return float(nodes > 1)
        there = {row: {node for node, _ in self.holds[row]} for row in rows}
        return sum(len(there[row] | there[parent]) > 1 for row, parent in edges) / len(edges)

    def _pause(self, training: int) -> None:
        """A row of it loses its GPUs: what is not saved is lost."""
        if training not in self._spread:
            return
        kept = self.saved(training)
        self.checkpoint[training], self.checkpointed[training] = self._last_saved(training)
        self._halt(training)
        story = self.stories[training]
        self.iteration[training] = kept
        story.corner(self.now, kept)
        story.idle_since = self.now
        if story.stopped:
            self.go_on(training)

    def _halt(self, training: int) -> None:
        """It trains no more; its rows still hold what they hold."""
        if training not in self._spread:
            return
        self._advance(training)
        nodes = self._spread.pop(training)
        for node in nodes:
            del self._on[node][training]
            self.nodes.network[node] -= self.sent[training] / len(nodes)
        self.sent[training] = self.rate[training] = 0.0
        self._version[training] += 1
        self._retime(nodes)

    def _advance(self, training: int) -> None:
        """Bring the anchor to now."""
        if self.now <= self.anchor[training]:
            return
        done, story = self.done(training), self.stories[training]
        traffic = self.table.jobs[training].traffic * self._crossing[training]
        story.bandwidth += traffic * (done - float(self.iteration[training]))
        since = float(self.anchor[training]), float(self.iteration[training])
        self.reports.note(training, story, since, float(self.rate[training]), done)
        self.anchor[training], self.iteration[training] = self.now, done
        story.corner(self.now, done)

    def _aim(self, training: int, goal: float) -> None:
        if self.goal[training] != goal:
            self.goal[training] = goal
            if training in self._spread:
                self._expect(training)

    def _set_rate(self, training: int) -> None:
        rate = self.nominal[training] / max(self.nodes.slowdown[node] for node in self._spread[training])
        if rate != self.rate[training]:
            self._advance(training)
            self.rate[training] = rate
            self._expect(training)

    def _expect(self, training: int) -> None:
        self._version[training] += 1
        left = max(0.0, self.goal[training] - self.iteration[training])
        when = float(self.anchor[training] + left / self.rate[training])
        self._agenda.add(max(when, self.now), "end", training, int(self._version[training]))

    def _retime(self, nodes: Sequence[int]) -> None:
        """Something changed on these nodes: if they slow by more or less than before, so does what trains there."""
        for node in self.nodes.changed(nodes, self.now):
            for training in list(self._on[node]):
                self._set_rate(training)

"""How far each simulated training has come, and what it would resume from.

Between two changes of its rate a training's progress is linear in time, so it is computed on request.
"""

from math import floor

import numpy as np

from policies.marginal_gain.server_speeds import rate
from predictors.arrays import Floats, Ints
from slurmplug.sim.engine.job import Speed
from slurmplug.sim.engine.last_reports import LastReports
from slurmplug.sim.engine.run_log import ALMOST, RunLog
from slurmplug.sim.engine.workload_table import WorkloadTable


class TrainingProgress:
    """The progress of each training at `now`, in columns of trainings (by `WorkloadTable.training`)."""

    def __init__(self, table: WorkloadTable) -> None:
        self.table, self.now = table, 0.0
        trainings = len(table.jobs)
        self.iterations = np.array([job.iterations for job in table.jobs], dtype=np.float64)
        """as requested"""
        self.goal = self.iterations.copy()
        """the iteration after which each ends"""
        self.iteration, self.anchor = np.zeros(trainings), np.zeros(trainings)
        """the progress at the anchor time, since which (or from which on) the rate is the present one"""
        self.rate, self.nominal = np.zeros(trainings), np.zeros(trainings)
        """iterations a second now, and without contention"""
        self.run_since = np.full(trainings, np.nan)
        """when the present run began to train"""
        self.save_at = np.full(trainings, np.nan)
        """the iteration after which the present run saves on request"""
        self.reports = LastReports(trainings)
        self.checkpoint, self.checkpointed = np.full(trainings, np.nan), np.full(trainings, np.nan)
        """the last checkpoint before the present run, and when it was saved"""
        self.traffic_rate, self._crossing = np.zeros(trainings), np.zeros(trainings)
        """bytes a second between nodes at full speed; the share of its traffic that crosses nodes"""
        self._traffic = np.array([job.traffic for job in table.jobs], dtype=np.float64)
        self.logs = [RunLog() for _ in range(trainings)]
        self._speeds: dict[tuple[Speed, int, int, int], float] = {}

    def next_report(self) -> float:
        """A moment before the next iteration of any training ends, except its last; infinite for none."""
        trains = np.flatnonzero(self.rate > 0)
        to_come = np.floor(self.progress(trains) + ALMOST) + 1.0
        times = self.anchor[trains] + (to_come - 2 * ALMOST - self.iteration[trains]) / self.rate[trains]
        return float(times.min(initial=np.inf, where=to_come < self.goal[trains]))

    def progress(self, trainings: Ints) -> Floats:
        """(k,) iterations that these have done, with the fraction of the present one."""
        done = self.iteration[trainings] + self.rate[trainings] * np.maximum(self.now - self.anchor[trainings], 0.0)
        return np.minimum(done, self.goal[trainings])

    def iterations_done(self, training: int) -> float:
        """The iterations that one training has done, with the fraction of the present one."""
        rate, since = self.rate[training], self.anchor[training]
        if rate == 0 or self.now <= since:
            return float(self.iteration[training])
        return float(min(self.iteration[training] + rate * (self.now - since), self.goal[training]))

    def bytes_sent(self, trainings: Ints) -> Floats:
        """(k,) bytes that these have sent between nodes so far."""
        noted = np.array([self.logs[each].bandwidth for each in trainings.tolist()], dtype=np.float64)
        since = self.progress(trainings) - self.iteration[trainings]
        return noted + self._traffic[trainings] * self._crossing[trainings] * since

    def speed(self, training: int, gpus: int, nodes: int, servers: int = 0) -> float:
        """Iterations a second where nothing else runs; servers: of a job that has parameter servers, 0 for as many as
        GPUs."""
        job = self.table.jobs[training]
        key = (job.speed, gpus, nodes, servers)
        if key not in self._speeds:
            if servers and job.servers:
                self._speeds[key] = float(rate(job.servers.times, gpus, servers))
            else:
                self._speeds[key] = job.speed.at(gpus, nodes)
        return self._speeds[key]

    def save(self, training: int) -> None:
        """Save a checkpoint after the present iteration."""
        self.save_at[training] = floor(self.iterations_done(training) + ALMOST) + 1.0

    def resume_iteration(self, training: int) -> float:
        """The iteration from which it would resume if it were paused now."""
        log, job, done = self.logs[training], self.table.jobs[training], self.iterations_done(training)
        if not job.managed:
            return 0.0
        if not job.checkpoint_every:
            return done
        kept = log.resumed_from
        if self.save_at[training] <= done:
            kept = max(kept, float(self.save_at[training]))
        trained = self.now - float(self.run_since[training])
        if self.rate[training] and trained >= job.checkpoint_every:
            log.corner(self.now, done)
            last = float(self.run_since[training]) + floor(trained / job.checkpoint_every) * job.checkpoint_every
            kept = max(kept, log.iteration_at(last))
        return min(kept, done)

    def last_checkpoint(self, training: int) -> tuple[float, float]:
        """The iteration of the last checkpoint that it has reported, and when; NaN before the first."""
        before = float(self.checkpoint[training]), float(self.checkpointed[training])
        job, log = self.table.jobs[training], self.logs[training]
        if not job.managed or not self.rate[training] or self.now <= self.anchor[training]:
            return before
        log.corner(self.now, self.iterations_done(training))
        requested, since = float(self.save_at[training]), float(self.run_since[training])
        return log.last_checkpoint(before, requested, since, job.checkpoint_every)

    def _checkpoint_of_pause(self, training: int) -> tuple[float, float]:
        """As `last_checkpoint`, for a training that is paused now: one without checkpoints of its own saves then."""
        job, done = self.table.jobs[training], floor(self.iterations_done(training) + ALMOST)
        if job.managed and not job.checkpoint_every and done:
            return float(done), self.now
        return self.last_checkpoint(training)

    def _record_progress(self, training: int) -> None:
        """Move the anchor to now, recording what was done and reported since."""
        if self.now <= self.anchor[training]:
            return
        done, log = self.iterations_done(training), self.logs[training]
        traffic = self.table.jobs[training].traffic * self._crossing[training]
        log.bandwidth += traffic * (done - float(self.iteration[training]))
        since = float(self.anchor[training]), float(self.iteration[training])
        self.reports.note(training, log, since, float(self.rate[training]), done)
        self.anchor[training], self.iteration[training] = self.now, done
        log.corner(self.now, done)

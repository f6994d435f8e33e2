"""A simulation whose plans somebody else makes: each plan is answered by what happened until the next decision."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.plan import Plan
from policies.snapshot import JobKey
from predictors.arrays import Floats
from slurmplug.cycle.observed import Decided, Observed
from slurmplug.cycle.timing import gc_paused
from slurmplug.rules.valid_plan import validate_plan
from slurmplug.sim.experiment.simulation import Simulation, finished
from slurmplug.sim.experiment.summary import LearningProgress


@dataclass(frozen=True)
class Ended:
    """A training that ended, measured as `slurmplug.sim.experiment.summary` does at the end of a run.

    key: of its first Slurm job. jct: seconds from submission to end. in_time: whether it completed by its deadline,
    None where it has none. accuracy: the best reported by the deadline, 0 where nothing was, None where it reports
    none. accurate: whether that is its target, None where it has none.
    """

    key: JobKey
    jct: float
    in_time: bool | None
    accuracy: float | None
    accurate: bool | None


@dataclass(frozen=True, eq=False)
class Window:
    """What happened from one decision to the next, which rewards are computed from; the first of an episode begins at
    the workload's start.

    Over all windows of an episode `job_seconds` sums to the sum of all times to completion, `shares` to 1 for each
    training that did all its iterations, and the others to the figures of the run.
    """

    begin: float
    end: float
    """seconds from the workload's start"""
    jobs: NDArray[np.object_]
    """(k,) the `JobKey` of each training that was pending or running at some time of it, of its first Slurm job"""
    iterations: Floats
    """(k,) done by each, below 0 where more was lost by a restart"""
    shares: Floats
    """(k,) the same over the iterations that its user requested: t_i / E_i of DL2, section 4.1"""
    ended: tuple[Ended, ...]
    job_seconds: float
    """the number of unfinished trainings, integrated over time"""
    gpu_seconds: float
    """held by all jobs, start-ups and lost work included"""
    bytes_sent: float
    """between nodes"""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


class Episode:
    """One run of a simulation. The simulation's own policy is not asked; its name, `needs`, `decides_on` and `until`
    count, so that the same cycles are run as under it."""

    def __init__(self, simulation: Simulation) -> None:
        """simulation: one that has not run yet."""
        self.simulation = simulation
        self._engine = simulation.engine
        self._table = simulation.engine.table
        self._cycles = simulation.cycles()
        self.observed: Observed | None = None
        """what is to be decided on; None once it is over"""
        self._known, self._alive, self._done = 0, np.empty(0, dtype=np.int64), np.empty(0)
        self._gpu_seconds, self._sent = 0.0, np.empty(0)
        self._begin = 0.0
        with gc_paused():
            self.observed = next(self._cycles, None)

    @property
    def over(self) -> bool:
        """Whether all jobs have ended, or nothing can happen any more."""
        return self.observed is None

    def advance(self, plan: Plan) -> Window:
        """Carry out the plan for what was observed, and go on until the next decision.

        Raises:
            ValueError: the plan is not valid for what was observed, or the episode is over
        """
        if self.observed is None:
            raise ValueError("the episode is over: make another simulation")
        with gc_paused():
            try:
                self.observed = self._cycles.send(Decided(self.observed, validate_plan(self.observed.snapshot, plan)))
            except StopIteration:
                self.observed = None
        return self._window()

    def _window(self) -> Window:
        engine, arrived, begin = self._engine, self._arrived(), self._begin
        new = np.arange(self._known, arrived)
        jobs = np.concatenate([self._alive, new])
        done, sent, gpu_seconds = engine.progress(jobs), engine.bytes_sent(jobs), engine.gpu_seconds()
        iterations = done - np.concatenate([self._done, np.zeros(len(new))])
        ended = engine.ended[jobs]
        alive = np.isnan(ended)
        until = np.where(alive, engine.now, ended)
        window = Window(
            begin=begin,
            end=engine.now,
            jobs=self._table.keys[self._table.first_row[jobs]],
            iterations=iterations,
            shares=iterations / engine.iterations[jobs],
            ended=tuple(self._ended(each) for each in jobs[~alive].tolist()),
            job_seconds=float((until - np.maximum(self._table.submit[jobs], begin)).sum()),
            gpu_seconds=gpu_seconds - self._gpu_seconds,
            bytes_sent=float(sent.sum() - self._sent.sum()),
        )
        self._known, self._alive, self._done, self._sent = arrived, jobs[alive], done[alive], sent[alive]
        self._gpu_seconds, self._begin = gpu_seconds, engine.now
        return window

    def _arrived(self) -> int:
        """How many trainings were submitted so far."""
        rows = self._engine.arrived
        return int(self._table.training[rows - 1]) + 1 if rows else 0

    def _ended(self, training: int) -> Ended:
        outcome = finished(self._engine, training)
        job = outcome.job
        in_time = outcome.state == "COMPLETED" and outcome.ended <= job.deadline + 1e-9
        accuracy = LearningProgress(outcome).best_accuracy() if len(job.accuracies) else None
        return Ended(
            key=self._table.keys[self._table.first_row[training]],
            jct=outcome.ended - outcome.submitted,
            in_time=in_time if job.deadline == job.deadline else None,
            accuracy=accuracy,
            accurate=None if accuracy is None or job.target != job.target else accuracy >= job.target,
        )

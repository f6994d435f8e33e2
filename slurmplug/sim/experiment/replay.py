"""A site's recorded jobs, under Slurm alone and under a policy on top of it, over samples of what is not known.

What is not known (which jobs have directives, their curves, what a policy draws) is drawn anew for each sample; both
run the same jobs, so differences are taken sample by sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan

import numpy as np

from policies.baselines.slurm import Slurm
from policies.policy import Policy
from predictors.arrays import Bools, Floats
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment.comparison import half_width
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.experiment.side_by_side import OnProgress, Run, Where, results
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

CONFIDENCE = 0.95
TOP = 10
"""users, and accounts, that are shown"""
NOTICED = 60.0
"""seconds that a job has to end earlier or later for it to gain or to lose"""


@dataclass(frozen=True, eq=False)
class Course:
    """What became of the jobs (n,) of a run, in order of submission; seconds.

    started, waited, jct: NaN for a job that did not start, or not end. gpu_seconds: that it held.
    """

    started: Floats
    waited: Floats
    jct: Floats
    gpu_seconds: Floats
    completed: Bools

    @classmethod
    def of(cls, jobs: Sequence[FinishedJob]) -> "Course":
        """The course of the jobs of a simulation."""
        columns = (("started", "started"), ("waited", "wait"), ("ended", "ended"), ("gpu_seconds", "gpu_seconds"))
        found = {name: np.array([getattr(job, of) for job in jobs], dtype=np.float64) for name, of in columns}
        submitted = np.array([job.submitted for job in jobs], dtype=np.float64)
        completed = np.array([job.state == "COMPLETED" for job in jobs], dtype=bool)
        waited = np.where(np.isnan(found["started"]), nan, found["waited"])
        return cls(found["started"], waited, found["ended"] - submitted, found["gpu_seconds"], completed)


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: its jobs, in order of submission, under Slurm alone and under the policy."""

    jobs: tuple[SimJob, ...]
    alone: Course
    policy: Course


@dataclass(frozen=True)
class Difference:
    """A figure under both, as means over the samples, the mean difference, and its interval from low to high.

    kind: `span` in seconds, `number`, `share` or `integer`. NaN where there is none; of a figure that the policy alone
    has, `alone` is NaN, and the difference the figure.
    """

    figure: str
    kind: str
    alone: float
    policy: float
    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """The jobs of a user or account: how many, the GPU hours of these under Slurm alone, their mean wait and JCT."""

    name: str
    jobs: int
    gpu_hours: float
    wait: Difference
    jct: Difference


@dataclass(frozen=True, eq=False)
class Past:
    """What is replayed. of_sample: the workload of each sample, from 0, of which Slurm alone does the same with each;
    settings: of all runs, but for their seed.
    """

    of_sample: Callable[[int], Workload]
    policy: Policy
    settings: SimulationSettings

    def alone(self, on_progress: OnProgress) -> Course:
        """The jobs under Slurm alone. Raises UsageError: the cluster cannot be read, or is smaller than a job."""
        return self._course(0, Slurm(), replace(self.settings, cycles=False), on_progress)

    def under_policy(self, number: int, on_progress: OnProgress) -> Course:
        """The jobs of a sample under the policy. Raises as `alone`."""
        return self._course(number, self.policy, replace(self.settings, seed=number), on_progress)

    def _course(self, number: int, policy: Policy, settings: SimulationSettings, on_progress: OnProgress) -> Course:
        simulation = Simulation(self.of_sample(number), policy, settings, once_grown())
        return Course.of(simulation.run(on_progress).finished)


def samples(past: Past, count: int, where: Where) -> list[Sample]:
    """Simulate `count` samples; only one, with both runs the same, if no job is managed.

    Raises:
        UsageError: the cluster cannot be read, or is smaller than a job; or Slurm does not make the runs
    """
    managed = any(job.managed for job in past.of_sample(0).jobs)
    runs = [Run(f"{Slurm.name} alone", past.alone)]
    for number in range(count if managed else 0):
        title = f"{past.policy.name}, sample {number + 1} of {count}"
        runs.append(Run(title, partial(past.under_policy, number)))
    alone, *under = results(runs, where)
    return [Sample(past.of_sample(number).jobs, alone, course) for number, course in enumerate(under or [alone])]


def differences(found: Sequence[Sample]) -> list[Difference]:
    """The figures of all jobs."""
    both = [(_figures(each.jobs, each.alone), _figures(each.jobs, each.policy)) for each in found]
    made = [_difference(name, kind, [(a[name], b[name]) for a, b in both]) for name, kind in _KINDS.items()]
    moved = [_moved(each) for each in found]
    return made + [_difference(name, kind, [(nan, each[name]) for each in moved]) for name, kind in _MOVED.items()]


def by(found: Sequence[Sample], what: str) -> list[Group]:
    """The users, or accounts, with the most GPU hours, with the wait of each one's jobs. what: `user`, `account`."""
    names = np.array([getattr(job, what) for job in found[0].jobs], dtype=np.str_)
    distinct, rows = np.unique(names, return_inverse=True)
    hours = np.bincount(rows, found[0].alone.gpu_seconds, minlength=len(distinct)) / 3600
    made = []
    for group in np.lexsort((distinct, -hours))[:TOP].tolist():
        here = rows == group
        wait, jct = (
            _difference(
                f"{name}_mean",
                "span",
                [(_mean(getattr(each.alone, of)[here]), _mean(getattr(each.policy, of)[here])) for each in found],
            )
            for name, of in (("wait", "waited"), ("jct", "jct"))
        )
        made.append(Group(str(distinct[group]), int(here.sum()), float(hours[group]), wait, jct))
    return made


_KINDS = {
    "jct_mean": "span", "jct_p50": "span", "wait_mean": "span", "wait_p95": "span", "gpu_hours": "number",
    "deadlines_met": "share", "ended": "integer",
}  # fmt: skip
_MOVED = {
    "jobs_gained": "integer", "gained_mean": "span", "gained_most": "span", "jobs_lost": "integer", "lost_mean": "span",
    "lost_most": "span",
}  # fmt: skip


def _figures(jobs: Sequence[SimJob], course: Course) -> dict[str, float]:
    jct = course.jct[~np.isnan(course.jct)]
    allowed = np.array([job.deadline - job.submit for job in jobs], dtype=np.float64)
    due = ~np.isnan(allowed)
    met = course.completed[due] & (np.where(np.isnan(course.jct), inf, course.jct)[due] <= allowed[due])
    return {
        "jct_mean": _mean(jct),
        "jct_p50": _quantile(jct, 0.5),
        "wait_mean": _mean(course.waited),
        "wait_p95": _quantile(course.waited, 0.95),
        "gpu_hours": float(course.gpu_seconds.sum()) / 3600,
        "deadlines_met": _mean(met.astype(np.float64)),
        "ended": float(len(jct)),
    }


def _moved(sample: Sample) -> dict[str, float]:
    """Who ends earlier and who later than under Slurm alone, by how much: as a change of JCT, stops included."""
    later = sample.policy.jct - sample.alone.jct
    gained, lost = -later[later < -NOTICED], later[later > NOTICED]
    return {
        "jobs_gained": float(len(gained)),
        "gained_mean": _mean(gained),
        "gained_most": _quantile(gained, 1.0),
        "jobs_lost": float(len(lost)),
        "lost_mean": _mean(lost),
        "lost_most": _quantile(lost, 1.0),
    }


def _difference(figure: str, kind: str, pairs: Sequence[tuple[float, float]]) -> Difference:
    """The difference of a figure between Slurm alone and the policy. pairs: (alone, policy), one for each sample."""
    alone, policy = np.array(pairs, dtype=np.float64).T
    change = policy if np.isnan(alone).all() else policy - alone
    known = change[~np.isnan(change)]
    middle, half = _mean(known), half_width(known, CONFIDENCE)
    return Difference(figure, kind, _mean(alone), _mean(policy), middle, middle - half, middle + half)


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan


def _quantile(values: Floats, share: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share)) if len(known) else nan

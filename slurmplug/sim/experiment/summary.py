"""The figures of a simulated run, as the papers define them: times in seconds, one number each.

jct: from submission to end, over jobs that ended. deadline_ratio: ended by their deadline, of those that have one.
accuracy_by_deadline: the best reported by then, 0 where nothing was, over the jobs that report it; accuracy_ratio:
had reported their target by then, of those that have one; without a deadline, by the end of the run. loss_integral:
normalised loss, 1 before the first report and 0 at its least, from arrival to a horizon that the workload alone sets,
the mean over jobs. time_to_90_loss: from arrival to nine tenths of the loss reduction. utility: the sum of OASiS'.
unfair_ratio: jobs above 1.1 in finish-time fairness, rho_max: the worst of it; slowdown_max: the worst job's time to
its end over its own run time (`fairness`). plain_wait: of jobs whose users gave no directives.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.fairness import UNFAIR, finish_time_fairness, slowdowns
from slurmplug.sim.experiment.result import FinishedJob, RunResult
from slurmplug.sim.workloads.directives import run_time_alone

REPORTS = 200
"""a job reports so often at most"""
URGENT = 8.0
"""urgency above it is urgent (MLFS, section 4.2.2)"""
_ROUNDING = 1e-9


def summary(result: RunResult) -> dict[str, Any]:
    """One entry of `results`. NaN where no job has such a figure."""
    jobs = result.finished
    ended = np.array([job.ended for job in jobs])
    submitted = np.array([job.submitted for job in jobs])
    deadline = np.array([job.job.deadline for job in jobs])
    completed = np.array([job.state == "COMPLETED" for job in jobs], dtype=bool)
    urgent = np.array([job.job.urgency > URGENT for job in jobs], dtype=bool)
    jct = (ended - submitted)[np.isfinite(ended)]
    met = (completed & (ended <= deadline + _ROUNDING)).astype(np.float64)
    has = np.isfinite(deadline)
    learning = [LearningProgress(job) for job in jobs if len(job.job.losses) or len(job.job.accuracies)]
    accuracies = [(each.best_accuracy(), each.job.target) for each in learning if len(each.job.accuracies)]
    with_loss = [each for each in learning if len(each.job.losses)]
    until = horizon([job.job for job in jobs])
    decided = result.decide_seconds * 1e3
    nodes = parse(result.cluster)
    rho, slowdown = finish_time_fairness(jobs, nodes), slowdowns(jobs, nodes)
    plain_wait = np.array([job.wait for job in jobs if not job.job.managed])
    return {
        "policy": result.policy,
        "seed": result.seed,
        "jobs": len(jobs),
        "jct_mean": _mean(jct),
        "jct_p50": _quantile(jct, 0.5),
        "jct_p99": _quantile(jct, 0.99),
        "makespan": float(np.nanmax(ended) - submitted.min()) if np.isfinite(ended).any() else math.nan,
        "wait_mean": _mean([job.wait for job in jobs]),
        "deadline_ratio": _mean(met[has]),
        "accuracy_by_deadline": _mean([best for best, _ in accuracies]),
        "accuracy_ratio": _mean([float(best >= target) for best, target in accuracies if target == target]),
        "bandwidth_bytes": float(sum(job.bandwidth_bytes for job in jobs)),
        "loss_integral": _mean([each.loss_integral(until) for each in with_loss]),
        "time_to_90_loss": _mean([each.time_to(0.9) for each in with_loss]),
        "time_to_95_loss": _mean([each.time_to(0.95) for each in with_loss]),
        "utility": float(sum(_utility(job) for job in jobs)),
        "gpu_hours": float(sum(job.gpu_seconds for job in jobs)) / 3600,
        "preemptions": int(sum(job.preemptions for job in jobs)),
        "migrations": int(sum(job.migrations for job in jobs)),
        "resizes": int(sum(job.resizes for job in jobs)),
        "resized_starts": int(sum(job.resized_starts for job in jobs)),
        "stops": int(sum(job.stopped for job in jobs)),
        "ended": int(np.isfinite(ended).sum()),
        "urgent_deadline_ratio": _mean(met[has & urgent]),
        "unfair_ratio": _mean((rho[np.isfinite(rho)] > UNFAIR).astype(np.float64)),
        "rho_max": _quantile(rho[np.isfinite(rho)], 1.0),
        "slowdown_max": _quantile(slowdown[np.isfinite(slowdown)], 1.0),
        "plain_wait_mean": _mean(plain_wait),
        "plain_wait_max": _quantile(plain_wait, 1.0),
        "overload_s": float(result.overload_seconds),
        "launcher": result.launcher,
        "stopping": result.stopping,
        "decide_ms_mean": _mean(decided),
        "decide_ms_p99": _quantile(decided, 0.99),
        "wall_s": result.wall_seconds,
    }


def horizon(jobs: list[SimJob]) -> float:
    """Until when losses are integrated: the last arrival, and twice the longest run time."""
    longest = max((run_time_alone(job, job.gpus) for job in jobs if len(job.losses)), default=0.0)
    return max((job.submit for job in jobs), default=0.0) + 2 * longest


class LearningProgress:
    """What one job had reported, by time."""

    def __init__(self, job: FinishedJob) -> None:
        self.job, self._finished = job.job, job
        self._at, self._times = first_reached(job.times, job.iterations)

    def best_accuracy(self) -> float:
        """The best reported by the deadline, 0 where nothing was."""
        deadline = self.job.deadline if self.job.deadline == self.job.deadline else math.inf
        done = math.floor(self._reached(deadline) + _ROUNDING)
        if done < 1:
            return 0.0
        at, values = self.job.curve_at, self.job.accuracies
        return float(np.max(values[at <= done], initial=float(np.interp(done, at, values))))

    def loss_integral(self, until: float) -> float:
        """The integral of the normalised loss from arrival to `until`; the last reported loss counts until then."""
        steps, loss = self._losses()
        when = np.clip(np.concatenate([[self._finished.submitted], self._when(steps), [until]]), None, until)
        return float(np.diff(when) @ np.concatenate([[1.0], loss]))

    def time_to(self, reduction: float) -> float:
        """Seconds from arrival until so much of the loss reduction was reported; NaN where it never was."""
        steps, loss = self._losses()
        reached = np.flatnonzero((loss <= 1 - reduction + _ROUNDING) & np.isfinite(self._when(steps)))
        return float(self._when(steps)[reached[0]]) - self._finished.submitted if len(reached) else math.nan

    def _losses(self) -> tuple[Floats, Floats]:
        """Reported iterations, and the normalised loss at each."""
        count = self.job.iterations
        steps = np.unique(np.rint(np.linspace(1, count, min(count, REPORTS))))
        values = np.interp(steps, self.job.curve_at, self.job.losses)
        span = values[0] - values.min()
        return steps, (values - values.min()) / span if span > 0 else np.zeros(len(values))

    def _when(self, steps: Floats) -> Floats:
        """When each of these iterations was first done; infinite where it was not."""
        if not len(self._at):
            return np.full(len(steps), np.inf)
        return np.where(steps <= self._at[-1] + _ROUNDING, np.interp(steps - _ROUNDING, self._at, self._times), np.inf)

    def _reached(self, time: float) -> float:
        """The most iterations that were done by then."""
        return float(np.interp(time, self._times, self._at, left=0.0)) if len(self._at) else 0.0


def first_reached(times: Floats, iterations: Floats) -> tuple[Floats, Floats]:
    """Corners (k,) of the most iterations done so far, and their times: what is done again counts once."""
    at: list[float] = []
    when: list[float] = []
    most = 0.0
    corners = list(zip(times.tolist(), iterations.tolist(), strict=True))
    for (begin, low), (end, high) in pairwise(corners):
        if high > most and high > low:
            at += [most, high]
            when += [begin + (end - begin) * max(most - low, 0.0) / (high - low), end]
            most = high
    return np.array(at), np.array(when)


def _utility(job: FinishedJob) -> float:
    """th1 / (1 + exp(th2 (x - th3))) of a job that completed after x seconds (OASiS, section V-A), else 0."""
    if job.job.utility is None or job.state != "COMPLETED":
        return 0.0
    worth, steepness, target = job.job.utility
    exponent = steepness * (job.ended - job.submitted - target)
    return worth / (1 + math.exp(min(exponent, 700.0)))


def _mean(values: Floats | list[float]) -> float:
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else math.nan


def _quantile(values: Floats, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan

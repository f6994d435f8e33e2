"""How near a replay under Slurm alone comes to what happened: the waits and the starts of jobs that a log keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
from scipy.stats import spearmanr

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.experiment.waiting_beside_idle import Held, Spans, waiting_beside_idle
from slurmplug.sim.workloads.directives import run_time_alone

NEAR = 0.1
"""A mean wait that is further apart than this share of the true one is said to be."""
FEWEST = 2
MOST_NAMES = 3
_HALF_HOUR = 1800.0
_TIMES = ("submit", "waited")


@dataclass(frozen=True)
class Waiter:
    """Whose jobs waited beside idle GPUs: `user`, `partition` or `qos`, its name, and its share of such waiting."""

    what: str
    name: str
    share: float


@dataclass(frozen=True)
class ReplayedWaits:
    """How near the replayed waits come to the true ones, over jobs of known wait that started in the replay; seconds.

    `apart`: by what share of the true mean wait the replayed one is more, NaN where nobody waited. `start_error`: the
    median absolute error of the starts. `start_rank`, `wait_rank`: Spearman's rank correlation of the starts, which
    the order of submission alone makes high, and of the waits; NaN where all are alike. `true_idle`, `replayed_idle`:
    how much of the mean wait passed while as many GPUs as the job requests were idle (CPUs, where it requests none).
    `gpus`: of the cluster; `true_most`: the most of them that the jobs held, as `Held.most`. `waiters`: whose jobs the
    true ones were that waited beside idle GPUs, those with the largest shares. `same_hour`: the largest share of that
    waiting that ended within one hour of the day; NaN where there was none.
    """

    jobs: int
    true_mean: float
    replayed_mean: float
    apart: float
    start_error: float
    start_rank: float
    wait_rank: float
    true_idle: float
    replayed_idle: float
    gpus: int
    true_most: float
    waiters: tuple[Waiter, ...]
    same_hour: float

    @property
    def near(self) -> bool:
        """Whether the mean wait is within `NEAR` of the true one."""
        return abs(self.apart) <= NEAR


def replayed_waits(jobs: Sequence[SimJob], started: Floats, ended: Floats, nodes: SimNodes) -> ReplayedWaits | None:
    """started, ended: (jobs,) in seconds, NaN for a job that did not. None where the log keeps too few waits."""
    submitted, waited = (np.array([getattr(job, name) for job in jobs], dtype=np.float64) for name in _TIMES)
    known = ~np.isnan(waited) & ~np.isnan(started)
    if known.sum() < FEWEST:
        return None
    true, replayed = waited[known], (started - submitted)[known]
    true_mean, replayed_mean = float(true.mean()), float(replayed.mean())
    gpus, cpus = (np.array([getattr(job, name) for job in jobs], dtype=np.int64) for name in ("gpus", "cpus"))
    took = np.array([run_time_alone(job, job.gpus) for job in jobs])
    capacity = float(sum(nodes.gpus)), float(sum(nodes.cpus))
    happened = Spans(submitted, submitted + waited, submitted + waited + took)
    true_idle, replayed_idle = (
        waiting_beside_idle(gpus, cpus, spans, capacity) for spans in (happened, Spans(submitted, started, ended))
    )
    return ReplayedWaits(
        jobs=int(known.sum()),
        true_mean=true_mean,
        replayed_mean=replayed_mean,
        apart=(replayed_mean - true_mean) / true_mean if true_mean > 0 else nan,
        start_error=float(np.median(np.abs(replayed - true))),
        start_rank=_rank_correlation(submitted[known] + true, started[known]),
        wait_rank=_rank_correlation(true, replayed),
        true_idle=float(true_idle[known].mean()),
        replayed_idle=float(replayed_idle[known].mean()),
        gpus=sum(nodes.gpus),
        true_most=Held.by(gpus.astype(np.float64), happened).most(),
        waiters=_waiters(jobs, np.where(known, true_idle, 0.0)),
        same_hour=_same_hour(happened.started[known], true_idle[known]),
    )


def _waiters(jobs: Sequence[SimJob], seconds: Floats) -> tuple[Waiter, ...]:
    """The users, partitions and QOS, of each if there are several, with the most of these seconds (jobs,)."""
    total, found = float(seconds.sum()), []
    for what in ("user", "partition", "qos") if total > 0 else ():
        names, rows = np.unique([getattr(job, what) for job in jobs], return_inverse=True)
        shares = np.bincount(rows, seconds, minlength=len(names)) / total
        most = np.argsort(-shares, kind="stable")[: MOST_NAMES if len(names) > 1 else 0].tolist()
        found += [Waiter(what, str(names[row]), float(shares[row])) for row in most if shares[row] > 0]
    return tuple(found)


def _same_hour(started: Floats, seconds: Floats) -> float:
    """The largest share of these seconds that is of jobs that started within one hour of the day."""
    if not seconds.sum() > 0:
        return nan
    halves = np.bincount((started // _HALF_HOUR % 48).astype(np.int64), seconds, minlength=48)
    return float((halves + np.roll(halves, 1)).max() / seconds.sum())


def _rank_correlation(one: Floats, other: Floats) -> float:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return nan
    return float(spearmanr(one, other).statistic)

"""A clairvoyant fluid: what a schedule reaches that knows all speeds and sizes, and divides GPUs freely.

At every moment the GPUs of the cluster, as one divisible amount, are shared out as by heSRPT (Berg, Vesilo and
Harchol-Balter, Performance Evaluation 2020). Of m jobs by remaining work in seconds of one GPU, i = 1 the largest, job
i weighs (i^c - (i-1)^c)^(1-p), c = 1 / (1-p), and the sum of the weighted speeds is the greatest. For speeds k^p these
are the shares (i/m)^c - ((i-1)/m)^c, which are optimal for the mean JCT of jobs that are all there. Speeds here are the
concave hulls of those on as few nodes as hold the GPUs (`speedup.packed`), so the greatest sum gives GPUs to their
segments in descending order of weighted slope. Changing sizes costs nothing, and there are neither nodes nor cycles: a
job trains from its submission and its startup on, all its iterations.

It is no bound: with other speeds than k^p and later arrivals another order may be better. `lower_bound` has one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.mlfs.growth import POWER
from predictors.arrays import Floats, Ints
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.experiment.speedup import Speedup, packed, packed_rate

STEP = 60.0
"""seconds after which the order is made again at the latest"""
_DONE = 1e-9
"""the share of a job's work below which it has ended"""


@dataclass(frozen=True, eq=False)
class Work:
    """Jobs with GPUs, one entry each, and the segments of their speeds, job by job.

    ready: (jobs,) when each can first train. iterations: (jobs,). speeds: their hulls. job, width, slope: (segments,)
    whose each is, its GPUs, and iterations a second for each of them.
    """

    gpus: int
    ready: Floats
    iterations: Floats
    speeds: tuple[Speedup, ...]
    job: Ints
    width: Floats
    slope: Floats

    @classmethod
    def of(cls, jobs: Sequence[SimJob], speeds: tuple[Speedup, ...], gpus: int) -> "Work":
        """These jobs, at these speeds, on so many GPUs."""
        empty: list[Floats] = [np.empty(0)]
        return cls(
            gpus=gpus,
            ready=np.array([job.submit + job.startup for job in jobs]),
            iterations=np.array([job.iterations for job in jobs], dtype=np.float64),
            speeds=speeds,
            job=np.repeat(np.arange(len(jobs)), [len(speed.gpus) - 1 for speed in speeds]),
            width=np.concatenate(empty + [np.diff(speed.gpus) for speed in speeds]),
            slope=np.concatenate(empty + [np.diff(speed.rate) / np.diff(speed.gpus) for speed in speeds]),
        )


def completions(jobs: Sequence[SimJob], nodes: SimNodes) -> Floats:
    """(jobs,) when each ends in the fluid; a job without GPUs takes its own time."""
    ended = np.array([job.submit + job.startup + job.iterations / packed_rate(job, job.gpus, 1) for job in jobs])
    with_gpus = np.flatnonzero([job.gpus > 0 for job in jobs])
    if len(with_gpus):
        chosen = [jobs[row] for row in with_gpus.tolist()]
        speeds = tuple(packed(job, max(nodes.gpus), sum(nodes.gpus)) for job in chosen)
        ended[with_gpus] = _shared(Work.of(chosen, speeds, sum(nodes.gpus)))
    return ended


def _shared(work: Work) -> Floats:
    left, ended = work.iterations.copy(), np.full(len(work.ready), np.nan)
    on_one = np.array([speed.at(1.0) for speed in work.speeds])
    arrivals = np.sort(work.ready)
    now = float(arrivals[0])
    while np.isnan(ended).any():
        there = np.flatnonzero((work.ready <= now) & np.isnan(ended))
        after = arrivals[np.searchsorted(arrivals, now, side="right") :][:1]
        if not len(there):
            now = float(after[0])
            continue
        rate = _rates(work, there, left[there] / on_one[there], on_one)
        with np.errstate(divide="ignore"):
            takes = left[there] / rate[there]
        step = min(STEP, float(takes.min()), *(after - now))
        left[there] -= rate[there] * step
        now += step
        ended[there[left[there] <= _DONE * work.iterations[there]]] = now
    return ended


def _rates(work: Work, there: Ints, remaining: Floats, on_one: Floats) -> Floats:
    """(jobs,) iterations a second of each by its share, 0 of those that are not there."""
    rank = np.empty(len(there))
    rank[np.argsort(-remaining, kind="stable")] = np.arange(1.0, len(there) + 1)
    c = 1 / (1 - POWER)
    weight = np.zeros(len(work.ready))
    weight[there] = (rank**c - (rank - 1) ** c) ** (1 - POWER) / on_one[there]
    worth = weight[work.job] * work.slope
    order = np.argsort(-worth, kind="stable")[: int(np.count_nonzero(worth))]
    width = work.width[order]
    given = np.clip(work.gpus - (np.cumsum(width) - width), 0.0, width)
    rate: Floats = np.zeros(len(work.ready))
    np.add.at(rate, work.job[order], given * work.slope[order])
    return rate

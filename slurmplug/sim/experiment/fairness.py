"""How a run treated each job, against what the job would have had in a share of the cluster of its own.

Finish-time fairness (Mahajan et al., Themis, NSDI 2020, section 3) is rho = T_shared / T_independent. T_shared is the
time from a job's submission to its end. T_independent is the time that it takes from its submission, alone, in a share
1/n of the cluster; n is the contention that it met, the mean number of jobs over its time in the cluster (N_avg of
Themis, the contention factor of Zheng et al., Shockwave, NSDI 2023). At rho = 1 it is as well off as if the cluster had
been divided evenly; the experiments of Shockwave count the jobs above 1.1 as treated unfairly.

In its share, G / n of the G GPUs, a job trains at a speed that is concave in GPUs: `speedup.packed`. For a job of a
fixed size g this is the time slice of Gavel (Narayanan et al., OSDI 2020, section 4.2, equal shares): min(1, G / (n g))
of its speed. An elastic one uses any mixture of the sizes of its range. So the denominator takes one evaluation a job,
and is the same function for every policy. What differs is n, which is of the run: as in the papers, a policy that
keeps more jobs waiting is judged by smaller shares, so read rho beside the JCT.

The work is what the job trained in this run, as a policy that stops it early would otherwise seem fair by doing less.
"""

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.experiment.speedup import packed, packed_rate

UNFAIR = 1.1
"""rho above it is unfair (Shockwave)"""
SHORTEST = 10.0
"""seconds; a shorter run time counts as this in a slowdown (Feitelson, Rudolph, JSSPP 1998: bounded slowdown)"""


def finish_time_fairness(jobs: tuple[FinishedJob, ...], nodes: SimNodes) -> Floats:
    """(jobs,) rho of each; NaN for a job that did not end, never trained, or has no GPUs."""
    with_gpus = np.array([job.job.gpus > 0 for job in jobs], dtype=bool)
    submitted, ended = (np.array([getattr(job, name) for job in jobs]) for name in ("submitted", "ended"))
    met = np.full(len(jobs), np.nan)
    met[with_gpus] = contention(submitted[with_gpus], ended[with_gpus])
    gpus, a_node = sum(nodes.gpus), max(nodes.gpus)
    rho = np.full(len(jobs), np.nan)
    for row, job in enumerate(jobs):
        trained = _trained(job)
        if met[row] == met[row] and trained > 0:
            alone = job.job.startup + trained / packed(job.job, a_node, gpus).at(gpus / met[row])
            rho[row] = (job.ended - job.submitted) / alone
    return rho


def contention(submitted: Floats, ended: Floats) -> Floats:
    """(jobs,) the mean number of jobs there, itself included, from each one's submission to its end; NaN without one.

    ended: NaN for a job that stays.
    """
    arrived, left = np.sort(submitted), np.sort(ended[np.isfinite(ended)])
    present = [_seconds_since(arrived, until) - _seconds_since(left, until) for until in (submitted, ended)]
    stays = ended - submitted
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            stays > 0, np.maximum((present[1] - present[0]) / stays, 1.0), np.where(stays == 0, 1.0, np.nan)
        )


def _seconds_since(times: Floats, until: Floats) -> Floats:
    """(k,) for each of `until` the sum of the seconds from those of the sorted times before it."""
    before = np.searchsorted(times, until)
    return np.asarray(before * until - np.concatenate([[0.0], np.cumsum(times)])[before])


def slowdowns(jobs: tuple[FinishedJob, ...], nodes: SimNodes) -> Floats:
    """(jobs,) from submission to end, over the run time on the GPUs that it requested, on as few nodes as hold them.

    The run time is of what it trained, its start included, and at least `SHORTEST`. NaN as in `finish_time_fairness`,
    though a job without GPUs has one.
    """
    a_node = max(nodes.gpus)
    values = np.full(len(jobs), np.nan)
    for row, job in enumerate(jobs):
        if (trained := _trained(job)) > 0:
            alone = job.job.startup + trained / packed_rate(job.job, job.job.gpus, a_node)
            values[row] = (job.ended - job.submitted) / max(alone, SHORTEST)
    return values


def _trained(job: FinishedJob) -> float:
    """The most iterations that it came to."""
    return float(np.max(job.iterations, initial=0.0))

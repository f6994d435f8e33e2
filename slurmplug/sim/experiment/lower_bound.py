"""A lower bound on the mean JCT of a workload, whatever policy runs it, by linear programming.

What is relaxed. GPUs are one divisible amount, not whole ones of nodes. A job may have any of them at any time, resized
and paused at no cost, and trains at the concave hull of its speeds on the best number of nodes (`speedup.fastest`).
Its end is relaxed too: time is cut at t_0 < t_1 < ..., and a job pays by t_k for what it does from t_k to t_k+1.

Why it is a bound. Take a simulation in which every job does all its iterations. Job j has W_j of them, ends at C_j,
can first train at r_j, and does v_j(t) a second at t that are not lost later. So v_j(t) / W_j integrates to 1, and is
at most 1 / p_j, p_j being W_j over its greatest rate. The mean time of what it does is at most what it would be if it
did all as late as possible, from C_j - p_j to C_j at its greatest rate:

    C_j >= integral of t v_j(t) / W_j dt + p_j / 2      and      C_j >= r_j + p_j

The mean rates within each interval are a solution of the programme below: the hull is above the measured rates and
concave, so a mean rate is at most the hull of the mean number of GPUs (Jensen), and these are at most the cluster's. As
t_k <= t, its objective for this solution is at most the sum of the C_j, and its optimum is at most that. After the
last cut GPUs are unlimited, so no simulation is left out.

    min  sum_j C_j
    C_j >= sum_k max(t_k, r_j) sum_s v_s x_jsk / W_j + p_j / 2,   C_j >= r_j + p_j
    sum_k sum_s v_s x_jsk = W_j                                   all its iterations
    sum_j sum_s x_jsk <= G (t_k+1 - t_k)                          GPU seconds
    0 <= x_jsk <= w_s (t_k+1 - max(t_k, r_j))                     segment s of its hull: w_s GPUs at v_s a GPU second

Mean busy times are a classic relaxation of completion times (Goemans, SODA 1997). It is no bound for policies that stop
jobs early, nor where time limits end jobs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from predictors.arrays import Floats, Ints
from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.experiment.fluid import Work, completions
from slurmplug.sim.experiment.speedup import fastest, packed_rate

CUTS = 300
"""intervals of time: more of them give a higher bound, later"""


def mean_jct_bound(jobs: Sequence[SimJob], nodes: SimNodes, cuts: int = CUTS) -> float:
    """Seconds from submission to end that no policy undercuts in the mean.

    Raises:
        UsageError: the programme cannot be solved
    """
    with_gpus = [job for job in jobs if job.gpus > 0]
    total = sum(job.startup + job.iterations / packed_rate(job, 0, 1) for job in jobs if not job.gpus)
    if with_gpus:
        gpus = sum(nodes.gpus)
        work = Work.of(with_gpus, tuple(fastest(job, nodes) for job in with_gpus), gpus)
        ends = _sum_of_ends(work, _cut(np.concatenate([work.ready, completions(with_gpus, nodes)]), cuts))
        total += ends - sum(job.submit for job in with_gpus)
    return total / len(jobs)


def _cut(events: Floats, cuts: int) -> Floats:
    """(cuts + 1,) at most: where to cut time, half of it evenly, half as often as jobs come and end."""
    even = np.linspace(events.min(), events.max(), max(cuts // 2, 1) + 1)
    return np.unique(np.concatenate([even, np.quantile(events, np.linspace(0, 1, max(cuts - cuts // 2, 1) + 1))]))


def _sum_of_ends(work: Work, cut: Floats) -> float:
    """The optimum. Its variables: x, for each segment the intervals from when its job is ready on, then C.

    Raises:
        UsageError
    """
    begins = np.append(cut, np.inf)
    starts = np.maximum(begins[:-1], work.ready[work.job][:, None])
    room = begins[1:] - starts
    segment, interval = np.nonzero(room > 0)
    job, starts, room = work.job[segment], starts[segment, interval], room[segment, interval]
    jobs, count = len(work.ready), len(segment)
    share = work.slope[segment] / work.iterations[job]
    shortest = work.iterations / np.array([speed.rate[-1] for speed in work.speeds])
    limited = np.flatnonzero(np.isfinite(room))

    def rows(values: Floats, row: Ints, column: Ints, height: int) -> Any:
        return sparse.csr_array((values, (row, column)), shape=(height, count + jobs))

    each, ends = np.arange(count), np.arange(jobs)
    mean_time = rows(share * starts, job, each, jobs) - rows(np.ones(jobs), ends, count + ends, jobs)
    done = rows(share, job, each, jobs)
    held = rows(np.ones(len(limited)), interval[limited], limited, len(cut) - 1)
    solved = milp(
        np.concatenate([np.zeros(count), np.ones(jobs)]),
        bounds=Bounds(
            np.concatenate([np.zeros(count), work.ready + shortest]),
            np.concatenate([work.width[segment] * room, np.full(jobs, np.inf)]),
        ),
        constraints=[
            LinearConstraint(mean_time, -np.inf, -shortest / 2),
            LinearConstraint(done, 1.0, 1.0),
            LinearConstraint(held, -np.inf, work.gpus * np.diff(cut)),
        ],
    )
    if solved.x is None:
        raise UsageError(f"the bound cannot be computed: {solved.message}: give fewer jobs, by --jobs")
    return float(solved.fun)

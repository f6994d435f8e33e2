"""Elastic jobs under MLF-H: how many GPUs each has, by the shares of heSRPT in a marginal rule.

Beyond the paper, whose jobs are rigid. Berg, Vesilo, Harchol-Balter: heSRPT, Performance Evaluation 2020: where the
speed of each job is s(k) = k^p, the mean completion time of m jobs is least if the one of rank i by remaining size, 1
the largest, has (i / m)^c - ((i - 1) / m)^c of the GPUs, c = 1 / (1 - p). Those shares maximise the sum of
w_i s(k_i) with w_i = (i^c - (i - 1)^c)^(1 - p). No training has such a speed exactly, so w_i weighs the forecast speed
of each instead, one GPU at a time:

1. Jobs that are not elastic come first: those that run where the elastic ones have their minimum, in order of priority.
2. s_i(k): the concave hull, through (0, 0), of the forecast speed on the GPUs that job i can train on, over s_i(1).
   Its size W_i: the seconds that remain until its expected stop, times s_i of the GPUs that it has or requested; where
   its iterations are known, those over its speed on one GPU, within half and twice that. The forecasts of time and
   speed need not agree, and a job that starts by the one and is preempted by the other would do so again and again.
3. The k-th GPU is worth w_i (s_i(k) - s_i(k - 1)) to job i, and `keep` times that if the job holds it. GPUs go to where
   they are worth most, from the first one on: nobody is guaranteed its minimum, unless with `guarantee`.
4. A job for whose minimum not enough is left has none, and the others divide the rest.
5. A job to which more GPUs save less than two restarts keeps what it has, and the others divide the rest.
6. All are placed in order of priority, on as few nodes as possible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policies.marginal_gain.speeds import MEDIAN, concave_hull, relative_speed
from policies.mlfs.preferences import Preferences
from policies.mlfs.priority import Ranking
from policies.mlfs.sizes import Sizes
from policies.placement.allocation import elastic, gang_gpus, held_gpus, queue_order, startable
from policies.placement.pools import GPUPools
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan, Forecasts

POWER = 0.7
"""p of heSRPT's k^p"""
RESTARTS = 2.0
"""what more GPUs must save a running job, in restarts, each of which delays it"""

TWICE = 2.0
"""how far the size of a job by the iterations that it states may differ from its size by time"""


@dataclass(frozen=True)
class GrowthSettings:
    """Which numbers of GPUs elastic jobs get.

    grow: whether other ones than they requested. keep: factor on the worth of a GPU to the job that holds it.
    guarantee: whether elastic jobs start by priority and have at least their minimum from then on.
    """

    grow: bool = True
    keep: float = 2.0
    guarantee: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.keep < np.inf:
            raise ValueError(f"keep is at least 1, not {self.keep}")


class Movable(NamedTuple):
    """resize (n,): the running jobs that may be resized. preempt (n,): those that may be preempted for others."""

    resize: Bools
    preempt: Bools


def sizes(
    snapshot: Snapshot,
    ranking: Ranking,
    forecasts: Forecasts,
    movable: Movable,
    settings: GrowthSettings,
    *,
    restart: float,
    preferences: Preferences | None = None,
) -> Sizes | None:
    """The GPUs that elastic jobs are to have; None where there are no such jobs.

    The jobs of one ML job train together, so none of them is resized; nor is a job of unknown speed.

    Args:
        snapshot: the cluster.
        ranking: the priorities, and the seconds left on the GPUs that each job holds or requested.
        forecasts: remaining seconds, and iterations a second by GPUs.
        movable: which running jobs may be changed.
        settings: `keep` and `guarantee`.
        restart: seconds that a restart takes.
        preferences: which GPUs each job would rather have; None for the rule alone.
    """
    jobs, starts = snapshot.jobs, startable(snapshot.jobs)
    alone = np.bincount(jobs.ml_job, minlength=len(jobs))[jobs.ml_job] == 1
    sized = elastic(jobs) & alone & _trains(forecasts.speed) & (movable.resize | starts)
    if not sized.any():
        return None
    yields = np.where(sized, jobs.running, movable.preempt & ~_beside(jobs, jobs.running & ~movable.preempt))
    first = jobs.running & sized & settings.guarantee
    order = queue_order(jobs, ~first, -np.nan_to_num(ranking.score))
    gpus = gang_gpus(snapshot, order, preempt=yields, requested=np.where(sized, jobs.gpus_min, jobs.gpus))
    rows = np.flatnonzero(sized & (gpus > 0) if settings.guarantee else sized)
    gpus[sized] = 0
    pools = GPUPools.of(snapshot, yields)
    for row in np.flatnonzero((yields | starts) & (gpus > 0)).tolist():
        pools.take(int(jobs.placement[row]), int(gpus[row]))
    if len(rows):
        elastics = _Elastic.of(snapshot, rows, ranking, forecasts, settings)
        if preferences is not None:
            elastics = elastics.preferring(preferences, rows, most_gpus_of_a_node(snapshot))
        gpus[rows] = elastics.share(pools, RESTARTS * restart)
    without = ~sized & (gpus == 0) & (jobs.gpus > 0)
    return Sizes(sized | (without & yields), gpus, without & starts & jobs.managed)


class _Elastic(NamedTuple):
    """r elastic jobs: what they hold, can train on and have left, and the worth of more GPUs to them.

    placement, held, least, most, remaining (r,). at (r, k): numbers of GPUs, ascending from `least` to `most`, 0 before
    the first. rate (r, k): how much the relative speed gains by each GPU up to there: the slopes of its hull. worth (r,
    2k): of a GPU in each of these steps, for the part that the job holds, then for the part that it does not.
    """

    placement: Ints
    held: Ints
    least: Ints
    most: Ints
    remaining: Floats
    at: Floats
    rate: Floats
    worth: Floats

    @classmethod
    def of(
        cls, snapshot: Snapshot, rows: Ints, ranking: Ranking, forecasts: Forecasts, settings: GrowthSettings
    ) -> "_Elastic":
        """These rows (r,)."""
        jobs, held, remaining = snapshot.jobs, held_gpus(snapshot)[rows], ranking.remaining[rows]
        least, most = np.maximum(jobs.gpus_min[rows], 1), jobs.gpus_max[rows]
        at, rate, first = concave_hull(forecasts.speed, rows, least, most)
        by_time = remaining * relative_speed(at, rate, np.where(held > 0, held, jobs.gpus[rows]))
        left = (jobs.max_iterations - jobs.iteration)[rows] * (remaining / forecasts.remaining.median[rows])
        size = np.clip(np.where(np.isnan(left), by_time, left / first), by_time / TWICE, by_time * TWICE)
        worth = rate * weights(size)[:, None]
        both = np.concatenate([settings.keep * worth, worth], axis=1)
        if settings.guarantee:
            both[:, [0, at.shape[1]]] = np.inf
        return cls(jobs.placement[rows], held, least, most, remaining, at, rate, both)

    def preferring(self, preferences: Preferences, rows: Ints, node: int) -> "_Elastic":
        """With the worth of a GPU as it is preferred; rows (r,). node: beyond so many GPUs more than one is needed."""
        change = preferences.size[rows, None] + preferences.width[rows, None] * (self.at > node)
        return self._replace(worth=self.worth * np.exp(np.concatenate([change, change], axis=1)))

    def share(self, pools: GPUPools, least_saving: float) -> Ints:
        """(r,) the GPUs of each, out of these pools. least_saving: seconds, see step 5."""
        count = self._by_worth(pools, self.most)
        before, after = (relative_speed(self.at, self.rate, gpus) for gpus in (self.held, count))
        saved = self.remaining * (1.0 - np.divide(before, after, out=np.ones(len(count)), where=after > 0))
        stays = (self.held > 0) & (count > self.held) & (saved < least_saving)
        return self._by_worth(pools, np.where(stays, self.held, self.most)) if stays.any() else count

    def _by_worth(self, pools: GPUPools, most: Ints) -> Ints:
        """(r,) the GPUs of each job, up to `most` (r,), given where they are worth most. Equals go by row."""
        left = GPUPools(pools.left.copy(), pools.open_to)
        given = [0] * len(most)
        least, classes = self.least.tolist(), self.placement.tolist()
        for row, gpus in self._steps(most):
            if given[row] < least[row] and (gpus < least[row] or left.available(classes[row]) < gpus):
                continue  # it cannot train on fewer than its minimum
            given[row] += left.take(classes[row], gpus)
            if not any(left.left):
                break
        return np.array(given, dtype=np.int64)

    def _steps(self, most: Ints) -> Iterator[tuple[int, int]]:
        """The jobs by row, and GPUs for each, in descending order of the worth of one; first of each its minimum."""
        end = np.minimum(self.at, most[:, None])
        begin = np.concatenate([np.zeros((len(end), 1)), end[:, :-1]], axis=1)
        ours = np.clip(self.held[:, None], begin, end)
        ours[:, 0] = np.where(self.held >= self.least, end[:, 0], 0.0)
        gpus = np.concatenate([ours - begin, end - ours], axis=1)
        worth_it = self.worth > 0
        worth_it[:, : len(end[0])] = True  # what a job has and nobody else wants it keeps
        some = np.flatnonzero((gpus > 0) & worth_it)
        some = some[np.argsort(-self.worth.ravel()[some], kind="stable")]
        return zip((some // gpus.shape[1]).tolist(), gpus.ravel()[some].astype(np.int64).tolist(), strict=True)


def most_gpus_of_a_node(snapshot: Snapshot) -> int:
    """The most GPUs that a node in service has."""
    nodes = snapshot.nodes
    return int(nodes.capacity[nodes.up, 0].max(initial=0.0))


def _beside(jobs: Jobs, some: Bools) -> Bools:
    """(n,) whether one of these jobs (n,) is of the same ML job."""
    return np.asarray(np.bincount(jobs.ml_job, some, minlength=len(jobs))[jobs.ml_job] > 0)


def _trains(speed: Fan) -> Bools:
    """(n,) whether a speed is forecast, and not 0 on every number of GPUs."""
    some = np.append((speed.table[:, :, MEDIAN] > 0).any(axis=1), False)
    return np.asarray(some[speed.index])  # -1, where it is unknown, is the last


def weights(size: Floats) -> Floats:
    """(m,) w_i of heSRPT for jobs of these sizes (m,); equals in their order."""
    c = 1.0 / (1.0 - POWER)
    rank = np.empty(len(size))
    rank[np.argsort(-size, kind="stable")] = np.arange(1.0, len(size) + 1.0)
    return (rank**c - (rank - 1.0) ** c) ** (1.0 - POWER)

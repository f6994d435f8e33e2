"""Packing and remaining work in one score: Tetris, and Graphene, which considers dependencies between tasks."""

from dataclasses import dataclass

import numpy as np

from policies.mlfs.dependencies import Dependencies
from policies.placement.allocation import queue_order, startable
from policies.placement.demand import cluster_shares, remaining_seconds
from policies.placement.plans import plan_in_order
from policies.placement.space import Space
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class TetrisSettings:
    """shortness: the weight of the remaining work against that of the alignment, the paper's m."""

    shortness: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.shortness < np.inf:
            raise ValueError(f"shortness is a number not less than 0, not {self.shortness}")


class Tetris(Policy):
    """Jobs start by alignment with free resources and by least remaining work (Grandl et al., SIGCOMM 2014).

    Section 3: the alignment is the dot product of a job's demand and the free resources, both as shares of the cluster
    (3.2); the remaining work is the remaining time times the sum of the demand (3.3.1); score = alignment - m a/p work,
    with a and p the means of both (3.3.2). Free resources are summed over all nodes, since a gang may need several, and
    once a cycle; the node is then the fullest with room. Left out: fairness (3.4), and remote reads.
    """

    name = "tetris"
    needs: frozenset[Need] = frozenset({"remaining"})
    decides_on = "events"

    def __init__(self, settings: TetrisSettings | None = None) -> None:
        self.settings: TetrisSettings = settings or TetrisSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by score, and start jobs in this order."""
        score = _alignment(snapshot) - self.settings.shortness * _remaining_work(snapshot, forecasts)
        return plan_in_order(snapshot, queue_order(snapshot.jobs, snapshot.jobs.state != "running", -score))


class Graphene(Policy):
    """Troublesome tasks first: those with long chains of dependants and large demands (Grandl et al., OSDI 2016).

    Within a job, here the ML job, tasks are ranked by their troublesome score (section 4): the mean of the longest
    chain from the task on, of its own run time, and of its demand, each as a share of the greatest in its ML job.
    Across jobs, the score of section 5: that score times alignment, less the remaining work of the whole ML job, as in
    Tetris. Left out: the search over placements of the whole graph in time (4.2), which starts from troublesome tasks,
    and bounded unfairness (5). If every ML job is one task it is Tetris.
    """

    name = "graphene"
    needs: frozenset[Need] = frozenset({"remaining"})
    decides_on = "events"

    def __init__(self, settings: TetrisSettings | None = None) -> None:
        self.settings: TetrisSettings = settings or TetrisSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by score, and start jobs in this order."""
        jobs = snapshot.jobs
        work = _sum_by_group(jobs.ml_job, _remaining_work(snapshot, forecasts))
        score = _troublesome_score(snapshot, forecasts) * _alignment(snapshot) - self.settings.shortness * work
        return plan_in_order(snapshot, queue_order(jobs, jobs.state != "running", -score))


def _alignment(snapshot: Snapshot) -> Floats:
    """(n,) dot product of demand and free resources, over its mean among the jobs that may start."""
    capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
    free = Space(snapshot).free.sum(axis=0) / np.where(capacity > 0, capacity, np.inf)
    return _over_mean(cluster_shares(snapshot) @ free, snapshot)


def _remaining_work(snapshot: Snapshot, forecasts: Forecasts) -> Floats:
    """(n,) remaining time times demand, over its mean likewise; unknown times count as the longest known one."""
    seconds = remaining_seconds(snapshot, forecasts.remaining)
    seconds = np.where(np.isnan(seconds), np.fmax.reduce(seconds, initial=0.0), seconds)
    return _over_mean(seconds * cluster_shares(snapshot).sum(axis=1), snapshot)


def _over_mean(values: Floats, snapshot: Snapshot) -> Floats:
    counted = values[startable(snapshot.jobs)]
    mean = float(counted.mean()) if len(counted) else 0.0
    return values / mean if mean > 0 else np.zeros(len(values))


def _troublesome_score(snapshot: Snapshot, forecasts: Forecasts) -> Floats:
    """(n,) in (0, 1]: the troublesome score of each task within its ML job."""
    jobs = snapshot.jobs
    seconds = np.nan_to_num(remaining_seconds(snapshot, forecasts.remaining))
    chain = seconds.copy()
    for parents, children in Dependencies.of(jobs.ml_job, jobs.parents).levels:
        np.maximum.at(chain, parents, seconds[parents] + chain[children])
    parts = [chain, seconds, cluster_shares(snapshot).max(axis=1)]
    return np.asarray(np.mean([_share_of_greatest(jobs.ml_job, part) for part in parts], axis=0))


def _share_of_greatest(group: np.ndarray, values: Floats) -> Floats:
    greatest = np.zeros(len(values))
    np.maximum.at(greatest, group, values)
    return np.where(greatest[group] > 0, values / np.where(greatest > 0, greatest, 1.0)[group], 1.0)


def _sum_by_group(group: np.ndarray, values: Floats) -> Floats:
    return np.asarray(np.bincount(group, values, len(values))[group])

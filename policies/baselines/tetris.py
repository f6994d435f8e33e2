"""Packing and shortness in one score: Tetris, and Graphene, which knows what depends on what."""

from dataclasses import dataclass

import numpy as np

from policies.allocation import Space, in_order, startable
from policies.baselines.common import ordered, remaining_seconds, sizes
from policies.mlfs.dependencies import Dependencies
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class TetrisSettings:
    """shortness: the weight of the work left against that of the packing, the paper's m."""

    shortness: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.shortness < np.inf:
            raise ValueError(f"shortness is a number not less than 0, not {self.shortness}")


class Tetris(Policy):
    """The job starts first that fits best into what is free and has the least work left (Grandl et al., SIGCOMM 2014).

    Section 3: the alignment is the dot product of what a job asks for and what is free, both in shares of the cluster
    (3.2); the work left is the time left times the sum of those shares (3.3.1); score = alignment - m a/p work, with a
    and p the means of both (3.3.2). What is free is taken over all nodes, since a gang may need several, and once a
    cycle; the node is then the fullest that has room. Left out: fairness (3.4), and remote reads.
    """

    name = "tetris"
    needs: frozenset[Need] = frozenset({"remaining"})
    decides_on = "events"

    def __init__(self, settings: TetrisSettings | None = None) -> None:
        self.settings: TetrisSettings = settings or TetrisSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by score, and start what comes first."""
        score = _alignment(snapshot) - self.settings.shortness * _work(snapshot, forecasts)
        return ordered(snapshot, in_order(snapshot.jobs, snapshot.jobs.state != "running", -score))


class Graphene(Policy):
    """Troublesome tasks first: those with much below them and those that are tough to pack (Grandl et al., OSDI 2016).

    Within a job, here the ML job, tasks go by trouble (section 4): the mean of the run time of the task and the longest
    chain below it, of its own run time, and of what it asks for, each as a share of the greatest in its ML job. Across
    jobs, the score of section 5: trouble times alignment, less the work that the whole ML job has left, as in Tetris.
    Left out: the search over placements of the whole graph in time (4.2), of which trouble is the seed, and bounded
    unfairness (5). Where every ML job is one task it is Tetris.
    """

    name = "graphene"
    needs: frozenset[Need] = frozenset({"remaining"})
    decides_on = "events"

    def __init__(self, settings: TetrisSettings | None = None) -> None:
        self.settings: TetrisSettings = settings or TetrisSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by score, and start what comes first."""
        jobs = snapshot.jobs
        work = _sums(jobs.ml_job, _work(snapshot, forecasts))
        score = _trouble(snapshot, forecasts) * _alignment(snapshot) - self.settings.shortness * work
        return ordered(snapshot, in_order(jobs, jobs.state != "running", -score))


def _alignment(snapshot: Snapshot) -> Floats:
    """(n,) dot product of what the job asks for and what is free, divided by the mean of those that may start."""
    capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
    free = Space(snapshot).free.sum(axis=0) / np.where(capacity > 0, capacity, np.inf)
    return _over_mean(sizes(snapshot) @ free, snapshot)


def _work(snapshot: Snapshot, forecasts: Forecasts) -> Floats:
    """(n,) time left times what the job holds meanwhile, divided likewise; of unknown length: as the longest known."""
    seconds = remaining_seconds(snapshot, forecasts.remaining)
    seconds = np.where(np.isnan(seconds), np.fmax.reduce(seconds, initial=0.0), seconds)
    return _over_mean(seconds * sizes(snapshot).sum(axis=1), snapshot)


def _over_mean(values: Floats, snapshot: Snapshot) -> Floats:
    counted = values[startable(snapshot.jobs)]
    mean = float(counted.mean()) if len(counted) else 0.0
    return values / mean if mean > 0 else np.zeros(len(values))


def _trouble(snapshot: Snapshot, forecasts: Forecasts) -> Floats:
    """(n,) in (0, 1]: how troublesome each task is among those of its ML job."""
    jobs = snapshot.jobs
    seconds = np.nan_to_num(remaining_seconds(snapshot, forecasts.remaining))
    chain = seconds.copy()
    for parents, children in Dependencies.of(jobs.ml_job, jobs.parents).levels:
        np.maximum.at(chain, parents, seconds[parents] + chain[children])
    parts = [chain, seconds, sizes(snapshot).max(axis=1)]
    return np.asarray(np.mean([_of_greatest(jobs.ml_job, part) for part in parts], axis=0))


def _of_greatest(group: np.ndarray, values: Floats) -> Floats:
    greatest = np.zeros(len(values))
    np.maximum.at(greatest, group, values)
    return np.where(greatest[group] > 0, values / np.where(greatest > 0, greatest, 1.0)[group], 1.0)


def _sums(group: np.ndarray, values: Floats) -> Floats:
    return np.asarray(np.bincount(group, values, len(values))[group])

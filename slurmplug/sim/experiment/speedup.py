"""A job's speed as a concave function of GPUs: what it reaches in the mean if changing their number costs nothing."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from policies.marginal_gain import server_speeds
from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import SimNodes


@dataclass(frozen=True, eq=False)
class Speedup:
    """The least concave function above (0, 0) and the measured rates, constant beyond its last corner.

    gpus: (k,) its corners from 0, ascending; rate: (k,) iterations a second there, ascending.
    """

    gpus: Floats
    rate: Floats

    @classmethod
    def through(cls, gpus: Iterable[float], rates: Iterable[float]) -> "Speedup":
        """Through these points, of increasing numbers of GPUs from 1."""
        corners = [(0.0, 0.0)]
        for point in zip(gpus, rates, strict=True):
            if point[1] <= corners[-1][1]:
                continue
            while len(corners) > 1 and _slope(corners[-2], corners[-1]) <= _slope(corners[-1], point):
                corners.pop()
            corners.append(point)
        at, rate = np.array(corners).T
        return cls(at, rate)

    def at(self, gpus: float) -> float:
        """Iterations a second on so many GPUs in the mean."""
        return float(np.interp(gpus, self.gpus, self.rate))


def packed_rate(job: SimJob, gpus: int, gpus_a_node: int) -> float:
    """Iterations a second on so many GPUs of as few nodes as hold them; for a job without GPUs on one node."""
    return job.speed.at(max(gpus, 1), max(1, math.ceil(gpus / max(gpus_a_node, 1))))


def packed(job: SimJob, gpus_a_node: int, gpus: int) -> Speedup:
    """The speedup of a job on each number of GPUs that it can train on, up to `gpus`, on as few nodes as hold these."""
    least, most = gpu_range(job)
    counts = range(least, min(most, gpus) + 1)
    return Speedup.through(counts, (packed_rate(job, count, gpus_a_node) for count in counts))


def fastest(job: SimJob, nodes: SimNodes) -> Speedup:
    """The speedup of a job at the highest of its paces, with each number of GPUs on the number of nodes of the cluster,
    and with the number of parameter servers if it has any, that make it fastest."""
    pace = float(np.max(job.paces, initial=0.0)) or 1.0
    least, most = gpu_range(job)
    a_node = max(nodes.gpus)
    counts = range(least, min(most, sum(nodes.gpus)) + 1)
    spreads = sorted({1, *job.speed.nodes.tolist()})

    def rate(gpus: int) -> float:
        if job.servers:
            return pace * float(server_speeds.rate(job.servers.times, gpus, np.arange(1, job.servers.most + 1)).max())
        fewest, most_nodes = math.ceil(gpus / a_node), min(gpus, len(nodes))
        ways = {fewest, most_nodes, *(spread for spread in spreads if fewest < spread < most_nodes)}
        return pace * max(job.speed.at(gpus, way) for way in ways)

    return Speedup.through(counts, map(rate, counts))


def gpu_range(job: SimJob) -> tuple[int, int]:
    """The fewest and the most GPUs that it can train on."""
    if job.parts:
        return job.gpus, job.gpus
    return job.gpus_min or job.gpus, job.gpus_max or job.gpus


def _slope(low: tuple[float, float], high: tuple[float, float]) -> float:
    return (high[1] - low[1]) / (high[0] - low[0])

"""Free GPUs by pool, which are nodes that are open to the same jobs: by counts alone, whichever nodes these are.

A node with GPUs of several types, of which jobs request one, is as many nodes (`gpu_types.split_by_type`).
"""

from typing import NamedTuple

import numpy as np

from policies.placement.gpu_types import split_by_type
from policies.placement.space import free_resources
from policies.snapshot import Snapshot
from predictors.arrays import Bools


class GPUPools(NamedTuple):
    """left: free GPUs of each pool. open_to: for each placement class its pools, the least shared one first."""

    left: list[int]
    open_to: list[list[int]]

    @classmethod
    def of(cls, snapshot: Snapshot, yields: Bools) -> "GPUPools":
        """What is free where the jobs `yields` (n,) give back what they hold, on nodes in service."""
        nodes, on = snapshot.nodes, snapshot.runs_on
        back = on[yields[on[:, 0]]]
        held, given = (np.bincount(those[:, 1], those[:, 2], len(nodes.names)) for those in (on, back))
        free = free_resources(nodes, held[:, None].astype(np.float64))[:, 0] + given
        fits, free = split_by_type(snapshot, free, back)
        if fits.all():
            return cls([int(free.sum())], [[0]] * len(fits))
        columns, pool_of = np.unique(fits, axis=1, return_inverse=True)
        left = np.bincount(pool_of.ravel(), weights=free, minlength=columns.shape[1])
        scarce = np.argsort(columns.sum(axis=0), kind="stable")
        return cls(left.astype(int).tolist(), [scarce[row[scarce]].tolist() for row in columns])

    def available(self, placement: int) -> int:
        """Free GPUs for jobs of this placement class."""
        return sum(self.left[pool] for pool in self.open_to[placement])

    def take(self, placement: int, gpus: int) -> int:
        """Take this many GPUs for a job of this placement class, or as many as there are; returns how many."""
        missing = gpus
        for pool in self.open_to[placement]:
            part = min(missing, self.left[pool])
            self.left[pool] -= part
            missing -= part
        return gpus - missing


def subtract(left: list[int], pools: list[int], gpus: int) -> list[int]:
    """What is left of each pool after taking this many GPUs from these pools; empty where they do not have as many."""
    if not left or gpus > sum(left[pool] for pool in pools):
        return []
    rest = left.copy()
    for pool in pools:
        part = min(gpus, rest[pool])
        rest[pool] -= part
        gpus -= part
    return rest

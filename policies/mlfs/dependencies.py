"""Which jobs depend on which, inside an ML job, without cycles."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from predictors.arrays import Bools, Ints


@dataclass(frozen=True)
class Dependencies:
    """The children that count in MLFS' equations 3 and 5: jobs of the same ML job that depend on a job.

    levels: pairs of rows (parents, children), a level's children being parents in earlier levels only. cyclic (n,):
    the job waits for itself. orphaned (n,): it waits for a job that is not there. Neither kind has children here.
    """

    levels: tuple[tuple[Ints, Ints], ...]
    cyclic: Bools
    orphaned: Bools

    @classmethod
    def of(cls, ml_job: Ints, parents: Ints) -> "Dependencies":
        """From each job's ML job (n,) and `parents` (edges, 2): row, row that it depends on, -1 for one not there."""
        n = len(ml_job)
        if not len(parents):
            return cls((), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
        child, parent = np.divmod(np.unique(parents[:, 0] * (n + 1) + parents[:, 1] + 1), n + 1)  # each edge once
        orphaned = np.zeros(n, dtype=np.bool_)
        orphaned[child[parent == 0]] = True
        child, parent = child[parent > 0], parent[parent > 0] - 1
        cyclic = _in_cycles(n, parent, child)
        counts = ~cyclic[parent] & ~orphaned[parent] & (ml_job[parent] == ml_job[child])
        return cls(_levels(parent[counts], child[counts]), cyclic, orphaned)


def _in_cycles(n: int, parent: Ints, child: Ints) -> Bools:
    cyclic = np.zeros(n, dtype=np.bool_)
    if (parent >= child).any():  # who waits only for earlier rows does not wait for itself
        graph = coo_array((np.ones(len(parent)), (parent, child)), shape=(n, n)).tocsr()
        component = connected_components(graph, directed=True, connection="strong")[1]
        cyclic = np.bincount(component, minlength=n)[component] > 1
        cyclic[parent[parent == child]] = True
    return cyclic


def _levels(parent: Ints, child: Ints) -> tuple[tuple[Ints, Ints], ...]:
    """By the longest chain of jobs that depend on the child, from those on which nothing depends."""
    above, below = np.split(np.unique(np.append(parent, child), return_inverse=True)[1], 2)
    depth = np.zeros(2 * len(parent), dtype=np.int64)
    while True:
        deeper = depth.copy()
        np.maximum.at(deeper, above, depth[below] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    order = np.lexsort((child, depth[below]))
    starts = np.flatnonzero(np.diff(depth[below[order]], prepend=-1))
    return tuple((parent[edges], child[edges]) for edges in np.split(order, starts)[1:])

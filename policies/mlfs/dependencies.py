"""Dependencies between the jobs of an ML job, without cycles."""

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Ints


@dataclass(frozen=True)
class Dependencies:
    """The children in MLFS' equations 3 and 5: jobs of the same ML job that depend on a job.

    levels: pairs of rows (parents, children); the children of a level are parents in earlier levels only. cyclic (n,):
    the job depends on itself. orphaned (n,): it depends on a job that does not exist. Neither kind has children here.
    """

    levels: tuple[tuple[Ints, Ints], ...]
    cyclic: Bools
    orphaned: Bools

    @classmethod
    def of(cls, ml_job: Ints, parents: Ints) -> "Dependencies":
        """From each job's ML job (n,) and `parents` (edges, 2): a row and the row that it depends on, -1 if missing."""
        n = len(ml_job)
        if not len(parents):
            return cls((), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
        child, parent = np.divmod(np.unique(parents[:, 0] * (n + 1) + parents[:, 1] + 1), n + 1)  # each edge once
        orphaned = np.zeros(n, dtype=np.bool_)
        orphaned[child[parent == 0]] = True
        child, parent = child[parent > 0], parent[parent > 0] - 1
        cyclic = _in_cycles(n, parent, child)
        counts = ~cyclic[parent] & ~orphaned[parent] & (ml_job[parent] == ml_job[child])
        return cls(_levels(n, parent[counts], child[counts]), cyclic, orphaned)


def _in_cycles(n: int, parent: Ints, child: Ints) -> Bools:
    cyclic = np.zeros(n, dtype=np.bool_)
    if (parent >= child).any():  # jobs that depend on earlier rows only are not in a cycle
        from scipy.sparse import coo_array  # noqa: PLC0415  0.1 s that no report needs to wait for
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

        graph = coo_array((np.ones(len(parent)), (parent, child)), shape=(n, n)).tocsr()
        component = connected_components(graph, directed=True, connection="strong")[1]
        cyclic = np.bincount(component, minlength=n)[component] > 1
        cyclic[parent[parent == child]] = True
    return cyclic


def _levels(n: int, parent: Ints, child: Ints) -> tuple[tuple[Ints, Ints], ...]:
    """Kahn's topological order, level by level, from the jobs without dependants."""
    levels = []
    order = np.argsort(child, kind="stable")
    waits, unfinished = np.bincount(child, minlength=n), np.bincount(parent, minlength=n)
    starts = np.append(0, np.cumsum(waits))
    finished = np.flatnonzero((waits > 0) & (unfinished == 0))
    while len(finished):
        counts = starts[finished + 1] - starts[finished]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        edges = order[np.repeat(starts[finished], counts) + offsets]
        levels.append((parent[edges], child[edges]))
        np.subtract.at(unfinished, parent[edges], 1)
        touched = np.unique(parent[edges])
        finished = touched[unfinished[touched] == 0]
    return tuple(levels)

"""What a learnt policy would rather have than MLF-H, where MLF-H's schedule leaves a choice."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from policies.mlfs.priority import Ranking
from predictors.arrays import Floats, Ints

ByNode: TypeAlias = Callable[[int, Ints], Floats]
"""For a job and k nodes, by row, (k,) what is subtracted from the distance of each node to the job's ideal one."""


@dataclass(frozen=True, eq=False)
class Preferences:
    """Zeros are MLF-H's own choices.

    order (n,): added to the logarithm of each job's priority. size (n,): added to the logarithm of what a GPU is worth
    to each elastic job; width (n,): the same, of the GPUs beyond those that one node has. query (n, k), key (m, k): the
    tanh of their product is the preference of each job for each node, which is computed where it is needed alone: a
    site has more pairs than memory.
    """

    order: Floats
    size: Floats
    width: Floats
    query: Floats
    key: Floats

    def of_nodes(self, row: int, nodes: Ints) -> Floats:
        """(k,) of a job for these nodes (k,)."""
        return np.asarray(np.tanh(self.key[nodes] @ self.query[row]))


def preferred(ranking: Ranking, preferences: Preferences) -> Ranking:
    """The ranking in the order that is preferred; its term `learnt` is what that adds to the priority."""
    score = ranking.score * np.exp(preferences.order)
    return replace(ranking, score=score, terms={**ranking.terms, "learnt": score - ranking.score})

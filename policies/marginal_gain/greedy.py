"""SLAQ's Algorithm 1: every job has its minimum, then GPUs go one by one to the job that is worth most.

The paper keeps the jobs in a heap and pops one for each GPU. The units that are popped are those of the greatest keys,
where a unit's key is the least worth of it and of the units of its job before it: a job whose next unit is worth little
has to give that one away before a better one behind it can be reached. So one selection among sorted keys gives the
heap's allocation, to the unit and with its ties (the first of the jobs goes first), also where worth is not concave.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints

Worth: TypeAlias = Callable[[Ints, Ints], Floats]
"""Of jobs (r,) with so many GPUs already, (r, c): what one more is worth to each, (r, c)."""

_FIRST, _MORE = 16, 4
"""units of each job looked at first, and how many times as many where these do not suffice"""


def greedy_shares(least: Ints, most: Ints, units: int, worth: Worth) -> Ints:
    """(m,) GPUs of each job, from `least` to `most`, where `units` are there beyond all the minima."""
    count = np.asarray(least, dtype=np.int64).copy()
    rows = np.flatnonzero(most > least)
    budget = min(units, int((most - least)[rows].sum()))
    if budget <= 0:
        return count
    if budget == int((most - least)[rows].sum()):
        return np.maximum(count, most)
    at = np.zeros(len(rows), dtype=np.int64)
    carried = np.full(len(rows), np.inf)
    keys, owners = np.zeros(0), np.zeros(0, dtype=np.int64)
    width = _FIRST
    while True:
        offset = at[:, None] + np.arange(width)
        before = least[rows, None] + offset
        there = before < most[rows, None]
        value = np.where(there, worth(rows, np.minimum(before, most[rows, None] - 1)), -np.inf)
        value = np.minimum(np.minimum.accumulate(value, axis=1), carried[:, None])
        keys, owners = np.append(keys, value[there]), np.append(owners, np.repeat(rows, there.sum(axis=1)))
        given = _greatest(keys, owners, budget, len(least))
        end = at + width
        full = (given[rows] >= end) & (end < (most - least)[rows])
        if not full.any():
            return count + given
        rows, at, carried = rows[full], end[full], value[full, -1]
        width *= _MORE


def _greatest(keys: Floats, owners: Ints, budget: int, m: int) -> Ints:
    """(m,) how many of the `budget` greatest keys each job owns; of equal ones the first jobs' go first."""
    if budget >= len(keys):
        return np.bincount(owners, minlength=m)
    limit = np.partition(keys, len(keys) - budget)[len(keys) - budget]
    given = np.bincount(owners[keys > limit], minlength=m)
    ties = np.sort(owners[keys == limit])
    return np.asarray(given + np.bincount(ties[: budget - int(given.sum())], minlength=m))

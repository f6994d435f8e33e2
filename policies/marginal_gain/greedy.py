"""SLAQ's Algorithm 1: every job gets its minimum, then GPUs go one by one to the job with the greatest marginal gain.

The paper keeps the jobs in a heap and pops one for each GPU. The units popped are those of the greatest keys, where the
key of a unit is the smallest gain among it and the units of its job before it: a unit of little gain must be allocated
before a better one after it can be. So one selection among sorted keys gives the same allocation as the heap, to the
unit and including ties (the first job goes first), also where gains are not concave.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints

MarginalGain: TypeAlias = Callable[[Ints, Ints], Floats]
"""From rows (r,) of the jobs and their numbers of GPUs (r, c): the gain of one more GPU for each, (r, c).

NaN is an unknown gain: it comes after every known one.
"""

_FIRST_UNITS, _GROWTH = 16, 4
"""units of each job that are evaluated first, and the factor on them where they do not suffice"""


def greedy_shares(least: Ints, most: Ints, units: int, marginal_gain: MarginalGain) -> Ints:
    """(m,) GPUs of each job, from `least` to `most` (m,), with `units` GPUs available beyond all the minima.

    A job of unknown gain gets what no other job can use, so it takes nothing from them.
    """
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
    width = _FIRST_UNITS
    while True:
        offset = at[:, None] + np.arange(width)
        before = least[rows, None] + offset
        available = before < most[rows, None]
        gain = marginal_gain(rows, np.minimum(before, most[rows, None] - 1))
        value = np.where(available & ~np.isnan(gain), gain, -np.inf)
        value = np.minimum(np.minimum.accumulate(value, axis=1), carried[:, None])
        keys, owners = np.append(keys, value[available]), np.append(owners, np.repeat(rows, available.sum(axis=1)))
        given = _greatest(keys, owners, budget, len(least))
        end = at + width
        full = (given[rows] >= end) & (end < (most - least)[rows])
        if not full.any():
            return count + given
        rows, at, carried = rows[full], end[full], value[full, -1]
        width *= _GROWTH


def _greatest(keys: Floats, owners: Ints, budget: int, m: int) -> Ints:
    """(m,) the number of the `budget` greatest keys that each job owns; among equal keys the first job goes first."""
    if budget >= len(keys):
        return np.bincount(owners, minlength=m)
    limit = np.partition(keys, len(keys) - budget)[len(keys) - budget]
    given = np.bincount(owners[keys > limit], minlength=m)
    ties = np.sort(owners[keys == limit])
    return np.asarray(given + np.bincount(ties[: budget - int(given.sum())], minlength=m))

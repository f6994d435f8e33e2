"""Elastic jobs under MLF-H: more GPUs than they asked for where these are worth most, fewer where others need them.

Beyond the paper, whose jobs have one size. The priority is about a rate of finishing, so a GPU is worth the part by
which it raises that rate, times the priority; of that the square root, since whoever gives all to the job that is
nearest its end wastes what it trains ever less well on (Berg, Vesilo, Harchol-Balter: heSRPT, 2020, where the shares
depend on the order of the jobs alone).
"""

from dataclasses import dataclass

import numpy as np

from policies.marginal_gain.greedy import greedy_shares
from policies.marginal_gain.speeds import MEDIAN
from policies.placement.allocation import allocate, elastic, gang_gpus, held_gpus, leftover_gpus, queue_order
from policies.plan import Action
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan


@dataclass(frozen=True)
class GrowthSettings:
    """grow: whether elastic jobs are given other numbers of GPUs than they asked for. keep: by what factor a GPU is
    worth more to the job that has it."""

    grow: bool = False
    keep: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.keep < np.inf:
            raise ValueError(f"keep is at least 1, not {self.keep}")


def grow(
    snapshot: Snapshot, rank: Floats, remaining: Floats, speed: Fan, free: Bools, *, keep: float, spared: float
) -> tuple[Action, ...]:
    """The actions that give each job the GPUs that it ought to have.

    In order of priority those run that find room, elastic ones in their least; the GPUs of the elastic ones and what is
    left are then shared out by worth, at which some may lose all. What jobs that are not managed will hold is kept for
    them. rank (n,): the priorities. remaining (n,): predicted seconds left on the GPUs that each has or asked for.
    speed: iterations a second by GPUs; a job of which none is known has the GPUs that it asked for. free (n,): the
    running jobs that may be changed. keep: by what factor a GPU is worth more to who has it. spared: seconds that a
    running job must be spared to be given more.
    """
    jobs = snapshot.jobs
    shared = elastic(jobs) & speed.known & (free | jobs.pending)
    order = queue_order(jobs, -np.nan_to_num(rank))
    wanted = gang_gpus(snapshot, order, preempt=free, requested=np.where(shared, jobs.gpus_min, jobs.gpus))
    rows = np.flatnonzero(shared & (wanted > 0))
    if len(rows):
        wanted[rows] = 0
        worth = _Worth.of(snapshot, rows, rank[rows], speed, keep)
        wanted[rows] = worth.shared_out(leftover_gpus(snapshot, wanted), remaining[rows], spared)
    others = {jobs.keys[row] for row in np.flatnonzero(~jobs.managed).tolist()}
    return tuple(action for action in allocate(snapshot, order, wanted).actions if action.job not in others)


@dataclass(frozen=True)
class _Worth:
    """What GPUs are worth to r elastic jobs, which have `has` and train on `least` to `most` (r,).

    rates (r, g + 1): the speed on 0, 1, ... GPUs over that on those that each has or asked for. each (r, g): what the
    first, the second, ... GPU is worth.
    """

    has: Ints
    least: Ints
    most: Ints
    rates: Floats
    each: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, rows: Ints, rank: Floats, speed: Fan, keep: float) -> "_Worth":
        """Of these rows (r,), with this rank (r,)."""
        jobs, has = snapshot.jobs, held_gpus(snapshot)[rows]
        least, most = jobs.gpus_min[rows], jobs.gpus_max[rows]
        rates = _rates(speed, rows, max(int(most.max()), int(has.max())), np.where(has > 0, has, jobs.gpus[rows]))
        each = np.diff(rates, axis=1) * _weight(rank, rates[:, 1])[:, None]
        return cls(has, least, most, rates, np.where(np.arange(each.shape[1]) < has[:, None], each * keep, each))

    def shared_out(self, units: int, remaining: Floats, spared: float) -> Ints:
        """(r,) GPUs of each, of so many; remaining (r,): seconds left on those that each has."""
        count = _by_worth(self.each, self.least, self.most, units)
        row = np.arange(len(count))
        before, after = self.rates[row, self.has], self.rates[row, count]
        saved = remaining * (1.0 - np.divide(before, after, out=np.ones(len(row)), where=after > 0))
        little = (self.has > 0) & (count > self.has) & (saved < spared)
        if not little.any():
            return count
        return _by_worth(self.each, self.least, np.where(little, self.has, self.most), units)


def _by_worth(worth: Floats, least: Ints, most: Ints, units: int) -> Ints:
    """(r,) GPUs of each, by what each one is worth (r, g); none for who does not come to its least."""
    nothing = np.zeros(len(worth), dtype=np.int64)
    short = nothing > 0
    for _ in range(2):
        count = greedy_shares(nothing, np.where(short, 0, most), units, lambda rows, gpus: worth[rows[:, None], gpus])
        short = short | (count < least)
        if not (short & (count > 0)).any():
            break
    return np.where(short, 0, count)


def _weight(rank: Floats, one: Floats) -> Floats:
    """(r,) what the speed on one GPU is worth, of jobs that train so fast on one GPU as `one` (r,) says."""
    known = (rank > 0) & (one > 0)
    return np.where(known, np.sqrt(np.where(known, rank * one, 1.0)) / np.where(known, one, 1.0), 0.0)


def _rates(speed: Fan, rows: Ints, most: int, gpus: Ints) -> Floats:
    """(r, most + 1) the speed of these rows on 0, 1, ... GPUs over that on `gpus` (r,), on its concave hull.

    A second node costs speed that the third GPU on it brings back: whoever looked one GPU ahead would stop before it.
    """
    at = np.arange(most + 1, dtype=np.float64)
    table = np.zeros((len(rows), len(at)))
    places = speed.index[rows].tolist()
    hulls = {place: _hull(speed.x[place], speed.table[place, :, MEDIAN]) for place in set(places)}
    for i, place in enumerate(places):
        x, y = hulls[place]
        now = float(np.interp(gpus[i], x, y))
        if now > 0:
            table[i] = np.interp(at, x, y) / now
    return table


def _hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The upper concave hull of these points and the origin, as far as it rises."""
    kept = [(0.0, 0.0)]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (a - kept[-2][0]) <= (b - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((a, b))
    points = np.array(kept)
    return points[:, 0], np.maximum.accumulate(points[:, 1])

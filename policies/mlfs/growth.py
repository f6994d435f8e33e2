"""Elastic jobs under MLF-H: more GPUs than requested where they are worth most, fewer where other jobs need them.

Beyond the paper, whose jobs are rigid. The priority is roughly a completion rate, so a GPU is worth the relative
increase of that rate times the priority; of that the square root, since all GPUs on the job nearest its end would be
used ever less efficiently (Berg, Vesilo, Harchol-Balter: heSRPT, 2020, where the shares depend on the order of the jobs
alone).
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
    """grow: whether elastic jobs get other numbers of GPUs than they requested; then no job leaves a node because it
    reports an overloaded network. keep: factor on the worth of a GPU to
    the job that holds it."""

    grow: bool = False
    keep: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.keep < np.inf:
            raise ValueError(f"keep is at least 1, not {self.keep}")


def grow(
    snapshot: Snapshot,
    score: Floats,
    remaining: Floats,
    speed: Fan,
    changeable: Bools,
    *,
    keep: float,
    least_saving: float,
) -> tuple[Action, ...]:
    """The actions that resize elastic jobs by the worth of GPUs to them, and start and preempt jobs by priority.

    In order of priority the jobs that fit run, elastic ones at their minimum; the GPUs of the elastic ones and those
    left over are then divided by worth, where some may lose all. GPUs for jobs that are not managed stay reserved.

    Args:
        snapshot: the cluster.
        score: (n,) the priorities.
        remaining: (n,) predicted seconds left on the GPUs that each job holds or requested.
        speed: iterations a second by GPUs; a job of unknown speed gets the GPUs that it requested.
        changeable: (n,) the running jobs that may be resized or preempted.
        keep: factor on the worth of a GPU to the job that holds it.
        least_saving: seconds that more GPUs must save a running job for it to be resized.
    """
    jobs = snapshot.jobs
    resizable = elastic(jobs) & speed.known & (changeable | jobs.pending)
    order = queue_order(jobs, -np.nan_to_num(score))
    wanted = gang_gpus(snapshot, order, preempt=changeable, requested=np.where(resizable, jobs.gpus_min, jobs.gpus))
    rows = np.flatnonzero(resizable & (wanted > 0))
    if len(rows):
        wanted[rows] = 0
        worth = _Worth.of(snapshot, rows, score[rows], speed, keep)
        wanted[rows] = worth.divide(leftover_gpus(snapshot, wanted), remaining[rows], least_saving)
    others = {jobs.keys[row] for row in np.flatnonzero(~jobs.managed).tolist()}
    return tuple(action for action in allocate(snapshot, order, wanted).actions if action.job not in others)


@dataclass(frozen=True)
class _Worth:
    """The worth of GPUs to r elastic jobs, which hold `held` and can train on `least` to `most` (r,).

    rates (r, g + 1): the speed on 0, 1, ... GPUs relative to that on the GPUs each holds or requested. each (r, g): the
    worth of the first, the second, ... GPU.
    """

    held: Ints
    least: Ints
    most: Ints
    rates: Floats
    each: Floats

    @classmethod
    def of(cls, snapshot: Snapshot, rows: Ints, score: Floats, speed: Fan, keep: float) -> "_Worth":
        """The worth of GPUs to these rows (r,), with this rank (r,)."""
        jobs, held = snapshot.jobs, held_gpus(snapshot)[rows]
        least, most = jobs.gpus_min[rows], jobs.gpus_max[rows]
        rates = _rates(speed, rows, max(int(most.max()), int(held.max())), np.where(held > 0, held, jobs.gpus[rows]))
        each = np.diff(rates, axis=1) * _weight(score, rates[:, 1])[:, None]
        return cls(held, least, most, rates, np.where(np.arange(each.shape[1]) < held[:, None], each * keep, each))

    def divide(self, units: int, remaining: Floats, least_saving: float) -> Ints:
        """(r,) the share of each job in `units` GPUs; remaining (r,): seconds left on the GPUs that each holds."""
        count = _by_worth(self.each, self.least, self.most, units)
        row = np.arange(len(count))
        before, after = self.rates[row, self.held], self.rates[row, count]
        saved = remaining * (1.0 - np.divide(before, after, out=np.ones(len(row)), where=after > 0))
        not_worth_it = (self.held > 0) & (count > self.held) & (saved < least_saving)
        if not not_worth_it.any():
            return count
        return _by_worth(self.each, self.least, np.where(not_worth_it, self.held, self.most), units)


def _by_worth(worth: Floats, least: Ints, most: Ints, units: int) -> Ints:
    """(r,) the GPUs of each job, by the worth (r, g) of each GPU; 0 for a job that would not get its minimum."""
    nothing = np.zeros(len(worth), dtype=np.int64)
    short = nothing > 0
    for _ in range(2):
        count = greedy_shares(nothing, np.where(short, 0, most), units, lambda rows, gpus: worth[rows[:, None], gpus])
        short = short | (count < least)
        if not (short & (count > 0)).any():
            break
    return np.where(short, 0, count)


def _weight(score: Floats, one: Floats) -> Floats:
    """(r,) the weight of relative speed in the worth of a GPU; one (r,): the relative speed on one GPU."""
    known = (score > 0) & (one > 0)
    return np.where(known, np.sqrt(np.where(known, score * one, 1.0)) / np.where(known, one, 1.0), 0.0)


def _rates(speed: Fan, rows: Ints, most: int, gpus: Ints) -> Floats:
    """(r, most + 1) the speed of these rows on 0, 1, ... GPUs relative to that on `gpus` (r,), on its concave hull.

    The first GPU on a second node may reduce the speed and further ones raise it: a greedy search one GPU ahead without
    the hull would stop before it.
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
    """The upper concave hull of these points and the origin, without its falling part."""
    kept = [(0.0, 0.0)]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (a - kept[-2][0]) <= (b - kept[-2][1]) * (
            kept[-1][0] - kept[-2][0]
        ):
            kept.pop()
        kept.append((a, b))
    points = np.array(kept)
    return points[:, 0], np.maximum.accumulate(points[:, 1])

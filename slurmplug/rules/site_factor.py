"""From the scores of a plan to the fewest SiteFactors to write. Pure.

Managed jobs exchange places: the priorities that they have, SiteFactors included, are dealt out again by score. So the
multiset of priorities stays what it was: each job brings the place that Slurm gives it, and each place is used up by
one start, whoever's. No job without directives is passed by more managed jobs than without slurmplug. Some SiteFactors
are therefore negative, and none goes back to 0 by itself: the place that it was exchanged for may be used up.

slurmctld serves one update at a time, so SiteFactors in place are kept wherever order and places allow: order
maintenance, solved again in each cycle by a longest non-decreasing subsequence that leaves room for the values between.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.port import Command

MAX_SITE_FACTOR = 2_147_483_645
"""Slurm ignores a SiteFactor beyond it, or below it negated."""
LEAST_PRIORITY = 1.0
"""of a pending job: Slurm gives it no lower one."""
COMPETES = ("None", "Priority", "Resources", "")
"""The reasons of pending jobs that would start if there was room; the place of any other is worth nothing yet."""


def order(score: Floats, submitted: Floats, job_id: Ints) -> Ints:
    """The rows that have a score (n,), best first; of equal scores the earlier submitted, then the lower job id."""
    ranked = np.flatnonzero(~np.isnan(score))
    return ranked[np.lexsort((job_id[ranked], submitted[ranked], -score[ranked]))]


def commands(snapshot: Snapshot, score: Floats) -> list[Command]:
    """The updates after which the pending jobs that have a score (n,) are in its order, each in the place of one.

    Jobs of different partitions or QOS do not exchange places. A job whose SiteFactor is not known is left alone until
    it is, one that could not start anyway until it could, one that goes first in a move for good, and one with a nice
    value above 0 until its user takes that back: else its user could have a place twice. Of a job whose user changed
    what it requests, the surplus is taken off.
    """
    jobs, in_slurm = _without_surplus(snapshot.jobs), snapshot.jobs.site_factor
    new = np.full(len(jobs), np.nan)
    known = ~np.isnan(score) & ~np.isnan(jobs.site_factor)
    competing = jobs.pending & known & np.isin(jobs.reason, COMPETES) & (jobs.priority > 0)
    competing &= (np.abs(jobs.site_factor) < MAX_SITE_FACTOR) & (jobs.priority < MAX_SITE_FACTOR)
    competing &= jobs.nice <= 0
    others = jobs.pending & ~competing & (jobs.priority > 0)
    changed = others & known & (jobs.site_factor != in_slurm)
    new[changed] = jobs.site_factor[changed]
    ids = np.array([key.job_id for key in jobs.keys], dtype=np.int64)
    giver = np.arange(len(jobs))
    for alike, beside in groups(jobs, competing):
        best_first = order(np.where(alike, score, np.nan), jobs.submitted, ids)
        new[best_first], place = exchanged(jobs, ids, best_first, np.flatnonzero(others & beside))
        giver[best_first] = best_first[place]
    written = ~np.isnan(new) & (new != in_slurm)
    return [_update(snapshot, row, int(new[row])) for row in _in_turn(giver, jobs.priority) if written[row]]


def take_back(snapshot: Snapshot) -> list[Command]:
    """The updates that set to 0 the SiteFactors above it of jobs that were taken out of slurmplug's hands.

    One below 0 stays: another job has the place that it was exchanged for, or has used it up. That of a held job is
    taken back once it is released, one that is not known once it is; one that somebody else set is left alone.
    """
    jobs = snapshot.jobs
    ours = jobs.taken_out & ~jobs.factor_by_others & (np.nan_to_num(jobs.site_factor) > 0)
    rows = np.flatnonzero(ours & jobs.pending & ~jobs.held)
    return [_update(snapshot, row, 0) for row in rows.tolist()]


def _without_surplus(jobs: Jobs) -> Jobs:
    """The jobs, as if what a change of their request added to their priority was taken off their SiteFactor already."""
    if not jobs.surplus.any():
        return jobs
    off = np.where(jobs.site_factor > 0, np.minimum(jobs.surplus, jobs.site_factor), jobs.surplus)
    off = np.where(np.abs(jobs.site_factor) < MAX_SITE_FACTOR, off, 0.0)  # not of one that goes first, or not known
    return replace(jobs, priority=jobs.priority - off, site_factor=jobs.site_factor - off)


def _update(snapshot: Snapshot, row: int, site_factor: int) -> Command:
    job = snapshot.jobs.keys[row]
    return Command(f"{snapshot.cycle}-label-{job.job_id}", "update", job, {"SiteFactor": str(site_factor)})


def groups(jobs: Jobs, competing: Bools) -> Iterator[tuple[Bools, Bools]]:
    """The competing rows (n,) of each of the `exchange_groups`, and the rows (n,) that share a partition with it."""
    texts, of_row = np.unique(jobs.partition, return_inverse=True)
    sets = [frozenset(text.split(",")) for text in texts.tolist()]
    group = exchange_groups(jobs)
    for number in np.unique(group[competing]).tolist():
        alike = competing & (group == number)
        own = sets[of_row[np.flatnonzero(alike)[0]]]
        yield alike, np.array([bool(own & each) for each in sets], dtype=np.bool_)[of_row]


def exchange_groups(jobs: Jobs) -> Ints:
    """(n,) a number for each group that exchanges places: of the same partitions, as `a,b` or `b,a`, and QOS.

    What priority these give comes with their limits: it cannot be had for a job that they do not hold for.
    """
    texts, of_row = np.unique(jobs.partition, return_inverse=True)
    sets = [frozenset(text.split(",")) for text in texts.tolist()]
    numbers = {each: number for number, each in enumerate(sets)}
    same = np.array([numbers[each] for each in sets], dtype=np.int64)[of_row]
    _, qos = np.unique(jobs.qos, return_inverse=True)
    return same * (int(qos.max(initial=0)) + 1) + qos


def _in_turn(giver: Ints, priority: Floats) -> Iterator[int]:
    """The rows (n,), each before the one whose place it takes, `giver`, and a round begins with its highest priority.

    So of a round that is cut short by a limit on writes one place is lost, and one below it is held twice.
    """
    seen = np.zeros(len(giver), dtype=np.bool_)
    for first in np.argsort(-priority, kind="stable").tolist():
        row = first
        while not seen[row]:
            seen[row] = True
            yield row
            row = int(giver[row])


def exchanged(jobs: Jobs, ids: Ints, best_first: Ints, others: Ints) -> tuple[Floats, Ints]:
    """New SiteFactors (m,) of the rows `best_first` (m,), which exchange their places among the rows `others` (k,), and
    (m,) whose place each takes.

    The elements of an array have one priority: it takes the last of as many places.
    """
    in_place = jobs.priority[best_first]
    by_place = np.lexsort((ids[best_first], -in_place))
    reached = np.cumsum(jobs.elements[best_first])
    place = by_place[np.searchsorted(np.cumsum(jobs.elements[best_first][by_place]), reached)]
    fence = np.lexsort((ids[others], -jobs.priority[others]))
    values, fence_ids = jobs.priority[others][fence], ids[others][fence]
    ahead = _ahead(in_place[place], ids[best_first][place], values, fence_ids)
    fits = _ahead(in_place, ids[best_first], values, fence_ids) == ahead
    bounds = np.concatenate([[np.inf], values, [LEAST_PRIORITY - 1]])
    starts = np.flatnonzero(np.diff(ahead, prepend=-1))
    limits = bounds[ahead[starts] + 1], bounds[ahead[starts]]
    total = _totals(starts, limits, in_place[place], np.where(fits, in_place, np.nan), ids[best_first])
    total = np.minimum.accumulate(total)  # where no whole number lies between two others' jobs, one falls below both
    new = jobs.site_factor[best_first] + total - in_place
    return np.clip(new, -MAX_SITE_FACTOR, MAX_SITE_FACTOR), place


def _ahead(priority: Floats, ids: Ints, others: Floats, other_ids: Ints) -> Ints:
    """(m,) how many of the others (k,), highest first, Slurm tries before each: of equal ones the lower job id."""
    if not len(others):
        return np.zeros(len(priority), dtype=np.int64)
    keys = np.concatenate([-others, -priority]), np.concatenate([other_ids, ids])
    sequence = np.lexsort(keys[::-1])
    is_other = sequence < len(others)
    found = np.empty(len(priority), dtype=np.int64)
    found[sequence[~is_other] - len(others)] = np.cumsum(is_other)[~is_other]
    return found


def _totals(starts: Ints, limits: tuple[Floats, Floats], places: Floats, in_place: Floats, ids: Ints) -> Floats:
    """The priorities (m,) of jobs of which each block, from one of `starts` (b,) to the next, is between its two
    `limits`, (b,) each: those in place where all of a block can stay, else the places', else others between both.

    places, in_place (m,): falling priorities to be had, and those that the jobs have, NaN where not in their block.
    """
    low, high = limits
    count = np.diff(starts, append=len(places))
    block = np.repeat(np.arange(len(starts)), count)
    ends = starts + count - 1
    # No further beyond the places than equal ones are drawn apart: a job to come may have its own place there.
    near = in_place <= (places[starts] + count)[block]
    near &= in_place >= (places[ends] - count)[block]
    tried, falls = np.ones(len(places), dtype=np.bool_), np.ones(len(places), dtype=np.bool_)
    tried[1:] = (in_place[1:] < in_place[:-1]) | ((in_place[1:] == in_place[:-1]) & (ids[1:] > ids[:-1]))
    falls[1:] = places[1:] < places[:-1]
    tried[starts] = falls[starts] = True
    stays = np.logical_and.reduceat(near & tried, starts)
    fits = np.logical_and.reduceat(falls & (places == np.floor(places)), starts)
    fits &= (places[starts] < high) & (places[ends] > low) & (places[ends] >= LEAST_PRIORITY)
    fits &= 2 * np.add.reduceat(near.astype(np.int64), starts) <= count
    total = np.where(stays[block], in_place, places)
    for each in np.flatnonzero(~stays & ~fits).tolist():
        rows = slice(starts[each], ends[each] + 1)
        kept = np.where(near[rows], in_place[rows], np.nan)
        total[rows] = _between(low[each], high[each], places[rows], kept)
    return total


def _between(low: float, high: float, places: Floats, in_place: Floats) -> Floats:
    """Falling priorities (b,) above `low` and below `high`: those in place where it is possible, else the places'.

    Where fewer whole numbers lie between, the last jobs share the least of them, and where none does, all have the one
    below `high`.
    """
    count = len(places)
    least = max(low + 1, LEAST_PRIORITY)
    most = min(max(places[0], least + count - 1), high - 1)
    least = max(least, min(places[-1], most - count + 1))
    room = int(most - least) + 1
    if room < 1:
        return np.full(count, max(min(most, least), LEAST_PRIORITY))
    ordered = min(count, room)
    kept_most = most if high == np.inf else high - 1
    risen = _rising(
        in_place[:ordered][::-1], places[:ordered][::-1], (max(low + 1, LEAST_PRIORITY), kept_most), (least, most)
    )
    return np.concatenate([risen[::-1], np.full(count - ordered, risen[0])])


def _rising(in_place: Floats, wanted: Floats, allowed: tuple[float, float], new: tuple[float, float]) -> Floats:
    """Increasing whole numbers (n,) that keep as many as possible of those in place that are in the range `allowed`.

    Unless these are more than half, none is kept: a few could draw all others far from their places. The others are
    those wanted where they fit between their neighbours, else spread evenly, beyond the outermost kept ones within the
    range `new`.
    """
    n = len(in_place)
    position = np.arange(n)
    known = np.nan_to_num(in_place, nan=-np.inf)
    fits = (known == np.floor(known)) & (known - position >= allowed[0]) & (known + (n - 1 - position) <= allowed[1])
    kept = np.flatnonzero(fits)
    kept = kept[_longest_non_decreasing((known[kept] - kept).astype(np.int64))]
    kept = kept if 2 * len(kept) > n else kept[:0]
    anchors = known[kept]
    below = min(new[0], anchors[0] - kept[0]) if len(kept) else new[0]
    above = max(new[1], anchors[-1] + (n - 1 - kept[-1])) if len(kept) else new[1]
    ends = np.concatenate([[-1], kept, [n]])
    values = np.concatenate([[below - 1], anchors, [above + 1]])
    gap = np.searchsorted(kept, position, side="right")
    left, width = ends[gap], np.diff(ends)[gap]
    spread = values[gap] + np.floor(np.diff(values)[gap] * (position - left) / width)
    spread[kept] = anchors
    return np.where(_suits(wanted, gap, values, kept), wanted, spread)


def _suits(wanted: Floats, gap: Ints, values: Floats, kept: Ints) -> Bools:
    """(n,) whether the numbers wanted in a gap rise, and lie between the two kept ones around it (values, gaps + 1)."""
    rises = np.diff(wanted, prepend=-np.inf) > 0
    rises[np.flatnonzero(np.diff(gap, prepend=-1))] = True
    fine = rises & (wanted > values[gap]) & (wanted < values[gap + 1])
    fine[kept] = False
    whole = np.ones(len(values), dtype=np.bool_)
    others = np.setdiff1d(np.arange(len(wanted)), kept)
    np.logical_and.at(whole, gap[others], fine[others])
    suits = whole[gap]
    suits[kept] = False
    return np.asarray(suits)


def _longest_non_decreasing(values: Ints) -> Ints:
    """The indices of a longest non-decreasing subsequence (Fredman, Discrete Mathematics 11, 1975)."""
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values.tolist()):
        length = bisect_right(tails, value)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(value)
            ends.append(index)
        else:
            tails[length] = value
            ends[length] = index
    chosen = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(index)
        index = before[index]
    return np.array(chosen[::-1], dtype=np.int64)

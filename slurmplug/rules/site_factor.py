"""From the scores of a plan to the fewest SiteFactors to write. Pure.

slurmplug writes SiteFactors from 0 to `top`; a job with a higher one goes first. slurmctld serves one update at a time,
so SiteFactors in place are kept wherever the order allows: order maintenance, solved again in each cycle by a longest
non-decreasing subsequence that leaves room for the values between.
"""

from bisect import bisect_right

import numpy as np

from policies.snapshot import Snapshot
from predictors.arrays import Floats, Ints
from slurmplug.cluster.port import Command, Site
from slurmplug.config.schema import Priority
from slurmplug.errors import ConfigError

MAX_SITE_FACTOR = 2_147_483_645
"""Slurm ignores a SiteFactor beyond it."""
WEIGHTLESS_TOP = 2**30
"""The highest SiteFactor of a site whose weights are all 0, where it is the whole priority."""
MIN_SPACED_JOBS = 16
"""A shorter queue is spaced as if this many jobs waited, so that one more job does not change every distance."""


def spacing_and_top(site: Site, waiting: int, spacing: int | None, top: int | None) -> tuple[int, int]:
    """The distance between neighbours, and the highest SiteFactor; by the site's PriorityWeight* where not set.

    The highest is half of the sum of the weights, so that fairshare and age still count and an old job that is not
    managed (its SiteFactor is 0) is not starved. Pending jobs are spread over half of the range, so that their order
    counts beside fairshare however few they are; the other half is room for later jobs.

    Raises:
        ConfigError: spacing is not between 1 and top, or top is beyond what Slurm takes.
    """
    weights = sum(site.priority_weights.values())
    if top is None:
        top = min(max(weights // 2, 1), MAX_SITE_FACTOR) if weights else WEIGHTLESS_TOP
    if spacing is None:
        spacing = max(top // (2 * max(waiting, MIN_SPACED_JOBS)), 1)
    if not 1 <= spacing <= top <= MAX_SITE_FACTOR:
        raise ConfigError(
            f"priority.spacing {spacing} and priority.top {top}: set 1 <= spacing <= top <= {MAX_SITE_FACTOR}"
        )
    return spacing, top


def order(score: Floats, submitted: Floats, job_id: Ints) -> Ints:
    """The rows that have a score (n,), best first; of equal scores the earlier submitted, then the lower job id."""
    ranked = np.flatnonzero(~np.isnan(score))
    return ranked[np.lexsort((job_id[ranked], submitted[ranked], -score[ranked]))]


def assign(best_first: Ints, site_factors: Floats, spacing: int, top: int, raised: int | None = None) -> Ints:
    """New SiteFactors (m,) of the rows `best_first` (m,): decreasing, in [0, top], with the fewest changes.

    site_factors (n,): those in place, NaN where not known. Of more than top // spacing rows, or `raised` where that is
    fewer, only that many are ordered, and the others share the SiteFactor 0.
    """
    capacity = top // spacing if raised is None else min(top // spacing, raised)
    in_place = site_factors[best_first[:capacity]][::-1]
    least = 1 if len(best_first) > capacity else 0
    new = np.zeros(len(best_first), dtype=np.int64)
    new[:capacity] = _rising(in_place, least, spacing, top)[::-1]
    return new


def commands(
    snapshot: Snapshot, score: Floats, site: Site, settings: Priority, raised: int | None = None
) -> list[Command]:
    """The updates that bring the pending jobs that have a score (n,) into its order, best first.

    raised: how many get a SiteFactor above 0, each array element counted; None for as many as there is room for.

    Raises:
        ConfigError: as `spacing_and_top`.
    """
    jobs = snapshot.jobs
    ids = np.array([key.job_id for key in jobs.keys], dtype=np.int64)
    best_first = order(np.where(jobs.state == "pending", score, np.nan), jobs.submitted, ids)
    spacing, top = spacing_and_top(site, len(best_first), settings.spacing, settings.top)
    if raised is not None:
        raised = int(np.searchsorted(np.cumsum(jobs.elements[best_first]), raised, side="right"))
    site_factors = assign(best_first, jobs.site_factor, spacing, top, raised)
    new = site_factors != jobs.site_factor[best_first]
    return [
        _update(snapshot, row, site_factor)
        for row, site_factor in zip(best_first[new].tolist(), site_factors[new].tolist(), strict=True)
    ]


def take_back(snapshot: Snapshot) -> list[Command]:
    """The updates that set to 0 the SiteFactors of jobs that were taken out of slurmplug's hands.

    That of a held job is taken back once it is released; one that somebody else set is left alone.
    """
    jobs = snapshot.jobs
    ours = jobs.taken_out & ~jobs.factor_by_others & (jobs.site_factor != 0)
    rows = np.flatnonzero(ours & (jobs.state == "pending") & ~jobs.held)
    return [_update(snapshot, row, 0) for row in rows.tolist()]


def _update(snapshot: Snapshot, row: int, site_factor: int) -> Command:
    job = snapshot.jobs.keys[row]
    return Command(f"{snapshot.cycle}-label-{job.job_id}", "update", job, {"SiteFactor": str(site_factor)})


def _rising(in_place: Floats, least: int, spacing: int, top: int) -> Ints:
    """Increasing SiteFactors in [least, top] that keep as many as possible of those in place."""
    n = len(in_place)
    position = np.arange(n)
    known = np.nan_to_num(in_place, nan=-1.0)
    fits = (known == np.floor(known)) & (known - position >= least) & (known + (n - 1 - position) <= top)
    kept = np.flatnonzero(fits)
    room = known[kept].astype(np.int64) - kept
    # Read from the top, so that of two sets as large the one is kept that lies lower: most of the room is above.
    kept = kept[::-1][_longest_non_decreasing(-room[::-1])][::-1]
    anchors = known[kept].astype(np.int64)
    if not len(kept):
        return np.asarray(spacing * (position + 1), dtype=np.int64)

    # Outside the kept values the step is `spacing` while there is room; between two of them it is even.
    first, above = int(kept[0]), n - 1 - int(kept[-1])
    below_step = min(spacing * (first + 1), int(anchors[0]) - least + 1)
    above_step = min(spacing * (above + 1), top - int(anchors[-1]) + 1)
    ends = np.concatenate([[-1], kept, [n]])
    values = np.concatenate([[anchors[0] - below_step], anchors, [anchors[-1] + above_step]])
    gap = np.searchsorted(kept, position, side="right")
    left, width = ends[gap], np.diff(ends)[gap]
    return np.asarray(values[gap] + np.diff(values)[gap] * (position - left) // width, dtype=np.int64)


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

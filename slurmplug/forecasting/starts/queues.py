"""Queues that are simulated forward (`simulation`): who runs, who waits, and the limits on what runs at once."""

from __future__ import annotations

from dataclasses import dataclass

from predictors.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Running:
    """The k running jobs of q queues in s samples; times are seconds from now.

    demand: (q, k, r) of each of r resources, all 0 for padding. ends: (q, s, k). until: (q, k) the end by the time
    limit, by which backfill reckons. group: (q, k) its group, where there are `Sums`; one that counts in any of these
    is no padding.
    """

    demand: Floats
    ends: Floats
    until: Floats
    group: Ints | None = None


@dataclass(frozen=True, eq=False)
class Waiting:
    """The j waiting jobs of q queues in s samples, the first to be started first.

    demand: (q, j, r) of each resource, all 0 for padding. seconds: (q, s, j) run times. limit: (q, j) time limits in
    seconds. group: (q, j), as of `Running`.
    """

    demand: Floats
    seconds: Floats
    limit: Floats
    group: Ints | None = None


@dataclass(frozen=True, eq=False)
class Sums:
    """Limits that hold jobs back whatever is free, on b sums over running jobs. Jobs alike to them are a group.

    counts: (g, w) the sums in which a job of each group counts, -1 for padding, and amounts: (g, w) with how much.
    most: (g, b) what a sum may be at most before a job of the group starts, infinite where it does not matter.
    """

    counts: Ints
    amounts: Floats
    most: Floats

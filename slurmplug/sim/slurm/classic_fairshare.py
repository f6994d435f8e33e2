"""The fairshare of Slurm without Fair Tree (PriorityFlags=NO_FAIR_TREE, its page "Classic Fairshare Algorithm").

A user's factor is 2^(-(UE / S) / d): S the user's part of all shares, UE the effective part of all usage, which counts
what others in the account have used as well, and d FairShareDampeningFactor.
"""

from collections.abc import Sequence

import numpy as np

from predictors.arrays import Floats
from slurmplug.cluster.limits import Assoc
from slurmplug.sim.slurm.share_tree import Shares, ShareTree


class ClassicFairshare(ShareTree):
    """The factors of a site's users."""

    def __init__(self, shares: Shares, jobs: Sequence[Assoc], dampening: float) -> None:
        """shares, jobs: as `ShareTree`."""
        super().__init__(shares, jobs)
        self._dampening = dampening
        self._norm = np.ones(len(self._share))
        """(a,) of all shares"""
        for at in range(1, len(self._share)):
            level = self._level_shares[at]
            part = self._share[at] / level if self._own[at] and level else float(not self._own[at])
            self._norm[at] = self._norm[self._account[at]] * part

    def factors(self, used: Floats) -> Floats:
        """(users,) from 0 to 1. used: (users,) what each has used, in any unit."""
        effective = self._effective(self._usage(used))
        fair = np.where(self._own, np.arange(len(self._share)), self._account)[self._user_at]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            factors: Floats = 2.0 ** -(effective[fair] / self._norm[fair] / self._dampening)
        factors[self._norm[fair] <= 0] = 0.0
        return factors

    def _effective(self, usage: Floats) -> Floats:
        """(a,) the effective part of all usage. usage: (a,)."""
        part: Floats = usage / usage[0] if usage[0] > 0 else np.zeros(len(usage))
        found = part.copy()
        found[0] = 1.0  # as priority_multifactor.c sets it, also while nothing was used
        for at in range(1, len(part)):
            account = self._account[at]
            if not account:
                continue
            if not self._own[at]:
                found[at] = found[account]
            elif self._level_shares[at]:
                found[at] += (found[account] - part[at]) * self._share[at] / self._level_shares[at]
            else:
                found[at] = found[account]
        return found

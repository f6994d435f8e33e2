"""The fairshare that Slurm's Fair Tree gives to users (its page "Fair Tree Fairshare Algorithm").

The associations in an account are ranked by their part of the account's shares over their part of its usage, and all
users below one come before all below the next. A user's factor is its rank, from below, over the number of users. Ties
are ranked as priority/multifactor/fair_tree.c of Slurm 22.05 to 25.11 does: of two accounts that tie, the first user of
the second has the rank of the last user of the first.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from predictors.arrays import Floats
from slurmplug.cluster.limits import Assoc
from slurmplug.sim.slurm.share_tree import Shares, ShareTree


class FairTree(ShareTree):
    """The factors of a site's users by Fair Tree."""

    def __init__(self, shares: Shares, jobs: Sequence[Assoc]) -> None:
        """As `ShareTree`."""
        super().__init__(shares, jobs)
        self._members: list[list[int]] = [[] for _ in self._share]
        for at in range(1, len(self._share)):
            self._members[self._account[at]].append(at)

    def factors(self, used: Floats) -> Floats:
        """(users,) from 1 / users to 1. used: (users,) what each has used, in any unit."""
        level = self._level(used).tolist()
        factors = np.zeros(self.users)
        rank = left = self.users
        waiting = [(0, False)]
        while waiting:
            at, tied = waiting.pop()
            if (user := self._user_of.get(at)) is not None:
                rank = rank if tied else left
                factors[user] = rank / self.users
                left -= 1
                continue
            members = sorted(self._members[at], key=lambda member: (-level[member], member not in self._user_of))
            ties = [level[one] == level[other] for one, other in pairwise(members)]
            waiting += reversed(list(zip(members, [tied, *ties], strict=False)))
        return factors

    def _level(self, used: Floats) -> Floats:
        """S / U of each association within its account: infinite for who used nothing, 0 for who has no share."""
        usage = self._usage(used)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            level: Floats = (self._share / self._level_shares) / (usage / usage[self._account])
        level[usage == 0] = np.inf
        level[self._share == 0] = 0.0
        level[~self._own] = np.inf
        return level

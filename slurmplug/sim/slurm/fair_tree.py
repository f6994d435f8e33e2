"""The fairshare that Slurm's Fair Tree gives to users (its page "Fair Tree Fairshare Algorithm").

The associations in an account are ranked by their part of the account's shares over their part of its usage, and all
users below one come before all below the next. A user's factor is its rank, from below, over the number of users. Ties
are ranked as priority/multifactor/fair_tree.c of Slurm 22.05 to 25.11 does: of two accounts that tie, the first user of
the second has the rank of the last user of the first.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictors.arrays import Floats, Ints
from slurmplug.cluster.limits import Assoc

ROOT = "root"
OF_PARENT = math.inf
"""the shares of an association that has Fairshare=parent"""
_TOP = Assoc(ROOT, "", "")


@dataclass(frozen=True)
class Shares:
    """The shares of accounts and of users in them, each account after the one above it.

    `above`: the account above each account but root.
    """

    of: Mapping[Assoc, float]
    above: Mapping[str, str]


class FairTree:
    """The tree of a site's users, numbered from 0.

    A user with jobs who is not in it gets one share of the account, or of root where there is no such account.
    `number`: (jobs,) of each job's user.
    """

    def __init__(self, shares: Shares, jobs: Sequence[Assoc]) -> None:
        """jobs: account, user and partition of each."""
        of = {_TOP: 1.0, **shares.of}
        found = {job: _association(of, job) for job in dict.fromkeys(jobs)}
        for assoc in found.values():
            of.setdefault(assoc, 1.0)
        ranked = [assoc for assoc, share in of.items() if assoc.user or share != OF_PARENT or assoc == _TOP]
        place = {assoc: at for at, assoc in enumerate(ranked)}
        users = [at for at, assoc in enumerate(ranked) if assoc.user]
        numbers = {ranked[at]: number for number, at in enumerate(users)}
        self.number: Ints = np.array([numbers[found[job]] for job in jobs], dtype=np.int64)
        self._user_at = np.array(users, dtype=np.int64)
        self._user_of = {at: number for number, at in enumerate(users)}
        self._share = np.array([of[assoc] for assoc in ranked], dtype=np.float64)
        self._account = np.array([place[_account_above(assoc, place, shares.above)] for assoc in ranked])
        self._members: list[list[int]] = [[] for _ in ranked]
        for at in range(1, len(ranked)):
            self._members[self._account[at]].append(at)

    @property
    def users(self) -> int:
        """How many there are."""
        return len(self._user_at)

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
        usage, shares = np.zeros(len(self._share)), np.zeros(len(self._share))
        usage[self._user_at] = used
        for at in range(len(usage) - 1, 0, -1):
            usage[self._account[at]] += usage[at]
        own = np.isfinite(self._share)
        np.add.at(shares, self._account[own], self._share[own])
        shares[0] -= self._share[0]  # root is in no account
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            level: Floats = (self._share / shares[self._account]) / (usage / usage[self._account])
        level[usage == 0] = np.inf
        level[self._share == 0] = 0.0
        level[~own] = np.inf
        return level


def _association(of: Mapping[Assoc, float], job: Assoc) -> Assoc:
    """The association of such a job's user, which may be a new one."""
    account = job.account if Assoc(job.account, "", "") in of else ROOT
    in_partition = Assoc(account, job.user, job.partition)
    return in_partition if in_partition in of else Assoc(account, job.user, "")


def _account_above(assoc: Assoc, ranked: Mapping[Assoc, int], above: Mapping[str, str]) -> Assoc:
    """The account that it shares: the nearest above it that has shares of its own; root for root."""
    account = assoc.account if assoc.user else above.get(assoc.account, ROOT)
    while Assoc(account, "", "") not in ranked:
        account = above.get(account, ROOT)
    return Assoc(account, "", "")

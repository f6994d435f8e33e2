"""The tree of accounts and users by which Slurm divides shares, and who is whose user in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints
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


class ShareTree:
    """A site's users, numbered from 0, and their accounts.

    A user with jobs who is not in it gets one share of the account, or of root where there is no such account.
    `number`: (jobs,) of each job's user. Accounts with the shares of their parent are left out: those below share with
    those beside it. Shapes: a accounts and users, each behind the account in which it shares, root first.
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
        self._own: Bools = np.isfinite(self._share)
        self._level_shares = np.zeros(len(ranked))
        """(a,) of all in the same account; of root, those of nobody"""
        np.add.at(self._level_shares, self._account[1:][self._own[1:]], self._share[1:][self._own[1:]])
        self._level_shares = self._level_shares[self._account]

    @property
    def users(self) -> int:
        """How many there are."""
        return len(self._user_at)

    def _usage(self, used: Floats) -> Floats:
        """(a,) of all users below each. used: (users,) what each has used, in any unit."""
        usage = np.zeros(len(self._share))
        usage[self._user_at] = used
        for at in range(len(usage) - 1, 0, -1):
            usage[self._account[at]] += usage[at]
        return usage


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

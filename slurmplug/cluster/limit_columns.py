"""The limits of QOS and associations in columns: what each job counts in, and how much may be in use there with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limits import Limits, ResourceUse, Tally


@dataclass(frozen=True, eq=False)
class LimitColumns:
    """Of n jobs and k kinds (TRES, and the number of jobs).

    tallies: how many there are that have a limit; names: of each, what it is. tally: (n, w) the numbers of those that
    each job counts in, and `tallies` for padding. most: (n, w, k) how much all jobs of the tally may use with this one,
    infinite for any. alone: (n, k) how much the job may use.
    """

    tallies: int
    tally: Ints
    most: Floats
    alone: Floats
    names: tuple[Tally, ...] = ()

    def used(self, jobs: Ints, amounts: Floats) -> Floats:
        """(tallies + 1, k) what these jobs (m,), each with its amounts (m, k), use together."""
        found = np.zeros((self.tallies + 1, amounts.shape[1]))
        np.add.at(found, self.tally[jobs], amounts[:, None])
        return found

    def reached(self, jobs: Ints, amounts: Floats) -> "LimitColumns":
        """These limits without those that all of these jobs (m,) together, with amounts (m, k), do not reach."""
        most = np.where(self.used(jobs, amounts)[self.tally] > self.most, self.most, math.inf)
        return replace(self, most=most)

    def over(self, jobs: Ints, amounts: Floats, used: Floats) -> Bools:
        """(m,) whether each of these jobs (m,) would be above a limit with its amounts (m, k), if it alone started
        beside what is `used` (tallies + 1, k). What it does not use does not hold it back."""
        wants = amounts > 0
        above = used[self.tally[jobs]] + amounts[:, None] > self.most[jobs]
        return np.asarray((above & wants[:, None]).any(axis=(1, 2)) | (amounts > self.alone[jobs]).any(axis=1))


def limit_columns(limits: Limits, jobs: Sequence[ResourceUse], kinds: Sequence[str]) -> LimitColumns | None:
    """The limits of these jobs, whatever they use; None where they have none of these kinds."""
    place = {kind: at for at, kind in enumerate(kinds)}
    rules = [[rule for rule in limits.rules(job) if rule.kind in place] for job in jobs]
    if not any(rules):
        return None
    limited = dict.fromkeys(rule.tally for each in rules for rule in each if rule.tally)
    number: dict[Tally, int] = {tally: at for at, tally in enumerate(limited)}
    counted = [[number[tally] for tally in limits.tallies(job) if tally in number] for job in jobs]
    width = max(map(len, counted))
    padded = [each + [len(number)] * (width - len(each)) for each in counted]
    most = np.full((len(jobs), width, len(kinds)), math.inf)
    alone = np.full((len(jobs), len(kinds)), math.inf)
    for row, each in enumerate(rules):
        for rule in each:
            at = (row, counted[row].index(number[rule.tally])) if rule.tally else (row,)
            of = most if rule.tally else alone
            of[*at, place[rule.kind]] = min(of[*at, place[rule.kind]], rule.most)
    tallies = np.array(padded, dtype=np.int64).reshape(len(jobs), width)
    return LimitColumns(len(number), tallies, most, alone, tuple(number))

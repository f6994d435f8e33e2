"""The priorities of accounts and users (sacctmgr's Priority), of which PriorityWeightAssoc makes a part of a job's."""

from collections.abc import Iterable, Mapping

import numpy as np

from predictors.arrays import Floats
from slurmplug.cluster.limits import Assoc


def inherited(given: Mapping[Assoc, float], above: Mapping[str, str]) -> dict[Assoc, float]:
    """The priority of each account, and of each user who has one of their own; those without have that of the account
    above. given: of those that have one. above: the account above each account, which comes before it."""
    found: dict[Assoc, float] = {}
    for account, parent in above.items():
        one = Assoc(account, "", "")
        found[one] = given.get(one, found.get(Assoc(parent, "", ""), 0.0))
    return {**found, **given}


def factors(priorities: Mapping[Assoc, float], jobs: Iterable[Assoc]) -> Floats:
    """(n,) the priority of each job's association over the highest of any; 0 where it has none."""
    highest = max(priorities.values(), default=0.0)
    found = [_of(priorities, job) for job in jobs]
    return np.array(found, dtype=np.float64) / (highest or 1.0)


def _of(priorities: Mapping[Assoc, float], job: Assoc) -> float:
    for one in (job, job._replace(partition=""), Assoc(job.account, "", "")):
        if one in priorities:
            return priorities[one]
    return 0.0

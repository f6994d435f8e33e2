"""The limits of QOS, associations and partitions, and whether a job that changes its shape would exceed one. Pure.

Slurm accepts an update after which a limit keeps the job pending for good (`QOSMaxGRESPerUser`, `AssocGrpGRES`, ...).
So the limits are checked before: sacctmgr(1), GrpTRES, MaxTRES, MaxTRESPerUser, MaxTRESPerAccount, MaxWall;
resource_limits(5); slurm.conf(5), MaxTime. Slurm lets an operator's time limit pass MaxWall: nothing else keeps it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Tres = Mapping[str, float]
"""Amounts by the names of TRES: cpu, mem (MiB), node, gres/gpu."""
CHECKED_TRES = ("cpu", "mem", "node", "gres/gpu")


class ResourceUse(NamedTuple):
    """What one job uses, or would use, and whose limits apply to it."""

    user: str
    account: str
    qos: str
    partition: str
    tres: Tres


class Assoc(NamedTuple):
    """An account (without a user), or a user in it, in one partition only where that is set."""

    account: str
    user: str
    partition: str


@dataclass(frozen=True)
class QosLimits:
    """The limits of a QOS: on all of its jobs, on a job, on a user's jobs, on an account's jobs; on a job's time, in
    seconds.

    Those of a partition's QOS apply in addition to those of the job's own.
    """

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    user: Tres = field(default_factory=dict)
    account: Tres = field(default_factory=dict)
    wall: float = math.inf


@dataclass(frozen=True)
class AssocLimits:
    """The limits of an association, on all of its jobs, on a job, and on a job's time in seconds; `parent` is the
    parent account."""

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    wall: float = math.inf
    parent: str = ""


@dataclass(frozen=True)
class Limits:
    """All limits of a cluster. `partition_qos`: the QOS of each partition that has one; `partition_wall`: the most
    seconds of a job there."""

    qos: Mapping[str, QosLimits] = field(default_factory=dict)
    assocs: Mapping[Assoc, AssocLimits] = field(default_factory=dict)
    partition_qos: Mapping[str, str] = field(default_factory=dict)
    partition_wall: Mapping[str, float] = field(default_factory=dict)

    def longest(self, user: str, account: str, qos: str, partitions: str) -> float:
        """The most seconds that a job may have as its time limit, infinite for any.

        The least of all limits that may count, whichever Slurm ranks above the others. `partitions`: joined by commas.
        """
        names = partitions.split(",")
        job = [ResourceUse(user, account, qos, name, {}) for name in names]
        found = [self.partition_wall.get(name, math.inf) for name in names]
        of_partitions = (self.partition_qos.get(name, "") for name in names)
        found += [self.qos[name].wall for name in (qos, *of_partitions) if name in self.qos]
        found += [limits.wall for each in job for _, limits in self._assocs_of(each)]
        return min(found)

    def exceeded(self, job: ResourceUse, others: Sequence[ResourceUse]) -> str:
        """The first limit that the job would exceed while the others run, as `MaxTRES of QOS x: cpu=4`; else empty."""
        return next(self._exceeded(job, others), "")

    def _exceeded(self, job: ResourceUse, others: Sequence[ResourceUse]) -> Iterator[str]:
        for name in dict.fromkeys((self.partition_qos.get(job.partition, ""), job.qos)):
            if (limits := self.qos.get(name)) is not None:
                mine = [use for use in others if name in (use.qos, self.partition_qos.get(use.partition, ""))]
                same_user = [use for use in mine if use.user == job.user]
                same_account = [use for use in mine if use.account == job.account]
                yield from _exceeded_tres(f"MaxTRES of QOS {name}", limits.job, job, ())
                yield from _exceeded_tres(f"MaxTRESPU of QOS {name}", limits.user, job, same_user)
                yield from _exceeded_tres(f"MaxTRESPA of QOS {name}", limits.account, job, same_account)
                yield from _exceeded_tres(f"GrpTRES of QOS {name}", limits.group, job, mine)
        for assoc, assoc_limits in self._assocs_of(job):
            below = [use for use in others if assoc in [each for each, _ in self._assocs_of(use)]]
            name = f"{assoc.user} in {assoc.account}" if assoc.user else f"account {assoc.account}"
            yield from _exceeded_tres(f"MaxTRES of {name}", assoc_limits.job, job, ())
            yield from _exceeded_tres(f"GrpTRES of {name}", assoc_limits.group, job, below)

    def _assocs_of(self, job: ResourceUse) -> Iterator[tuple[Assoc, AssocLimits]]:
        """The job's associations and the accounts above them, from the lowest up."""
        own = (Assoc(job.account, job.user, job.partition), Assoc(job.account, job.user, ""))
        yield from ((each, self.assocs[each]) for each in own if each in self.assocs)
        account, seen = job.account, set()
        while account and account not in seen:
            seen.add(account)
            each = Assoc(account, "", "")
            if each not in self.assocs:
                return
            yield each, self.assocs[each]
            account = self.assocs[each].parent


def _exceeded_tres(name: str, limit: Tres, job: ResourceUse, others: Sequence[ResourceUse]) -> Iterator[str]:
    for kind, most in limit.items():
        if job.tres.get(kind, 0.0) + sum(use.tres.get(kind, 0.0) for use in others) > most:
            yield f"{name}: {kind}={most:g}"

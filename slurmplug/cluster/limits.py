"""The limits of QOS and associations, and whether a job that changes its shape would exceed one. Pure.

Slurm accepts an update after which a limit keeps the job pending for good (`QOSMaxGRESPerUser`, `AssocGrpGRES`, ...).
So the limits are checked before: sacctmgr(1), GrpTRES, MaxTRES, MaxTRESPerUser, MaxTRESPerAccount; resource_limits(5).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmplug.cluster import tres

Tres = Mapping[str, float]
"""Amounts by the names of TRES: cpu, mem (MiB), node, gres/gpu."""
CHECKED_TRES = ("cpu", "mem", "node", "gres/gpu")
QOS_FIELDS = "Name,GrpTRES,MaxTRES,MaxTRESPU,MaxTRESPA"
ASSOC_FIELDS = "Account,User,Partition,GrpTRES,MaxTRES,ParentName"
_FIELD = re.compile(r"(\w+)=(\S*)")


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
    """The limits of a QOS: on all of its jobs, on a job, on a user's jobs, on an account's jobs.

    Those of a partition's QOS apply in addition to those of the job's own.
    """

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    user: Tres = field(default_factory=dict)
    account: Tres = field(default_factory=dict)


@dataclass(frozen=True)
class AssocLimits:
    """The limits of an association, on all of its jobs and on a job; `parent` is the parent account."""

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    parent: str = ""


@dataclass(frozen=True)
class Limits:
    """All limits of a cluster. `partition_qos`: the QOS of each partition that has one."""

    qos: Mapping[str, QosLimits] = field(default_factory=dict)
    assocs: Mapping[Assoc, AssocLimits] = field(default_factory=dict)
    partition_qos: Mapping[str, str] = field(default_factory=dict)

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


def parse_limits(qos: str, assocs: str, partitions: str) -> Limits:
    """The limits in what sacctmgr and scontrol print.

    Args:
        qos: the output of `sacctmgr -nP show qos` with QOS_FIELDS.
        assocs: the output of `sacctmgr -nP show assoc` with ASSOC_FIELDS.
        partitions: the output of `scontrol -o show partition`.

    Raises:
        ValueError: a line has other fields.
    """
    return Limits(
        qos={
            name: QosLimits(_tres(group), _tres(job), _tres(user), _tres(account))
            for name, group, job, user, account in _rows(qos, 5)
        },
        assocs={
            Assoc(account, user, partition): AssocLimits(_tres(group), _tres(job), parent)
            for account, user, partition, group, job, parent in _rows(assocs, 6)
        },
        partition_qos={
            partition["PartitionName"]: partition["QoS"]
            for partition in (dict(reversed(_FIELD.findall(line))) for line in partitions.splitlines())
            if partition.get("QoS", "N/A") not in ("N/A", "") and "PartitionName" in partition
        },
    )


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != width:
            raise ValueError(f"{line[:80]!r} is not {width} fields")
        yield words


def _tres(text: str) -> Tres:
    """The amounts of CHECKED_TRES; a negative one is no limit."""
    found: dict[str, float] = {}
    for item in text.split(","):
        name, equals, amount = item.partition("=")
        if equals and name in CHECKED_TRES and not amount.startswith("-"):
            found[name] = tres.memory(item) if name == "mem" else float(amount)
    return found

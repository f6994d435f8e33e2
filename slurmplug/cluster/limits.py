"""What a QOS or an association may use in all, and whether a job of another shape would be held by it. Pure.

Slurm lets an update through that a limit then holds for good (`QOSMaxGRESPerUser`, `AssocGrpGRES`, ...), so that is
looked at before: sacctmgr(1), GrpTRES, MaxTRES, MaxTRESPerUser, MaxTRESPerAccount; resource_limits(5).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmplug.cluster import tres

Tres = Mapping[str, float]
"""Amounts by the names of TRES: cpu, mem (MiB), node, gres/gpu."""
TRACKED = ("cpu", "mem", "node", "gres/gpu")
QOS_FIELDS = "Name,GrpTRES,MaxTRES,MaxTRESPU,MaxTRESPA"
ASSOC_FIELDS = "Account,User,Partition,GrpTRES,MaxTRES,ParentName"
_TOKEN = re.compile(r"(\w+)=(\S*)")


class Use(NamedTuple):
    """One job that holds something, or is to."""

    user: str
    account: str
    qos: str
    partition: str
    tres: Tres


class Assoc(NamedTuple):
    """An account (no user), or a user in it, perhaps in one partition only."""

    account: str
    user: str
    partition: str


@dataclass(frozen=True)
class OfQos:
    """The limits of a QOS: in all, of a job, of a user, of an account. A partition's count beside the job's own."""

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    user: Tres = field(default_factory=dict)
    account: Tres = field(default_factory=dict)


@dataclass(frozen=True)
class OfAssoc:
    """The limits of an association, in all and of a job; `parent` is the account above."""

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    parent: str = ""


@dataclass(frozen=True)
class Limits:
    """All of a cluster's. `partition_qos`: the QOS that a partition brings."""

    qos: Mapping[str, OfQos] = field(default_factory=dict)
    assocs: Mapping[Assoc, OfAssoc] = field(default_factory=dict)
    partition_qos: Mapping[str, str] = field(default_factory=dict)

    def exceeded(self, job: Use, others: Sequence[Use]) -> str:
        """The first limit that this job would exceed beside these others that run; empty where none."""
        return next(self._exceeded(job, others), "")

    def _exceeded(self, job: Use, others: Sequence[Use]) -> Iterator[str]:
        for name in dict.fromkeys((self.partition_qos.get(job.partition, ""), job.qos)):
            if (limits := self.qos.get(name)) is not None:
                mine = [use for use in others if name in (use.qos, self.partition_qos.get(use.partition, ""))]
                yield from _over(f"MaxTRES of QOS {name}", limits.job, job, ())
                yield from _over(f"MaxTRESPU of QOS {name}", limits.user, job, [u for u in mine if u.user == job.user])
                yield from _over(
                    f"MaxTRESPA of QOS {name}", limits.account, job, [u for u in mine if u.account == job.account]
                )
                yield from _over(f"GrpTRES of QOS {name}", limits.group, job, mine)
        for assoc, limits_of in self._above(job):
            below = [use for use in others if assoc in [each for each, _ in self._above(use)]]
            name = f"{assoc.user} in {assoc.account}" if assoc.user else f"account {assoc.account}"
            yield from _over(f"MaxTRES of {name}", limits_of.job, job, ())
            yield from _over(f"GrpTRES of {name}", limits_of.group, job, below)

    def _above(self, job: Use) -> Iterator[tuple[Assoc, OfAssoc]]:
        """The job's association and the accounts above it."""
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


def _over(name: str, limit: Tres, job: Use, others: Sequence[Use]) -> Iterator[str]:
    for kind, most in limit.items():
        if job.tres.get(kind, 0.0) + sum(use.tres.get(kind, 0.0) for use in others) > most:
            yield f"{name}: {kind}={most:g}"


def of_sacctmgr(qos: str, assocs: str, partitions: str) -> Limits:
    """Of `sacctmgr -nP show qos` and `show assoc` with the fields above, and `scontrol -o show partition`.

    Raises ValueError where an answer has other fields.
    """
    return Limits(
        qos={
            name: OfQos(_tres(group), _tres(job), _tres(user), _tres(account))
            for name, group, job, user, account in _rows(qos, 5)
        },
        assocs={
            Assoc(account, user, partition): OfAssoc(_tres(group), _tres(job), parent)
            for account, user, partition, group, job, parent in _rows(assocs, 6)
        },
        partition_qos={
            told["PartitionName"]: told["QoS"]
            for told in (dict(reversed(_TOKEN.findall(line))) for line in partitions.splitlines())
            if told.get("QoS", "N/A") not in ("N/A", "") and "PartitionName" in told
        },
    )


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != width:
            raise ValueError(f"{line[:80]!r} is not {width} fields")
        yield words


def _tres(text: str) -> Tres:
    """The tracked ones; a negative number is no limit."""
    found: dict[str, float] = {}
    for item in text.split(","):
        name, equals, amount = item.partition("=")
        if equals and name in TRACKED and not amount.startswith("-"):
            found[name] = tres.memory(item) if name == "mem" else float(amount)
    return found

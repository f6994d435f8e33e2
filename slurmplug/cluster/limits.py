"""The limits of QOS, associations and partitions, and whether a job that changes its shape would exceed one. Pure.

Slurm accepts an update after which a limit keeps the job pending for good (`QOSMaxGRESPerUser`, `AssocGrpGRES`, ...).
So the limits are checked before: sacctmgr(1), GrpTRES, GrpJobs, MaxTRES, MaxTRESPerUser, MaxTRESPerAccount, MaxJobs,
MaxJobsPerUser, MaxJobsPerAccount, MaxWall; resource_limits(5); slurm.conf(5), MaxTime. Slurm lets an operator's time
limit pass MaxWall: nothing else keeps it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Tres = Mapping[str, float]
"""Amounts by the names of TRES: cpu, mem (MiB), node, gres/gpu, gres/gpu:TYPE; and JOBS."""
CHECKED_TRES = ("cpu", "mem", "node", "gres/gpu")
"""The TRES that are checked; so are types of GPUs (gres/gpu:TYPE)."""
DEFAULT_QOS = "normal"
"""The QOS that slurmdbd gives to jobs whose association has no other."""
JOBS = "jobs"
"""how many jobs run, beside the names of TRES"""
Tally = tuple[str, ...]
"""What the jobs have in common whose use is added up: what it is, and its names; empty for a job alone."""


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

    Those of a partition's QOS apply in addition to those of the job's own, and before them but where the job's QOS is
    `over_partition` (OverPartQOS): the first that has a limit of a kind decides.
    """

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    user: Tres = field(default_factory=dict)
    account: Tres = field(default_factory=dict)
    wall: float = math.inf
    over_partition: bool = False


@dataclass(frozen=True)
class AssocLimits:
    """The limits of an association, on all of its jobs, on a job, and on a job's time in seconds; `parent` is the
    parent account.

    `jobs`: the most that run at once of a user's association. Like those on a job it is passed down: users have that
    of their account, where they have none of their own. `default_qos`: of jobs that name none.
    """

    group: Tres = field(default_factory=dict)
    job: Tres = field(default_factory=dict)
    wall: float = math.inf
    parent: str = ""
    jobs: float = math.inf
    default_qos: str = ""


class Rule(NamedTuple):
    """A limit that applies to a job: the jobs of a tally, this one included, have at most so many of a kind."""

    name: str
    tally: Tally
    kind: str
    most: float


@dataclass(frozen=True)
class Limits:
    """All limits of a cluster. `partition_qos`: the QOS of each partition that has one; `partition_wall`: the most
    seconds of a job there; `default_account`: of each user's jobs that name none; `whole_nodes`: the partitions whose
    jobs share no node (OverSubscribe=EXCLUSIVE)."""

    qos: Mapping[str, QosLimits] = field(default_factory=dict)
    assocs: Mapping[Assoc, AssocLimits] = field(default_factory=dict)
    partition_qos: Mapping[str, str] = field(default_factory=dict)
    partition_wall: Mapping[str, float] = field(default_factory=dict)
    default_account: Mapping[str, str] = field(default_factory=dict)
    whole_nodes: frozenset[str] = frozenset()

    def of_new_job(self, user: str, account: str, qos: str, partition: str) -> ResourceUse:
        """Whose a job would be, and in what, of which its user names these; what it uses is left out."""
        account = account or self.default_account.get(user, "")
        whose = ResourceUse(user, account, qos, partition, {})
        own = next((limits.default_qos for _, limits in self._assocs_of(whose)), "")
        return whose._replace(qos=qos or own or DEFAULT_QOS)

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
        """The first limit that the job would exceed while the others run, as `MaxTRES of QOS x: cpu=4`; else empty.

        Of all that may count, as `longest`.
        """
        used: dict[tuple[Tally, str], float] = {}
        for use in others:
            for tally in self.tallies(use):
                for kind, amount in use.tres.items():
                    used[tally, kind] = used.get((tally, kind), 0.0) + amount
        for _, _, rule in self._rules(job):
            if job.tres.get(rule.kind, 0.0) + used.get((rule.tally, rule.kind), 0.0) > rule.most:
                return f"{rule.name}: {rule.kind}={rule.most:g}"
        return ""

    def tallies(self, job: ResourceUse) -> Iterator[Tally]:
        """The tallies (sums over a QOS or an association) that a job counts in while it runs, limited or not."""
        for name in self._qos_of(job):
            yield ("qos", name)
            yield ("user of a qos", name, job.user)
            yield ("account of a qos", name, job.account)
        yield from (("association", *each) for each, _ in self._assocs_of(job))

    def rules(self, job: ResourceUse) -> list[Rule]:
        """The limits that apply to a job, as slurmctld looks at them (acct_policy.c): one of a QOS hides that of the
        next QOS, and of associations."""
        found: list[Rule] = []
        seen: dict[tuple[str, str], str] = {}
        """by what is limited: the first who limits it"""
        for by, of, rule in self._rules(job):
            hiding = ("account", "user") if (of, rule.kind) == ("jobs of a user", JOBS) else (of,)
            if all(seen.get((each, rule.kind), by) == by for each in hiding):
                seen[of, rule.kind] = by
                found.append(rule)
        return found

    def _rules(self, job: ResourceUse) -> Iterator[tuple[str, str, Rule]]:
        """All limits of a job's QOS and associations: whose it is, what it limits, and the limit itself."""
        for name in self._qos_of(job):
            limits = self.qos[name]
            found: tuple[tuple[str, str, Tally, Tres], ...] = (
                ("job", "MaxTRES", (), limits.job),
                ("user", "MaxTRESPU", ("user of a qos", name, job.user), limits.user),
                ("account", "MaxTRESPA", ("account of a qos", name, job.account), limits.account),
                ("group", "GrpTRES", ("qos", name), limits.group),
            )
            for of, named, tally, amounts in found:
                for kind, most in amounts.items():
                    yield f"QOS {name}", of, Rule(f"{named} of QOS {name}", tally, kind, most)
        for place, (assoc, assoc_limits) in enumerate(self._assocs_of(job)):
            name = f"{assoc.user} in {assoc.account}" if assoc.user else f"account {assoc.account}"
            tally = ("association", *assoc)
            for kind, most in assoc_limits.job.items() if not place else ():
                yield "associations", "job", Rule(f"MaxTRES of {name}", (), kind, most)
            if assoc.user and assoc_limits.jobs < math.inf:
                yield "associations", "jobs of a user", Rule(f"MaxJobs of {name}", tally, JOBS, assoc_limits.jobs)
            for kind, most in assoc_limits.group.items():
                yield "associations", "group", Rule(f"GrpTRES of {name}", tally, kind, most)

    def _qos_of(self, job: ResourceUse) -> list[str]:
        """The names of the job's QOS of which there are limits, the first to be looked at first."""
        names = [self.partition_qos.get(job.partition, ""), job.qos]
        if job.qos in self.qos and self.qos[job.qos].over_partition:
            names.reverse()
        return [name for name in dict.fromkeys(names) if name in self.qos]

    def _assocs_of(self, job: ResourceUse) -> Iterator[tuple[Assoc, AssocLimits]]:
        """The job's association and the accounts above it, from the lowest up."""
        own = (Assoc(job.account, job.user, job.partition), Assoc(job.account, job.user, ""))
        yield from ((each, self.assocs[each]) for each in [each for each in own if each in self.assocs][:1])
        account, seen = job.account, set()
        while account and account not in seen:
            seen.add(account)
            each = Assoc(account, "", "")
            if each not in self.assocs:
                return
            yield each, self.assocs[each]
            account = self.assocs[each].parent

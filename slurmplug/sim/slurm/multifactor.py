"""The priority that Slurm's priority/multifactor gives to pending jobs (its manual page "Multifactor Priority").

`Usage.fairshare` is the classic one, 2^(-U/S), of users with equal shares; `fair_tree` and `classic_fairshare` have
those by the shares of accounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from predictors.arrays import Floats, Ints, Texts

DAY = 86_400.0


@dataclass(frozen=True)
class Weights:
    """PriorityWeight*, PriorityMaxAge and PriorityDecayHalfLife; by default the example of the manual page.

    `qos_priority` and `partition_priority`: by name, 0 where there is none; each factor is the share of the highest.
    `assoc`: PriorityWeightAssoc.
    `favor_small`: PriorityFavorSmall. `relative_to_time`: PriorityFlags=SMALL_RELATIVE_TO_TIME. `tres`: what a GPU, a
    CPU, a MiB and a node of a job add in a partition, by its name: PriorityWeightTRES over all that the partition has.
    """

    age: float = 1_000.0
    fairshare: float = 10_000.0
    job_size: float = 1_000.0
    qos: float = 0.0
    partition: float = 1_000.0
    assoc: float = 0.0
    max_age: float = 14 * DAY
    half_life: float = 14 * DAY
    qos_priority: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    partition_priority: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    favor_small: bool = False
    relative_to_time: bool = False
    tres: Mapping[str, tuple[float, float, float, float]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> float:
        """The greatest sum of the factors."""
        return self.age + self.fairshare + self.job_size + self.qos + self.partition + self.assoc


@dataclass(frozen=True)
class Billing:
    """What jobs are charged each second, by which usage is counted: TRESBillingWeights and UsageFactor.

    `partitions`: by name, the weights of a GPU, a CPU and a MiB. `other`: those of all others; by default, GPUs count.
    `qos`: by name, the factor, 1 where there is none.
    """

    partitions: Mapping[str, tuple[float, float, float]] = field(default_factory=lambda: MappingProxyType({}))
    other: tuple[float, float, float] = (1.0, 0.0, 0.0)
    qos: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def weights(self, partition: Texts, qos: Texts) -> Floats:
        """(n, 3) of jobs in these partitions (n,) with these QOS (n,)."""
        names, rows = np.unique(partition, return_inverse=True)
        weights: Floats = np.array([self.partitions.get(str(name), self.other) for name in names]).reshape(-1, 3)[rows]
        names, rows = np.unique(qos, return_inverse=True)
        weights *= np.array([self.qos.get(str(name), 1.0) for name in names]).reshape(-1, 1)[rows]
        return weights


@dataclass(frozen=True, eq=False)
class Usage:
    """The use of each user until `at`, (users,) units of billing x seconds that halve every half-life; of nobody by
    default."""

    at: float = 0.0
    used: Floats = field(default_factory=lambda: np.zeros(0))

    def after(self, now: float, holding: Floats, half_life: float) -> "Usage":
        """The usage at `now`, if the users have held so much (users,) since `at`."""
        passed = now - self.at
        if passed <= 0:
            return self
        left = 0.5 ** (passed / half_life) if half_life > 0 else 1.0
        # What is held at a constant rate decays as it is gathered: the integral of 2^(-t / half-life).
        gathered = (1 - left) * half_life / np.log(2) if half_life > 0 else passed
        used = holding * float(gathered)
        used[: len(self.used)] += self.used * left
        return Usage(now, used)

    def fairshare(self, users: Ints, dampening: float = 1.0) -> Floats:
        """2^(-U/S/dampening) of the users of these numbers (n,), S one share of all users that have used anything or
        wait."""
        total = float(self.used.sum())
        if total <= 0 or not len(users):
            return np.ones(len(users))
        there = np.zeros(max(len(self.used), int(users.max()) + 1), dtype=bool)
        there[users] = True
        there[: len(self.used)] |= self.used > 0
        used = np.zeros(len(there))
        used[: len(self.used)] = self.used
        return np.asarray(2.0 ** (-used[users] / total * int(there.sum()) / dampening))


def priority(
    weights: Weights,
    *,
    waited: Floats,
    fairshare: Floats,
    size: Floats,
    qos: Texts,
    partition: Texts,
    nice: Floats,
    site_factor: Floats,
    requested: Floats | None = None,
    assoc: Floats | None = None,
) -> Ints:
    """Priorities (n,), 1 at least. waited: seconds since eligible; size: of `size_factor`; requested: (n, 4) GPUs,
    CPUs, MiB and nodes, None where `weights.tres` is empty; assoc: (n,) from 0 to 1, None where none has a priority."""
    factors = (
        weights.age * np.clip(waited / weights.max_age, 0, 1)
        + weights.fairshare * fairshare
        + weights.job_size * size
        + (weights.qos * _relative(weights.qos_priority, qos) if weights.qos else 0.0)
        + (weights.partition * _relative(weights.partition_priority, partition) if weights.partition else 0.0)
        + (weights.assoc * assoc if assoc is not None else 0.0)
        + (_of_tres(weights.tres, partition, requested) if weights.tres and requested is not None else 0.0)
    )
    return np.maximum(np.floor(factors + site_factor - nice), 1).astype(np.int64)


def size_factor(weights: Weights, of_nodes: Floats, of_cpus: Floats, limit: Floats) -> Floats:
    """The factor of PriorityWeightJobSize (n,): how large jobs are, or how small.

    of_nodes, of_cpus: (n,) the requested shares of all nodes and CPUs. limit: (n,) time limits in seconds.
    """
    if weights.relative_to_time:
        size = np.maximum(of_nodes, of_cpus) / np.maximum(limit / 60.0, 1.0)
    else:
        size = (of_nodes + of_cpus) / 2
    return np.clip(1.0 - size if weights.favor_small else size, 0.0, 1.0)


def _of_tres(weights: Mapping[str, tuple[float, float, float, float]], partition: Texts, requested: Floats) -> Floats:
    names, rows = np.unique(partition, return_inverse=True)
    nothing = (0.0,) * requested.shape[1]
    of_partition = np.array([weights.get(str(name), nothing) for name in names]).reshape(-1, requested.shape[1])
    return np.asarray((of_partition[rows] * requested).sum(axis=1), dtype=np.float64)


def _relative(priorities: Mapping[str, float], names: Texts) -> Floats:
    highest = max(priorities.values(), default=0.0)
    if highest <= 0 or not len(names):
        return np.zeros(len(names))
    distinct, rows = np.unique(names, return_inverse=True)
    shares = np.array([priorities.get(str(name), 0.0) / highest for name in distinct])
    return np.asarray(shares[rows], dtype=np.float64)

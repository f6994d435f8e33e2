"""What ought to be: a rank for every job, sparse actions, and a reason for each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from policies.snapshot import JobKey
from predictors.arrays import Floats

ActionKind: TypeAlias = Literal["hold", "release", "place", "resize", "migrate", "preempt", "stop"]
Memory: TypeAlias = Mapping[str, NDArray[Any]]
"""What a policy must remember between cycles; it comes back at its next decide()."""

NOTHING_REMEMBERED: Memory = MappingProxyType({})


@dataclass(frozen=True)
class Reason:
    """A rule and the figures it went by; `slurmplug.reports.explain` makes the sentence."""

    rule: str
    facts: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """What is to happen to one job.

    `place` starts a pending job on `nodes`, `migrate` moves a running one there (anywhere else where none are named),
    `resize` gives it `gpus`. `shares`: the GPUs on each of the nodes; empty for as even as may be.
    """

    kind: ActionKind
    job: JobKey
    reason: Reason
    gpus: int | None = None
    nodes: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    begin: float | None = None


@dataclass(frozen=True)
class Plan:
    """A policy's decision.

    `rank` (n,): higher goes first, NaN leaves the job to Slurm. `terms`: the parts of the rank, each (n,), which
    `slurmplug prio` shows as columns. `notes`: what is wrong with a job, for `slurmplug why`.
    """

    rank: Floats
    terms: Mapping[str, Floats] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    memory: Memory = field(default_factory=lambda: NOTHING_REMEMBERED)
    notes: Mapping[JobKey, Reason] = field(default_factory=dict)

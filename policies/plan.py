"""A policy's decision: a score for every job, actions for some, and a reason for each action."""

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import JobKey
from predictors.arrays import Floats

ActionKind: TypeAlias = Literal["hold", "release", "place", "resize", "migrate", "preempt", "stop"]
Memory: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays that a policy keeps between cycles; they are passed to its next `decide`."""

NOTHING_REMEMBERED: Memory = MappingProxyType({})


@dataclass(frozen=True)
class OtherJob:
    """A fact about another job than the one that a reason is for, such as the job that it makes room for.

    Another job is always named by such a value, never by a number or in a text: who may not see that job is told
    neither its number nor its score.
    """

    job: JobKey
    score: float


Fact: TypeAlias = float | str | OtherJob


@dataclass(frozen=True)
class Reason:
    """The rule that led to a decision and the facts it used; `slurmplug.reports.explain` turns it into a sentence."""

    rule: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """One action on one job.

    `place` starts a pending job on `nodes`, `migrate` moves a running one there (to any other nodes if none are named),
    `resize` gives it `gpus`. shares: the GPUs on each of the nodes; empty for as even as possible. begin: when a
    `release` lets the job start, in seconds since the epoch. time_limit: the one in seconds that a `resize` requires;
    None for the job's own. servers: the parameter servers on each of the nodes; empty for a job that has none, and for
    as many as GPUs there. Simulations alone carry them out.
    """

    kind: ActionKind
    job: JobKey
    reason: Reason
    gpus: int | None = None
    nodes: tuple[str, ...] = ()
    shares: tuple[int, ...] = ()
    begin: float | None = None
    time_limit: float | None = None
    servers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A policy's decision.

    score (n,): higher goes first, NaN leaves the job to Slurm. terms: the parts of the score, each (n,), which
    `slurmplug prio` shows as columns. memory: passed to the next decision. notes: problems of single jobs, for
    `slurmplug why`. `Plan(rank=...)` is the deprecated name of the score.
    """

    score: Floats = field(default_factory=lambda: np.zeros(0))
    terms: Mapping[str, Floats] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    memory: Memory = field(default_factory=lambda: NOTHING_REMEMBERED)
    notes: Mapping[JobKey, Reason] = field(default_factory=dict)
    rank: InitVar[Floats | None] = None

    def __post_init__(self, rank: Floats | None) -> None:
        """Accept the deprecated name."""
        if rank is not None:
            warnings.warn("Plan(rank=...) is now Plan(score=...)", DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "score", rank)

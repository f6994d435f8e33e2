"""What may be: the rules that bound every plan, whichever policy made it.

Pure. A guardrail is a small class with the name by which `slurmplug why` tells of it. Some protect jobs, some bound
how much is done; what they veto is kept with its rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar, Protocol

import numpy as np

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.cluster.port import Command
from slurmplug.config import Guardrails, Mode, Modes

HOUR = 3600.0


@dataclass(frozen=True)
class Past:
    """What the guardrails must know of the cycles before: computed from the ledger."""

    now: float
    paused: bool = False
    stops_last_hour: int = 0
    stopping: frozenset[JobKey] = frozenset()
    """whose stop is under way"""
    gave_up: frozenset[JobKey] = frozenset()
    """whose stop was given up within the last hour"""
    failures_in_a_row: int = 0
    last_failure: float = -np.inf
    given_back: frozenset[int] = frozenset()
    """job ids that an operator took out of slurmplug's hands"""


@dataclass(frozen=True)
class Verdict:
    """What is left of a plan. `rank`: NaN where Slurm decides. `frozen`: not one command this cycle, for the reason.

    `acting`: the kinds of action in mode act. `spared`: by rule, the jobs (n,) that it protects.
    """

    rank: Floats
    actions: tuple[Action, ...]
    vetoes: tuple[tuple[Action, Reason], ...]
    acting: frozenset[str]
    spared: Mapping[str, Bools]
    frozen: Reason | None = None


def check(snapshot: Snapshot, plan: Plan, past: Past, modes: Modes, limits: Guardrails) -> Verdict:
    """Hold a plan against every rule."""
    kinds = {"rank", *(action.kind for action in plan.actions), "stop"}
    mode: dict[str, Mode] = {kind: "observe" if past.paused else modes.of(kind) for kind in kinds}
    spared = {each.rule: each.spares(snapshot.jobs, past, limits) for each in PROTECTIONS}
    untouchable = np.logical_or.reduce(list(spared.values()))
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}

    allowed: list[Action] = []
    vetoes: list[tuple[Action, Reason]] = []
    for action in plan.actions:
        row = rows[action.job]
        reason = next((Reason(rule) for rule, mask in spared.items() if mask[row]), None)
        reason = reason or _mode(mode[action.kind], past) or _vain(action, str(snapshot.jobs.state[row]), past)
        reason = reason or _budget(action, allowed, past, limits)
        if reason is None:
            allowed.append(action)
        else:
            vetoes.append((action, reason))
    return Verdict(
        rank=np.where(untouchable | (mode["rank"] != "act"), np.nan, plan.rank),
        actions=tuple(allowed),
        vetoes=tuple(vetoes),
        acting=frozenset(kind for kind in mode if mode[kind] == "act"),
        spared=spared,
        frozen=_frozen(snapshot, past, limits),
    )


def sound(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, where it is one for this snapshot and can be kept.

    Raises:
        ValueError: a rank or a term is not one number a job, an action is for a job that is not there, or a fact or the
            memory cannot be kept.
    """
    jobs = set(snapshot.jobs.keys)
    for name, column in {"rank": plan.rank, **plan.terms}.items():
        if np.shape(column) != (len(jobs),) or np.asarray(column).dtype.kind not in "bif":
            raise ValueError(f"{name} is one number a job, not {np.asarray(column).dtype} {np.shape(column)}")
    for job, reason in [*((action.job, action.reason) for action in plan.actions), *plan.notes.items()]:
        if job not in jobs:
            raise ValueError(f"job {job} is not in the snapshot")
        if not all(isinstance(fact, float | int | str) for fact in reason.facts.values()):
            raise ValueError(f"the facts of {reason.rule} are numbers and texts of Python's own types")
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "bifuU" for array in plan.memory.values()):
        raise ValueError("memory is arrays of numbers, truth values or texts")
    return plan


def within_budget(writes: Sequence[Command], limits: Guardrails) -> tuple[Sequence[Command], int]:
    """The writes that one cycle may make, and how many wait for the next."""
    return writes[: limits.writes_per_cycle], max(0, len(writes) - limits.writes_per_cycle)


def _frozen(snapshot: Snapshot, past: Past, limits: Guardrails) -> Reason | None:
    age = past.now - snapshot.now
    if not 0 <= age <= limits.snapshot_age:
        return Reason("stale snapshot", {"age": age, "limit": limits.snapshot_age})
    rested = past.now - past.last_failure
    if past.failures_in_a_row >= limits.breaker_failures and rested < limits.breaker_rest:
        return Reason("breaker", {"failures": past.failures_in_a_row, "rests": limits.breaker_rest - rested})
    return None


def _mode(mode: Mode, past: Past) -> Reason | None:
    if mode == "act":
        return None
    return Reason("paused") if past.paused else Reason("mode", {"mode": mode})


def _vain(action: Action, state: str, past: Past) -> Reason | None:
    if action.kind != "stop":
        return None
    if state not in ("running", "suspended"):
        return Reason("not running")
    return Reason("gave up") if action.job in past.gave_up else None


def _budget(action: Action, allowed: Sequence[Action], past: Past, limits: Guardrails) -> Reason | None:
    """A policy says a stop again as long as it wants it: one under way was counted when it began."""
    if action.kind != "stop" or action.job in past.stopping:
        return None
    done = sum(other.kind == "stop" and other.job not in past.stopping for other in allowed)
    if done >= limits.stops_per_cycle:
        return Reason("stops per cycle", {"limit": limits.stops_per_cycle})
    if done + past.stops_last_hour >= limits.stops_per_hour:
        return Reason("stops per hour", {"limit": limits.stops_per_hour})
    return None


class Protection(Protocol):
    """A rule that keeps jobs out of reach, whatever the plan says."""

    rule: ClassVar[str]

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:
        """(n,) the jobs that are not to be touched."""
        ...


class Held:
    """Held by its user or an operator: whoever holds a job decides when it goes on."""

    rule: ClassVar[str] = "held"

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        return jobs.held


class Interactive:
    """Someone sits before it: salloc and srun."""

    rule: ClassVar[str] = "interactive"

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        return jobs.interactive


class Unmanaged:
    """It carries no directive, or --manage=off."""

    rule: ClassVar[str] = "unmanaged"

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        return ~jobs.managed


class Excluded:
    """The site leaves this user, account, QOS, partition or job name alone."""

    rule: ClassVar[str] = "excluded"

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        listed = [
            np.isin(jobs.user, sorted(limits.exclude_users)),
            np.isin(jobs.account, sorted(limits.exclude_accounts)),
            np.isin(jobs.qos, sorted(limits.exclude_qos)),
            [bool(limits.exclude_partitions & set(str(asked).split(","))) for asked in jobs.partition],
            [any(fnmatchcase(str(name), pattern) for pattern in limits.exclude_names) for name in jobs.name],
        ]
        return np.asarray(np.logical_or.reduce(np.array(listed, dtype=bool), axis=0))


class GivenBack:
    """An operator took it out of slurmplug's hands with `slurmplug reset --job`."""

    rule: ClassVar[str] = "given back"

    def spares(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        return np.isin([key.job_id for key in jobs.keys], sorted(past.given_back))


PROTECTIONS: tuple[Protection, ...] = (Held(), Interactive(), Unmanaged(), Excluded(), GivenBack())

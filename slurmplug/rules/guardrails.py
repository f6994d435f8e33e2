"""What may be: the rules that bound every plan, whichever policy made it.

Pure. A guardrail is a small class with the name by which `slurmplug why` tells of it. Some protect jobs, some bound
how much is done; what they veto is kept with its rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import ClassVar, NamedTuple, Protocol, get_args

import numpy as np

from policies.plan import Action, ActionKind, Plan, Reason
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.cluster.port import Command
from slurmplug.config.schema import Guardrails, Mode, Modes

HOUR = 3600.0
MANY = 20
"""jobs, of which more than half do not end between two looks"""


class Requeue(NamedTuple):
    """A run that slurmplug ended, so that its job goes on elsewhere or later."""

    job: JobKey
    user: str
    at: float


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
    latest: float = -np.inf
    """when the cycle before this one began"""
    alive: int = 0
    """the jobs that were alive then"""
    failures_in_a_row: int = 0
    last_failure: float = -np.inf
    given_back: frozenset[int] = frozenset()
    """job ids that an operator took out of slurmplug's hands"""
    requeues: tuple[Requeue, ...] = ()
    """those of the last hour, and all of jobs that live"""
    moving: Mapping[JobKey, str] = field(default_factory=dict)
    """the jobs whose resize, migration or preemption is under way, and their users"""
    move_gave_up: frozenset[JobKey] = frozenset()
    """for whom that was given up within the last hour"""
    forgetful: frozenset[JobKey] = frozenset()
    """which did not go on from their checkpoint"""
    fresh: frozenset[JobKey] = frozenset()
    """first seen a moment ago"""


@dataclass(frozen=True)
class Verdict:
    """What is left of a plan. `rank`: NaN where Slurm decides. `frozen`: not one command this cycle, for the reason.

    `acting`: the kinds of action in mode act. `spared`: by rule, the jobs (n,) that it protects. `raised`: how many
    jobs may be put before those that Slurm orders alone; None for all.
    """

    rank: Floats
    actions: tuple[Action, ...]
    vetoes: tuple[tuple[Action, Reason], ...]
    acting: frozenset[str]
    spared: Mapping[str, Bools]
    frozen: Reason | None = None
    raised: int | None = None


MOVES = frozenset({"resize", "migrate", "preempt"})
KINDS = frozenset({"rank", *get_args(ActionKind)})


def check(
    snapshot: Snapshot, plan: Plan, past: Past, modes: Modes, limits: Guardrails, *, placement: str = "pin"
) -> Verdict:
    """Hold a plan against every rule.

    `placement`: who may say where a job runs: off, nobody; exclude, nobody, but a job may be moved away from where it
    is; pin, the policy, of a job that is moved; all, of every job, which starts only where it says (`Site.places`).
    """
    kinds = KINDS
    mode: dict[str, Mode] = {kind: "observe" if past.paused else modes.of(kind) for kind in kinds}
    spared = {each.rule: each.spares(snapshot.jobs, past, limits) for each in PROTECTIONS}
    untouchable = np.logical_or.reduce(list(spared.values()))
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)} if plan.actions else {}

    allowed: list[Action] = []
    vetoes: list[tuple[Action, Reason]] = []
    for action in plan.actions:
        row = rows[action.job]
        reason = next((Reason(rule) for rule, mask in spared.items() if mask[row]), None)
        reason = reason or _placement(action, placement)
        reason = reason or _mode(mode[action.kind], past) or _vain(action, str(snapshot.jobs.state[row]), past)
        if placement != "all":
            reason = reason or _move(action, snapshot, row, past, limits)
            reason = reason or _move_budget(action, snapshot, rows, allowed, past=past, limits=limits)
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
        raised=_raised(snapshot.jobs, limits),
    )


def starving_first(snapshot: Snapshot, plan: Plan, limits: Guardrails) -> Plan:
    """The plan with those jobs before all others that have waited for `max_wait`, the longest wait first."""
    jobs = snapshot.jobs
    starving = (jobs.state == "pending") & jobs.managed & (jobs.waited > limits.max_wait) & ~np.isnan(plan.rank)
    rows = np.flatnonzero(starving)
    if not len(rows):
        return plan
    rank = np.array(plan.rank, dtype=np.float64)
    first = np.nanmax(np.where(np.isfinite(rank), rank, 0.0))
    rank[rows[np.argsort(jobs.waited[rows], kind="stable")]] = first + 1.0 + np.arange(len(rows))
    waits = {jobs.keys[row]: Reason("starvation", {"waited": float(jobs.waited[row])}) for row in rows.tolist()}
    return replace(plan, rank=rank, notes={**waits, **plan.notes})


def sound(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan, where it is one for this snapshot and can be kept.

    Raises:
        ValueError: a rank or a term is not one number a job, an action is for a job that is not there, or a fact or the
            memory cannot be kept.
    """
    jobs = set(snapshot.jobs.keys) if plan.actions or plan.notes else frozenset()
    for name, column in {"rank": plan.rank, **plan.terms}.items():
        if np.shape(column) != (len(snapshot.jobs),) or np.asarray(column).dtype.kind not in "bif":
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


def _raised(jobs: Jobs, limits: Guardrails) -> int | None:
    """Of those that wait, jobs without directives are to be at least a share: so many others may stand before them."""
    share = limits.unmanaged_share
    if share == 0:
        return None
    others = int(jobs.elements[(jobs.state == "pending") & ~jobs.managed & ~jobs.held].sum())
    return int(others * (1 - share) / share) if others else None


def _frozen(snapshot: Snapshot, past: Past, limits: Guardrails) -> Reason | None:
    age, seen = past.now - snapshot.now, len(snapshot.jobs)
    if not 0 <= age <= limits.snapshot_age:
        return Reason("stale snapshot", {"age": age, "limit": limits.snapshot_age})
    if snapshot.now < past.latest:
        return Reason("clock jump", {"back": past.latest - snapshot.now})
    if past.alive >= MANY and seen < limits.partial_snapshot * past.alive:
        return Reason("partial snapshot", {"seen": seen, "alive": past.alive})
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


def _placement(action: Action, placement: str) -> Reason | None:
    """Where jobs run is Slurm's to say, unless the site says otherwise."""
    needs = {"place": ("all",), "migrate": ("exclude", "pin", "all")}.get(action.kind)
    return None if needs is None or placement in needs else Reason("placement", {"placement": placement})


def _requeues(action: Action, state: str) -> bool:
    """Whether it ends a run: a waiting job is resized where it stands."""
    return action.kind in MOVES and state != "pending"


def _move(action: Action, snapshot: Snapshot, row: int, past: Past, limits: Guardrails) -> Reason | None:
    """Whether this job can be admitted, resized, moved or preempted, and may be now."""
    jobs, job = snapshot.jobs, action.job
    state = str(jobs.state[row])
    least, most, gpus = int(jobs.gpus_min[row]), int(jobs.gpus_max[row]), action.gpus or 0
    outside = Reason("range", {"gpus": gpus, "least": least, "most": most})
    if action.kind in ("hold", "release"):
        if not jobs.awaits[row]:
            return Reason("not waiting for admission")
        return None if action.gpus is None or least <= gpus <= most else outside
    if action.kind not in MOVES or job in past.moving:
        return None
    if state not in ("running", "pending") or (state == "pending" and action.kind != "resize"):
        return Reason("not running to move", {"state": state})
    if action.kind == "resize" and (not least <= gpus <= most or gpus == jobs.gpus[row]):
        return outside
    if job in past.move_gave_up:
        return Reason("gave up moving")
    return _requeue(action, snapshot, row, past, limits) if _requeues(action, state) else None


def _requeue(action: Action, snapshot: Snapshot, row: int, past: Past, limits: Guardrails) -> Reason | None:
    """Whether this run may be ended, so that its job goes on elsewhere or later."""
    jobs, now, job = snapshot.jobs, snapshot.now, action.job
    own = [requeue.at for requeue in past.requeues if requeue.job == job]
    if not jobs.restartable[row]:
        return Reason("not restartable")
    if job in past.forgetful:
        return Reason("checkpoint not kept")
    if job in past.fresh:
        return Reason("first seen", {"limit": limits.first_seen})
    if len(own) >= limits.requeues_per_job:
        return Reason("requeues per job", {"limit": limits.requeues_per_job})
    if own and now - max(own) < limits.requeue_cooldown:
        return Reason("cooldown", {"limit": limits.requeue_cooldown})
    lost, had = (len(own) + 1) * limits.requeue_cost * jobs.gpus[row], float(jobs.attained[row])
    if lost > limits.requeue_waste * had:
        return Reason("waste", {"lost": lost / HOUR, "attained": had / HOUR, "limit": limits.requeue_waste})
    if action.kind == "preempt" and not now - jobs.started[row] >= limits.minimum_run:
        return Reason("minimum run", {"limit": limits.minimum_run})
    return None


def _move_budget(
    action: Action,
    snapshot: Snapshot,
    rows: Mapping[JobKey, int],
    allowed: Sequence[Action],
    *,
    past: Past,
    limits: Guardrails,
) -> Reason | None:
    """Runs that are being ended count as if they were."""
    jobs, row = snapshot.jobs, rows[action.job]
    if not _requeues(action, str(jobs.state[row])) or action.job in past.moving:
        return None
    now = [rows[a.job] for a in allowed if _requeues(a, str(jobs.state[rows[a.job]])) and a.job not in past.moving]
    recent = {(each.job, each.user) for each in past.requeues if each.at > past.now - HOUR} | set(past.moving.items())
    user = str(jobs.user[row])
    of_user = sum(jobs.user[at] == user for at in now) + sum(each == user for _, each in recent)
    if len(now) >= limits.requeues_per_cycle:
        return Reason("requeues per cycle", {"limit": limits.requeues_per_cycle})
    if len(now) + len(recent) >= limits.requeues_per_hour:
        return Reason("requeues per hour", {"limit": limits.requeues_per_hour})
    if of_user >= limits.requeues_per_user:
        return Reason("requeues per user", {"limit": limits.requeues_per_user})
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
        return jobs.held & ~jobs.awaits


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
        names = (limits.exclude_users, limits.exclude_accounts, limits.exclude_qos)
        if not any((*names, limits.exclude_partitions, limits.exclude_names)):
            return np.zeros(len(jobs), dtype=bool)
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
        if not past.given_back:
            return np.zeros(len(jobs), dtype=bool)
        return np.isin([key.job_id for key in jobs.keys], sorted(past.given_back))


PROTECTIONS: tuple[Protection, ...] = (Held(), Interactive(), Unmanaged(), Excluded(), GivenBack())

"""The rules that limit every plan, whichever policy made it. Pure.

Some rules protect jobs, others limit how much is done. Each veto is recorded with the name of its rule, which
`slurmplug why` explains.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, get_args

import numpy as np

from policies.plan import Action, ActionKind, Memory, Plan, Reason
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.config.schema import Guardrails, Mode, Modes
from slurmplug.rules import budgets
from slurmplug.rules.budgets import Spending
from slurmplug.rules.idle_gpus import ToldIdle

if TYPE_CHECKING:
    from slurmplug.rules.time_limits import TimeLimits

HOUR = 3600.0
PARTIAL_SNAPSHOT_MIN_JOBS = 20
"""From this many jobs on, a snapshot that has lost most of them is taken to be incomplete."""


class Requeue(NamedTuple):
    """A requeue by slurmplug, after which the job continues elsewhere or later."""

    job: JobKey
    user: str
    at: float


@dataclass(frozen=True)
class GivenSize:
    """What a job asked for, and what slurmplug gave it instead: GPUs in all, and values by field of `scontrol
    update`."""

    asked: int
    given: int
    asked_fields: Mapping[str, str]
    given_fields: Mapping[str, str]


@dataclass(frozen=True)
class Past:
    """What the guardrails need to know of earlier cycles, from the ledger. Times in seconds since the epoch."""

    now: float
    paused: bool = False
    stops_last_hour: Mapping[str, int] = field(default_factory=dict)
    """by user, the stops begun"""
    admissions_last_hour: Mapping[str, int] = field(default_factory=dict)
    """by user, the admitted jobs whose release began"""
    admitting: frozenset[JobKey] = frozenset()
    """jobs with a release in progress"""
    stopping: frozenset[JobKey] = frozenset()
    """jobs with a stop in progress"""
    gave_up: frozenset[JobKey] = frozenset()
    """jobs whose stop was given up within the last hour"""
    ignored: frozenset[JobKey] = frozenset()
    """live jobs that ran on after a request to stop"""
    latest: float = -np.inf
    """when the previous cycle began"""
    alive: int = 0
    """the number of live jobs then"""
    failures_in_a_row: int = 0
    last_failure: float = -np.inf
    given_back: frozenset[int] = frozenset()
    """ids of jobs that an operator excluded with `slurmplug reset --job`"""
    requeues: tuple[Requeue, ...] = ()
    """all those of the last hour, and all those of live jobs"""
    moving: Mapping[JobKey, str] = field(default_factory=dict)
    """jobs with a resize, migration or preemption in progress, and their users"""
    move_gave_up: frozenset[JobKey] = frozenset()
    """jobs with a resize, migration or preemption given up within the last hour"""
    found_no_room: Mapping[JobKey, float] = field(default_factory=dict)
    """when jobs saved for a resize or a migration whose nodes other jobs had taken by then"""
    lost_progress: frozenset[JobKey] = frozenset()
    """jobs that did not resume from their checkpoint"""
    sizes: Mapping[JobKey, GivenSize] = field(default_factory=dict)
    """of live jobs that have another size than they asked for"""
    size_changed: Mapping[JobKey, float] = field(default_factory=dict)
    """when the last change of a live job's size began"""
    fresh: frozenset[JobKey] = frozenset()
    """jobs first seen within `guardrails.first_seen` seconds"""
    told_idle: Mapping[JobKey, ToldIdle] = field(default_factory=dict)
    """the notifications that GPUs of live jobs are idle, which their users were sent"""


@dataclass(frozen=True)
class Verdict:
    """The allowed part of a plan.

    score (n,): NaN leaves the job to Slurm. acting: the kinds of action in mode act. protected_by: by rule, the jobs
    (n,) that it protects, all of them from being ranked. frozen: why no command at all is sent in
    this cycle.
    """

    score: Floats
    actions: tuple[Action, ...]
    vetoes: tuple[tuple[Action, Reason], ...]
    acting: frozenset[str]
    protected_by: Mapping[str, Bools]
    frozen: Reason | None = None


MOVES = frozenset({"resize", "migrate", "preempt"})
KINDS = frozenset({"rank", *get_args(ActionKind)})
SET_BY_OTHERS = "set by others"
"""The rule that leaves the order of a job to Slurm, and nothing else, as somebody else set its SiteFactor."""


def check(
    snapshot: Snapshot,
    plan: Plan,
    past: Past,
    modes: Modes,
    limits: Guardrails,
    *,
    placement: str = "pin",
    places: bool = False,
    times: "TimeLimits | None" = None,
) -> Verdict:
    """Check a plan against every rule.

    times: without them no run time is compared with a time limit.
    placement: who chooses the nodes of a job that is moved: off, nobody; exclude, Slurm, any but its present ones; pin,
    the policy. places: the policy places every job, and moves it as it likes (`Site.places`).
    """
    mode: dict[str, Mode] = {kind: "observe" if past.paused else modes.of(kind) for kind in KINDS}
    protected_by = {each.rule: each.protects(snapshot.jobs, past, limits) for each in PROTECTIONS}
    protected = np.logical_or.reduce(list(protected_by.values()))
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)} if plan.actions else {}

    spendings = _spendings(past, limits)
    allowed: list[Action] = []
    vetoes: list[tuple[Action, Reason]] = []
    for planned in plan.actions:
        action, row = planned, rows[planned.job]
        state, user = str(snapshot.jobs.state[row]), str(snapshot.jobs.user[row])
        reason = next((Reason(rule) for rule, mask in protected_by.items() if mask[row]), None)
        reason = reason or (None if places else _placement_veto(action, placement))
        reason = reason or _mode_veto(mode[action.kind], past) or _no_effect_veto(action, state, past)
        effect = _spends(action, state, past)
        gives_back = action.job in past.sizes and past.sizes[action.job].asked == action.gpus
        if not places:
            reason = reason or _move_veto(action, snapshot, row, past, limits)
            if times is not None and action.job not in past.moving and not gives_back:
                fitted = times.fitted(action, row)
                action, reason = (action, reason or fitted) if isinstance(fitted, Reason) else (fitted, reason)
        elif effect in ("requeue", "write"):
            effect = ""
        if effect:
            reason = reason or spendings[effect].veto(user)
        if reason is None:
            allowed.append(action)
            if effect:
                spendings[effect].spend(user)
        else:
            vetoes.append((action, reason))
    return Verdict(
        score=np.where(protected | snapshot.jobs.factor_by_others | (mode["rank"] != "act"), np.nan, plan.score),
        actions=tuple(allowed),
        vetoes=tuple(vetoes),
        acting=frozenset(kind for kind in mode if mode[kind] == "act"),
        protected_by={**protected_by, SET_BY_OTHERS: snapshot.jobs.factor_by_others},
        frozen=_freeze_reason(snapshot, past, limits),
    )


def lately(at: float, now: float, seconds: float = HOUR) -> bool:
    """Whether a time is so near to now. One that is far in the future is of a clock that was ahead, and long ago."""
    return abs(now - at) < seconds


def left_to_slurm(snapshot: Snapshot, memory: Memory) -> Plan:
    """The plan of a cycle in which the policy has none."""
    return Plan(score=np.full(len(snapshot.jobs), np.nan), memory=memory)


def _freeze_reason(snapshot: Snapshot, past: Past, limits: Guardrails) -> Reason | None:
    age = past.now - snapshot.now
    if not 0 <= age <= limits.snapshot_age:
        return Reason("stale snapshot", {"age": age, "limit": limits.snapshot_age})
    if snapshot.now < past.latest:
        return Reason("clock jump", {"back": past.latest - snapshot.now})
    lacking = snapshot.missing > (1 - limits.partial_snapshot) * past.alive
    if past.alive >= PARTIAL_SNAPSHOT_MIN_JOBS and lacking:
        return Reason("partial snapshot", {"missing": snapshot.missing, "alive": past.alive})
    failed = past.failures_in_a_row >= limits.breaker_failures
    if failed and lately(past.last_failure, past.now, limits.breaker_rest):
        rests = limits.breaker_rest - (past.now - past.last_failure)
        return Reason("breaker", {"failures": past.failures_in_a_row, "rests": rests})
    return None


def _mode_veto(mode: Mode, past: Past) -> Reason | None:
    if mode == "act":
        return None
    return Reason("paused") if past.paused else Reason("mode", {"mode": mode})


def _no_effect_veto(action: Action, state: str, past: Past) -> Reason | None:
    if action.kind != "stop":
        return None
    if state not in ("running", "suspended"):
        return Reason("not running")
    if action.job in past.ignored:
        return Reason("ignored")
    return Reason("gave up") if action.job in past.gave_up else None


def _placement_veto(action: Action, placement: str) -> Reason | None:
    """Slurm chooses the nodes of jobs that start, and of running ones unless the site lets them be moved."""
    vetoed = action.kind == "place" or (action.kind == "migrate" and placement == "off")
    return Reason("placement", {"placement": placement}) if vetoed else None


def _requeues(action: Action, state: str) -> bool:
    """Whether the action ends a run; a pending job is resized in place."""
    return action.kind in MOVES and state != "pending"


def _move_veto(action: Action, snapshot: Snapshot, row: int, past: Past, limits: Guardrails) -> Reason | None:
    """Why this job cannot be admitted, resized, moved or preempted now."""
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
    if jobs.part_of_gpu[row]:
        return Reason("part of a GPU")
    if state not in ("running", "pending") or (state == "pending" and action.kind != "resize"):
        return Reason("not running to move", {"state": state})
    size = past.sizes.get(job)
    gives_back = size is not None and state == "pending" and gpus == size.asked
    if action.kind == "resize" and not gives_back and (not least <= gpus <= most or gpus == jobs.gpus[row]):
        return outside
    if job in past.move_gave_up:
        return Reason("gave up moving")
    if state == "pending" and lately(past.size_changed.get(job, -np.inf), snapshot.now, limits.size_interval):
        return Reason("size changed lately", {"limit": limits.size_interval})
    return _requeue_veto(action, snapshot, row, past, limits) if _requeues(action, state) else None


def _requeue_veto(action: Action, snapshot: Snapshot, row: int, past: Past, limits: Guardrails) -> Reason | None:
    """Why this run may not be ended for the job to continue elsewhere or later."""
    jobs, now, job = snapshot.jobs, snapshot.now, action.job
    own = [requeue.at for requeue in past.requeues if requeue.job == job]
    if not jobs.restartable[row]:
        return Reason("not restartable")
    if job in past.lost_progress:
        return Reason("checkpoint not kept")
    if job in past.fresh:
        return Reason("first seen", {"limit": limits.first_seen})
    if len(own) >= limits.requeues_per_job:
        return Reason("requeues per job", {"limit": limits.requeues_per_job})
    if any(lately(at, now, limits.requeue_cooldown) for at in own):
        return Reason("cooldown", {"limit": limits.requeue_cooldown})
    if lately(past.found_no_room.get(job, -np.inf), now, limits.requeue_cooldown):
        return Reason("no room lately", {"limit": limits.requeue_cooldown})
    lost, had = (len(own) + 1) * limits.requeue_cost * jobs.gpus[row], float(jobs.attained[row])
    if lost > limits.requeue_waste * had:
        return Reason("waste", {"lost": lost / HOUR, "attained": had / HOUR, "limit": limits.requeue_waste})
    if action.kind == "preempt" and not snapshot.elapsed[row] >= limits.minimum_run:
        return Reason("minimum run", {"limit": limits.minimum_run})
    return None


def _spendings(past: Past, limits: Guardrails) -> dict[str, Spending]:
    """By kind of effect, what of its budget the last hour spent; requeues in progress count."""
    recent = {(each.job, each.user) for each in past.requeues if lately(each.at, past.now)} | set(past.moving.items())
    return {
        "stop": Spending(budgets.of_stops(limits), past.stops_last_hour),
        "requeue": Spending(budgets.of_requeues(limits), Counter(user for _, user in recent)),
        "write": Spending(budgets.of_writes(limits), {}),
        "admission": Spending(budgets.of_admissions(limits), past.admissions_last_hour),
    }


def _spends(action: Action, state: str, past: Past) -> str:
    """The kind of effect that an action spends; empty for none. A policy repeats its actions: what is in progress is
    counted already."""
    if action.kind == "stop":
        return "" if action.job in past.stopping else "stop"
    if action.kind == "release":
        return "" if action.job in past.admitting else "admission"
    if action.kind not in MOVES or action.job in past.moving:
        return ""
    return "requeue" if _requeues(action, state) else "write"


class Protection(Protocol):
    """A rule that exempts jobs from every action."""

    rule: ClassVar[str]

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:
        """(n,) whether each job is protected."""
        ...


class Held:
    """Held by its user or an operator, who alone decides when it continues."""

    rule: ClassVar[str] = "held"

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        """Held jobs, except those that wait for admission."""
        return jobs.held & ~jobs.awaits


class Interactive:
    """An interactive job: salloc or srun."""

    rule: ClassVar[str] = "interactive"

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        """Interactive jobs."""
        return jobs.interactive


class Unmanaged:
    """A job without directives, or with --manage=off."""

    rule: ClassVar[str] = "unmanaged"

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        """Jobs that are not managed."""
        return ~jobs.managed


class Excluded:
    """A job of a user, account, QOS, partition or job name that the site excludes."""

    rule: ClassVar[str] = "excluded"

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        """Jobs that match one of the site's `exclude_*` settings."""
        names = (limits.exclude_users, limits.exclude_accounts, limits.exclude_qos)
        if not any((*names, limits.exclude_partitions, limits.exclude_names)):
            return np.zeros(len(jobs), dtype=bool)
        listed = [
            np.isin(jobs.user, sorted(limits.exclude_users)),
            np.isin(jobs.account, sorted(limits.exclude_accounts)),
            np.isin(jobs.qos, sorted(limits.exclude_qos)),
            [bool(limits.exclude_partitions & set(str(partitions).split(","))) for partitions in jobs.partition],
            [any(fnmatchcase(str(name), pattern) for pattern in limits.exclude_names) for name in jobs.name],
        ]
        return np.asarray(np.logical_or.reduce(np.array(listed, dtype=bool), axis=0))


class GivenBack:
    """A job that an operator excluded with `slurmplug reset --job`."""

    rule: ClassVar[str] = "given back"

    def protects(self, jobs: Jobs, past: Past, limits: Guardrails) -> Bools:  # noqa: ARG002
        """Jobs given back and not managed since."""
        if not past.given_back:
            return np.zeros(len(jobs), dtype=bool)
        return np.isin([key.job_id for key in jobs.keys], sorted(past.given_back))


PROTECTIONS: tuple[Protection, ...] = (Held(), Interactive(), Unmanaged(), Excluded(), GivenBack())

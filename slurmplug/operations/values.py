"""The values of operations: what is under way, what is seen of it, and how a step is said or closed. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from policies.plan import Action, ActionKind, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Asked, Command, JobRows, Verb
from slurmplug.rules.guardrails import Verdict

Step: TypeAlias = Literal[
    "ask", "save", "signal", "reserve", "requeue", "settle", "rewrite", "confirm", "watch", "cancel", "hold", "release",
    "undo", "free", "unreserve", "withdraw", "bound", "lift", "ended",
]  # fmt: skip
Told: TypeAlias = Literal["", "done", "refused", "unknown"]

REPORTS = 2
"""A job that declared no grace is given the time of so many reports at least."""
MOST_GRACE = 86_400.0
"""Seconds; as much as a job can declare. Its reports, which are claims, give it no more."""
TRIES = 5
"""How often a step's command is said before the operation is given up."""
CANCEL_LIMIT = 120.0
"""Seconds that Slurm may take to end a job that was cancelled."""
REQUEUE_LIMIT = 180.0
"""Seconds that Slurm may take to end a run that it requeues, its KillWait and epilogue in it."""
CLEANING: tuple[Step, ...] = ("undo", "free", "unreserve", "withdraw")
"""What is taken back at the end, in this order: the new shape, the place in the reservation, that, the request."""
FOR_EVER = 1e9
"""Seconds; what is owed is tried until it is done."""
BINDING = frozenset({"ExcNodeList", "ReqNodeList"})
"""What keeps a job from nodes, or to them."""
RESERVATION = "slurmplug-"
"""Before the job id, the name of the reservation that secures a job's place."""


@dataclass(frozen=True)
class Operation:
    """One action under way.

    `told` is what came of the step's command, `tries` how often it was said. `owed`: the steps of CLEANING that are
    still to be taken. `goal`: the fields of the update that gives the job its new shape, `undo` those that give the old
    one back. `facts`: what else the steps must know. `requeued`: when a requeue was said; None for never.
    """

    id: str
    kind: ActionKind
    job: JobKey
    reason: Reason
    opened: float
    step: Step
    since: float
    limit: float
    restarts: int
    told: Told = ""
    tries: int = 0
    result: str = ""
    owed: tuple[Step, ...] = ()
    goal: Mapping[str, str] = field(default_factory=dict)
    undo: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    requeued: float | None = None

    def fact(self, name: str) -> float:
        """A fact that is a number, NaN where there is none."""
        return float(self.facts.get(name, "nan"))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The place that was secured."""
        return tuple(filter(None, self.facts.get("nodes", "").split(",")))


@dataclass(frozen=True)
class Settings:
    """How operations go about.

    `grace`: seconds from a request to the next step where the job declared none and reports often. `cancel`: whether to
    at the end of a stop. `start_limit`: seconds that a requeued job may take to run in its place. `placement`: who
    chooses where a job that migrates goes: off, nobody; exclude, slurmplug, anywhere but where it is; pin, the policy.
    """

    grace: float
    cancel: bool
    start_limit: float = 300.0
    watch_limit: float = 1_800.0
    placement: Literal["off", "exclude", "pin"] = "off"


@dataclass(frozen=True)
class Sight:
    """What operations look at. `queue`: the rows that the snapshot was made of; `asked`: of the jobs in question.

    `reservations`: the names of those that there are, `set_aside`: their nodes. `limits`: None where not looked up.
    """

    snapshot: Snapshot
    queue: JobRows | None = None
    reservations: frozenset[str] = frozenset()
    set_aside: frozenset[str] = frozenset()
    asked: Mapping[int, Asked] = field(default_factory=dict)
    limits: Limits | None = None

    def leader(self, key: JobKey) -> int:
        """The id by which a component of a heterogeneous job reports and is asked; else the job's own."""
        if self.queue is None:
            return key.job_id
        het_ids = self.queue.het_id[self.queue.job_id == key.job_id].tolist()
        return next(filter(None, het_ids), key.job_id)


class Case(NamedTuple):
    """One operation in one cycle; `row` is its job's, None where that is gone."""

    operation: Operation
    sight: Sight
    row: int | None
    verdict: Verdict
    settings: Settings

    @property
    def now(self) -> float:
        return self.sight.snapshot.now

    @property
    def at(self) -> int:
        """The row of a job that is there."""
        assert self.row is not None, f"the job of {self.operation.id} is gone"
        return self.row

    @property
    def state(self) -> str:
        return "" if self.row is None else str(self.sight.snapshot.jobs.state[self.row])

    @property
    def later_run(self) -> int:
        """How many runs the job is beyond the one that the operation began with."""
        return 0 if self.row is None else int(self.sight.snapshot.jobs.restarts[self.row]) - self.operation.restarts

    @property
    def run_over(self) -> bool:
        """Whether the run that the operation began with has ended."""
        return self.row is None or self.later_run != 0 or self.state == "pending"

    @property
    def may(self) -> bool:
        """Whether the kind of action is still allowed, and the job not protected."""
        kept_off = self.row is not None and any(mask[self.row] for mask in self.verdict.spared.values())
        return self.operation.kind in self.verdict.acting and not kept_off


Moved: TypeAlias = tuple[Operation, Command | None]


def opened(action: Action, sight: Sight, row: int, step: Step, limit: float) -> Operation:
    """A new operation, whose first step is not yet said."""
    now = sight.snapshot.now
    return Operation(
        id=f"{sight.snapshot.cycle}-{action.kind}-{action.job.job_id}",
        kind=action.kind,
        job=action.job,
        reason=action.reason,
        opened=now,
        step=step,
        since=now,
        limit=now + limit,
        restarts=int(sight.snapshot.jobs.restarts[row]),
    )


def grace(snapshot: Snapshot, row: int, settings: Settings) -> float:
    """Seconds that the job may take to save: as declared, else the site's, and twice what is between its reports.

    A job that trains an hour between two reports looks for requests once an hour.
    """
    jobs = snapshot.jobs
    declared = float(jobs.grace[row])
    if not math.isnan(declared):
        return declared
    told = max(jobs.losses.row(row)[0], jobs.accuracies.row(row)[0], key=len)
    apart = float(told[-1] - told[-2]) if len(told) > 1 else 1.0
    between = apart * float(jobs.iteration_time[row])
    return max(settings.grace, min(REPORTS * between, MOST_GRACE)) if math.isfinite(between) else settings.grace


def said(operation: Operation, sight: Sight) -> Moved:
    """The operation with its step's command said once more."""
    told = replace(operation, tries=operation.tries + 1, told="")
    return told, _command(told, sight)


def said_again(operation: Operation, sight: Sight) -> Moved:
    """Likewise, its limit counted anew: the step begins when its command came through."""
    now = sight.snapshot.now
    return said(replace(operation, since=now, limit=now + (operation.limit - operation.since)), sight)


def next_step(case: Case, step: Step, limit: float, **changes: object) -> Moved:
    """On to another step, with its command."""
    now = case.now
    return said(
        replace(case.operation, step=step, since=now, limit=now + limit, told="", tries=0, **changes),  # type: ignore[arg-type]
        case.sight,
    )


def waiting(case: Case, step: Step, limit: float, **changes: object) -> Moved:
    """On to another step, which says nothing."""
    now = case.now
    moved = replace(case.operation, step=step, since=now, limit=now + limit, told="", tries=0, **changes)  # type: ignore[arg-type]
    return moved, None


def closing(case: Case, result: str, *more: Step) -> Moved:
    """The outcome is clear; what is owed is taken back, one step a cycle. `more`: what is owed besides."""
    owed = {*case.operation.owed, *more}
    return cleaned(case._replace(operation=replace(case.operation, result=result, owed=tuple(
        step for step in CLEANING if step in owed
    ))))  # fmt: skip


def cleaned(case: Case) -> Moved:
    """The next step that is owed, or the end."""
    operation = case.operation
    for step in operation.owed:
        if step == "withdraw" and case.run_over and operation.result:
            return _ended_with_a_word(case)
        if _owing(case, step):
            return next_step(case, step, FOR_EVER)
        operation = replace(operation, owed=tuple(each for each in operation.owed if each != step))
        case = case._replace(operation=operation)
    if not operation.result:
        return waiting(case, "watch", case.settings.watch_limit)
    return waiting(case, "bound" if _is_bound(case) else "ended", 0.0)


def _ended_with_a_word(case: Case) -> Moved:
    """An ended run's request is litter, and nobody waits to hear that it is gone."""
    _, command = next_step(case, "withdraw", FOR_EVER)
    return waiting(case, "bound" if _is_bound(case) else "ended", 0.0, owed=())[0], command


def _is_bound(case: Case) -> bool:
    """Whether the job runs with nodes required or excluded, which Slurm lets go only when it waits again."""
    return case.row is not None and case.state != "pending" and bool(BINDING & case.operation.goal.keys())


def cleaning(case: Case) -> Moved:
    """A step of CLEANING: until it is done, or there is nothing left to take back."""
    operation = case.operation
    over = operation.told == "done" or not _owing(case, operation.step)
    over |= operation.step == "withdraw" and case.run_over and operation.told != ""
    given_up = operation.step in ("undo", "free") and operation.tries >= TRIES
    if over or given_up:
        owed = tuple(step for step in operation.owed if step != operation.step)
        return cleaned(case._replace(operation=replace(operation, owed=owed)))
    return said(operation, case.sight)


def _owing(case: Case, step: Step) -> bool:
    """Whether there is something to take back, as far as the snapshot tells."""
    operation, sight = case.operation, case.sight
    if step == "unreserve":
        return reservation(operation.job) in sight.reservations
    if step == "withdraw":
        return True
    if case.row is None:
        return False
    if step == "undo":
        return case.state == "pending" and bool(operation.undo)
    asked = sight.asked.get(operation.job.job_id)
    return asked is not None and asked.reservation == reservation(operation.job)


def reservation(job: JobKey) -> str:
    """The name of the reservation that secures the job's place."""
    return f"{RESERVATION}{job.job_id}"


def _command(operation: Operation, sight: Sight) -> Command:
    name = f"{operation.id}-{operation.step}-{sight.snapshot.cycle}"
    verb, fields = _verb(operation, sight)
    return Command(name, verb, operation.job, fields, operation.id)


_BARE: Mapping[Step, Verb] = {"requeue": "requeue", "cancel": "cancel", "hold": "hold", "release": "release"}
"""The steps that are said without a field."""


def _verb(operation: Operation, sight: Sight) -> tuple[Verb, Mapping[str, str]]:
    """How a step is said."""
    step, facts = operation.step, operation.facts
    if step in _BARE:
        return _BARE[step], {}
    if step == "signal":
        jobs = sight.snapshot.jobs
        row = jobs.keys.index(operation.job)
        return "signal", {"signal": str(jobs.signal[row]), "to": str(jobs.signal_to[row])}
    if step in ("ask", "save"):
        return "ask", request(operation)
    if step == "withdraw":
        return "withdraw", request(operation)
    if step == "unreserve":
        return "unreserve", {"name": reservation(operation.job)}
    if step == "reserve":
        place = {name: facts[name] for name in ("nodes", "user", "seconds")}
        return "reserve", {"name": reservation(operation.job), **place}
    updates: Mapping[Step, Mapping[str, str]] = {
        "rewrite": operation.goal,
        "undo": operation.undo,
        "lift": {name: value for name, value in operation.undo.items() if name in BINDING},
        "free": {"ReservationName": ""},
    }
    return "update", updates[step]


def request(operation: Operation) -> dict[str, str]:
    """The fields of the request to the run that the operation began with."""
    return {"what": "stop" if operation.kind == "stop" else "checkpoint", "restart": str(operation.restarts)}

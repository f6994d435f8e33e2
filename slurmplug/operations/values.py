"""The values of operations: what is under way, what the snapshot shows of it, and how the site wants it done. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from policies.plan import ActionKind, Reason
from policies.snapshot import JobKey, Snapshot
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import JobRows, ResourceRequest
from slurmplug.rules.guardrails import GivenSize, Verdict

Step: TypeAlias = Literal[
    "ask", "save", "signal", "reserve", "requeue", "settle", "rewrite", "confirm", "watch", "cancel", "hold", "release",
    "undo", "free", "unreserve", "withdraw", "bound", "lift", "ended",
]  # fmt: skip
"""The steps of all operations, by the names that ledgers store."""
CommandStatus: TypeAlias = Literal["", "done", "refused", "put off", "unknown"]
"""The status of a step's last command; empty before it is known."""

MAX_TRIES = 5
"""How often a step's command is issued before the operation is given up."""
CANCEL_LIMIT = 120.0
"""Seconds that Slurm may take to end a job that was cancelled."""
REQUEUE_LIMIT = 180.0
"""Seconds that Slurm may take to end a run that it requeues, including KillWait and the epilogue."""
CLEANUP_STEPS: tuple[Step, ...] = ("undo", "free", "unreserve", "withdraw")
"""What is taken back at the end, in this order: the new shape, the job's place at the head of the queue, the
reservation, the request to the job."""
NO_LIMIT = 1e9
"""Seconds; a cleanup step is repeated until it is done."""
PRIORITY_FIELDS = frozenset({"SiteFactor", "Nice"})
"""The fields of `scontrol update` by which a requeued job goes first in the queue until it runs."""
GOES_FIRST: Mapping[str, str] = MappingProxyType({"SiteFactor": "2147483645", "Nice": "-1900000000"})
"""Together above a job that an administrator pinned at 4 000 000 000, and with it still below Slurm's 2^32 - 1; each
alone has not that range."""
NODE_LIST_FIELDS = frozenset({"ExcNodeList", "ReqNodeList"})
"""The fields of `scontrol update` that exclude or require nodes; Slurm changes them only while the job is pending."""
RESERVED_FOR = "root"
"""The user of a place's reservation: every Slurm knows it, and no job of a user of the cluster may enter."""
GPU_FIELDS = frozenset({"Gres", "TresPerNode", "TresPerJob", "TresPerSocket", "TresPerTask"})
"""The fields of `scontrol update` that set GPUs; Slurm refuses an update with one of them once the job runs."""
RESERVATION_PREFIX = "slurmplug-"
"""With the job id after it, the name of the reservation that secures a job's place."""


class OperationOutcome(StrEnum):
    """How an operation ended; the guardrails decide by it whether another one may begin."""

    DONE = "done"
    PROGRESS_LOST = "progress lost"
    """the job restarted before its checkpoint"""
    STOPPED = "stopped"
    """the job ended after the request to stop"""
    CANCELLED = "cancelled"
    IGNORED = "ignored"
    """the job ran on after the request to stop, and the site does not cancel; it is not asked again"""
    JOB_ENDED = "ended by itself"
    JOB_REQUEUED = "requeued meanwhile"
    """by somebody else"""
    STARTED = "it started before it was changed"
    """a pending job began to run on what it requested"""
    WITHDRAWN = "withdrawn"
    """it was no longer allowed, an operator withdrew it, or idle GPUs were in use again"""
    NO_ROOM = "no room"
    """other jobs took its nodes before its run was ended, which goes on"""
    GAVE_UP = "gave up"


@dataclass(frozen=True)
class RestartFacts:
    """Facts of a running job that is resized, moved or preempted.

    `user` owns the job. `checkpoint`: the last iteration it had saved, None for none, reported at
    `checkpoint_time` (seconds since the epoch). `gpus_before` and `gpus`: in all. `node_count`: nodes of the new shape,
    `requested_nodes`: those that the policy named. `nodes`: those that were reserved, for `reservation_seconds`. These
    four are empty for a preemption. `nodes_before`: the number of nodes where it ran. `time_limit`: in seconds, the
    one that the new shape requires; None for the job's own. `size`: as for a pending resize, once that is known.
    """

    user: str
    checkpoint: float | None
    checkpoint_time: float | None
    gpus_before: int
    gpus: int
    node_count: int = 0
    requested_nodes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    reservation_seconds: int = 0
    nodes_before: int = 0
    time_limit: float | None = None
    size: GivenSize | None = None
    type: Literal["restart"] = "restart"


@dataclass(frozen=True)
class PendingResizeFacts:
    """Facts of a pending job that is resized: its GPUs in all, before and after.

    `size`: the one that it has then, and what it asked for; None in an operation of an older release.
    """

    gpus_before: int
    gpus: int
    size: GivenSize | None = None
    type: Literal["pending resize"] = "pending resize"


Facts: TypeAlias = RestartFacts | PendingResizeFacts | None
"""What the steps of an operation need to know besides its job; None for a stop, a hold or a release."""


@dataclass(frozen=True)
class Operation:
    """One action under way: an allowed action, carried out step by step over many cycles.

    The current `step` began at `since` and should be over at `limit` (seconds since the epoch). Its command was issued
    `tries` times, the last time with `last_status`. `restarts`: the job's restart count when the operation was opened.
    `outcome` is None while it is not known, `result` the message for users. `pending_cleanup`: the steps of
    CLEANUP_STEPS that are still to be taken. `goal`: the fields of the update that gives the job its new shape, `undo`
    those that restore the old one. `requeued`: when a requeue was issued; None for never. `seen`: the job's shape as it
    was last seen, before the update of `goal`; None for an operation that changes none, or of an older release.
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
    last_status: CommandStatus = ""
    tries: int = 0
    outcome: OperationOutcome | None = None
    result: str = ""
    pending_cleanup: tuple[Step, ...] = ()
    goal: Mapping[str, str] = field(default_factory=dict)
    undo: Mapping[str, str] = field(default_factory=dict)
    facts: Facts = None
    requeued: float | None = None
    seen: ResourceRequest | None = None

    @property
    def reserved_nodes(self) -> tuple[str, ...]:
        """The nodes that were reserved for the job; empty where none were."""
        return self.facts.nodes if isinstance(self.facts, RestartFacts) else ()

    @property
    def limits_nodes(self) -> bool:
        """Whether the job's new shape excludes or requires nodes."""
        return not NODE_LIST_FIELDS.isdisjoint(self.goal)

    @property
    def only_limits_nodes(self) -> bool:
        """Whether all is done, except that a list of nodes is restored when the job is pending again."""
        return self.step in ("bound", "lift")


@dataclass(frozen=True)
class OperationSettings:
    """How the site wants operations carried out.

    `grace`: seconds from a request to the next step, where the job declared none and reports often. `cancel`: whether
    a stop ends with scancel. `start_limit`: seconds that a requeued job may take to start in its place, `watch_limit`
    those it may take to report then. `placement`: who chooses the nodes of a job that migrates: off, nobody; exclude,
    slurmplug, any but its present ones; pin, the policy.
    """

    grace: float
    cancel: bool
    start_limit: float = 300.0
    watch_limit: float = 1_800.0
    placement: Literal["off", "exclude", "pin"] = "off"


@dataclass(frozen=True)
class Observation:
    """What operations see of the cluster in one cycle.

    `queue`: the rows that the snapshot was made of. `reservations`: the names of all reservations; `reserved_from`: by
    node, when the first of those that have not ended begins, in seconds since the epoch. `requests`: by job id, what
    the jobs of `advance.jobs_to_query` requested, where they are still pending, or not, as in the snapshot. `limits`:
    None where they are not known. `sizes`: of the jobs that have another size than they asked for.
    """

    snapshot: Snapshot
    queue: JobRows | None = None
    reservations: frozenset[str] = frozenset()
    reserved_from: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[int, ResourceRequest] = field(default_factory=dict)
    limits: Limits | None = None
    sizes: Mapping[JobKey, GivenSize] = field(default_factory=dict)

    def request(self, key: JobKey) -> ResourceRequest | None:
        """What the job requests; None where it was not queried, or could not be read."""
        return self.requests.get(key.job_id)

    def leader(self, key: JobKey) -> int:
        """The job id of a heterogeneous job's leader, by which its components report; else the job's own id."""
        if self.queue is None:
            return key.job_id
        het_ids = self.queue.het_id[self.queue.job_id == key.job_id].tolist()
        return next(filter(None, het_ids), key.job_id)


class OperationContext(NamedTuple):
    """One operation in one cycle; `row` is its job's row in the snapshot, None once the job has ended."""

    operation: Operation
    observation: Observation
    row: int | None
    verdict: Verdict
    settings: OperationSettings

    @property
    def now(self) -> float:
        """The time of the snapshot, seconds since the epoch."""
        return self.observation.snapshot.now

    @property
    def request(self) -> ResourceRequest | None:
        """What the job requests; None where it could not be read."""
        return self.observation.request(self.operation.job)

    @property
    def live_row(self) -> int:
        """The row of a job that has not ended."""
        assert self.row is not None, f"the job of {self.operation.id} has ended"
        return self.row

    @property
    def state(self) -> str:
        """The job's state in the snapshot; empty once it has ended."""
        return "" if self.row is None else str(self.observation.snapshot.jobs.state[self.row])

    @property
    def restarts_since(self) -> int:
        """How often the job was requeued since the operation was opened."""
        if self.row is None:
            return 0
        return int(self.observation.snapshot.jobs.restarts[self.row]) - self.operation.restarts

    @property
    def run_ended(self) -> bool:
        """Whether the run that the operation began with has ended."""
        return self.row is None or self.restarts_since != 0 or self.state == "pending"

    @property
    def allowed(self) -> bool:
        """Whether the kind of action is still allowed, and the job not protected."""
        protected = self.row is not None and any(mask[self.row] for mask in self.verdict.protected_by.values())
        return self.operation.kind in self.verdict.acting and not protected


def reservation_name(job: JobKey) -> str:
    """The name of the reservation that secures the job's place."""
    return f"{RESERVATION_PREFIX}{job.job_id}"

"""The door to a cluster: a `Reading` comes in, `Command`s go out, and time passes.

Rows are in neutral columns: whatever dialect a Slurm release or a client speaks ends in the client.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import JobKey
from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster.limits import Limits
from slurmplug.spool.report_lines import SpoolFault

Strings: TypeAlias = NDArray[np.object_]
"""Texts whose length a user chooses: Python's own, since one long comment would widen every entry of `Texts`."""

Verb: TypeAlias = Literal[
    "update", "requeue", "signal", "cancel", "ask", "withdraw", "hold", "release", "reserve", "unreserve", "place"
]
Status: TypeAlias = Literal["done", "refused", "unknown"]


@dataclass(frozen=True)
class JobRows:
    """The jobs that Slurm knows, ended ones too; one entry a job, a pending array being one of so many elements."""

    job_id: Ints
    array_id: Ints
    """0 outside an array"""
    array_task: Ints
    """-1 outside an array, and for elements that still wait together"""
    elements: Ints
    het_id: Ints
    """0 outside a heterogeneous job"""
    uid: Ints
    user: Texts
    account: Texts
    qos: Texts
    partition: Strings
    """as asked for, several joined by commas"""
    state: Texts
    """Slurm's long name: PENDING, RUNNING, COMPLETED, ..."""
    reason: Texts
    name: Strings
    comment: Strings
    dependency: Strings
    features: Strings
    reservation: Strings
    node_list: Strings
    batch: Bools
    restarts: Ints
    submit: Floats
    eligible: Floats
    start: Floats
    """NaN while it waits"""
    expected: Floats
    """when Slurm expects it to start, while it waits; NaN where it does not say"""
    end: Floats
    """when it ended or will be ended; NaN while it waits or runs without a limit"""
    time_limit: Floats
    """seconds, NaN for unlimited"""
    priority: Floats
    nodes: Ints
    cpus: Ints
    memory: Floats
    """MiB in all"""
    gpus: Ints
    """in all: held while it runs, else asked for per node, job, socket or task"""
    gpu_type: Texts
    """as asked for; empty for any, and where one job asks for several types"""
    exit_code: Ints
    """as a shell tells it: 128 and the number of the signal that ended it"""

    def __len__(self) -> int:
        return len(self.job_id)


@dataclass(frozen=True)
class NodeRows:
    """The nodes; `gpus` and `gpus_used` count each type (empty name for an untyped GPU)."""

    name: tuple[str, ...]
    state: tuple[frozenset[str], ...]
    """Slurm's state and flags in small letters: idle, mixed, drain, reserved, ..."""
    partitions: tuple[frozenset[str], ...]
    features: tuple[frozenset[str], ...]
    gpus: tuple[Mapping[str, int], ...]
    gpus_used: tuple[Mapping[str, int], ...]
    cpus: Ints
    cpus_used: Ints
    cpu_load: Floats
    memory: Floats
    memory_used: Floats
    memory_free: Floats
    """as the operating system says; NaN where it does not"""


@dataclass(frozen=True)
class Reservation:
    """Nodes set aside; seconds since the epoch."""

    name: str
    nodes: frozenset[str]
    users: frozenset[str]
    accounts: frozenset[str]
    start: float
    end: float


@dataclass(frozen=True)
class Ending:
    """How a job ended that Slurm's controller no longer lists, from the accounting."""

    job_id: int
    state: str
    start: float
    end: float
    exit_code: int


@dataclass(frozen=True)
class Asked:
    """What a job holds or asks for in all, and how it asked: what of it can be rewritten, and what stands in the way.

    Numbers are 0 where the job did not ask for them.
    """

    nodes: int
    gpus: int
    cpus: int
    memory: float
    """MiB"""
    het_id: int
    reservation: str

    gres: str
    """for each node, as Slurm tells it: gres:gpu:2, or gres/gpu:a100:2 since 23.02"""
    gpus_otherwise: bool
    """it asked for GPUs by job, socket or task, which Slurm does not let change"""
    tasks: int
    tasks_a_node: int
    cpus_a_task: int
    fewest_cpus: int
    """of each node"""
    memory_asked: bool
    """by node or CPU: not by GPU, and not all that a node has"""
    cpus_by_gpu: bool
    """its CPUs follow its GPUs by themselves"""
    requeue: bool
    """whether Slurm may requeue it"""
    excluded: str
    """nodes, as a host list"""
    required: str


@dataclass(frozen=True)
class Site:
    """What the site's configuration says that decisions depend on."""

    cluster: str
    version: str
    priority_type: str
    priority_weights: Mapping[str, int]
    places: bool = False
    """whether jobs start where the policy places them, and only then; Slurm places them itself"""


@dataclass(frozen=True)
class Reading:
    """One look at the cluster. `scripts` and `reports` hold only what is new, by job id."""

    now: float
    site: Site
    jobs: JobRows
    nodes: NodeRows
    reservations: tuple[Reservation, ...] = ()
    endings: tuple[Ending, ...] = ()
    scripts: Mapping[int, bytes] = field(default_factory=dict)
    reports: Mapping[int, bytes] = field(default_factory=dict)
    faults: tuple[SpoolFault, ...] = ()


@dataclass(frozen=True)
class Traces:
    """What slurmplug may have left, told without its ledger. `requests`: job id, restart and what is asked.

    `faults`: what could not be read.
    """

    site_factors: Mapping[int, int] | None
    """of the jobs that wait and may start, which alone sprio tells; None where it tells nothing"""
    requests: tuple[tuple[int, int, str], ...] = ()
    waiting: frozenset[int] = frozenset()
    """the job ids that the daemon held for admission when it last lived"""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One effect on one job, for an operation or for none.

    `fields` by verb: update, what to set (SiteFactor, Gres, StartTime, ...), several at once; signal, `signal` and `to`
    (batch, steps or full); ask and withdraw, `what` (stop or checkpoint) and `restart`, the run that is meant; reserve,
    `name`, `nodes` joined by commas, `user` and `seconds`: these nodes start no other job for so long; unreserve,
    `name`; requeue, cancel, hold (as an administrator) and release, nothing. place, only where `Site.places`: `nodes`,
    such as n1:4,n2:2, where the job is to hold these GPUs from now on.
    """

    id: str
    verb: Verb
    job: JobKey
    fields: Mapping[str, str] = field(default_factory=dict)
    operation: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a command; `unknown` is judged by the next snapshot."""

    command: str
    status: Status
    message: str = ""


class ClusterPort(Protocol):
    """A cluster, live or simulated; nobody behind this door asks which."""

    def read(self, known: Container[int], alive: Collection[int]) -> Reading:
        """Look at the cluster.

        `known` are the job ids whose scripts are not wanted; `alive` those that had not ended when last seen: one of
        them that the controller no longer lists comes back as an `Ending`.

        Raises:
            ReadFailed: the cluster could not be read. Never an empty queue instead.
        """
        ...

    def details(self, job_ids: Collection[int]) -> Mapping[int, Asked]:
        """How these jobs asked for what they hold, of those that there are.

        Raises:
            ReadFailed: the cluster could not be read.
        """
        ...

    def limits(self) -> Limits:
        """What QOS and associations may use in all. Raises ReadFailed."""
        ...

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Carry the commands out in order; one outcome each."""
        ...

    def now(self) -> float:
        """The cluster's time, seconds since the epoch."""
        ...

    def wait(self, until: float) -> bool:
        """Let time pass until then, or sooner when woken; False: stop looping."""
        ...

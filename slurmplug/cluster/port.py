"""The interface to a cluster, live or simulated: a `Reading` comes in, `Command`s go out, and time passes.

Rows have the same columns whatever the Slurm release and the client: how these differ is known to the client alone.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import JobKey
from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster.limits import Limits
from slurmplug.spool.values import SpoolFault

Strings: TypeAlias = NDArray[np.object_]
"""Texts whose length a user chooses: Python objects, since one long comment would widen every entry of `Texts`."""

Verb: TypeAlias = Literal[
    "update", "requeue", "signal", "cancel", "ask", "withdraw", "hold", "release", "reserve", "unreserve", "place"
]
Status: TypeAlias = Literal["done", "refused", "put off", "unknown"]
Submission: TypeAlias = tuple[int, int]
"""A job id, and when that job was submitted or requeued, in whole seconds since the epoch: what tells two jobs with
one id apart."""


@dataclass(frozen=True)
class JobRows:
    """The jobs that Slurm lists, ended ones too: columns with one entry per job.

    The elements of an array that are still pending together are one entry, which counts them. Times are seconds since
    the epoch.
    """

    job_id: Ints
    array_id: Ints
    """0 outside an array"""
    array_task: Ints
    """-1 outside an array, and for elements that are still pending together"""
    elements: Ints
    array_tasks: Strings
    """which elements are pending together, as in sbatch --array: 0-2,7 or 0-10:2; empty outside an array, and where the
    text would be longer than a comment may be"""
    het_id: Ints
    """0 outside a heterogeneous job"""
    uid: Ints
    user: Texts
    account: Texts
    qos: Texts
    partition: Strings
    """as requested, several joined by commas"""
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
    """NaN while it is pending"""
    expected: Floats
    """of a pending job, when Slurm expects it to start; NaN where it expects nothing yet"""
    end: Floats
    """when it ended or its time limit ends it; NaN while it is pending or runs without a limit"""
    suspended: Floats
    """seconds in which it was suspended since its start, which Slurm counts neither as run time nor against its time
    limit; 0 while it is pending"""
    time_limit: Floats
    """seconds, NaN for unlimited"""
    priority: Floats
    nice: Ints
    """what its user took off its priority with --nice; less than 0 only by an operator"""
    nodes: Ints
    cpus: Ints
    memory: Floats
    """MiB in all"""
    gpus: Ints
    """in all: allocated while it runs, else requested per node, job, socket or task"""
    gpu_type: Texts
    """as requested, several joined by commas; empty for any"""
    gpu_type_held: Texts
    """of a job that has started, of the GPUs that it holds or held, several joined by commas; empty where not known"""
    shards: Ints
    """requested per node, job, socket or task: parts of GPUs that jobs share (gres/shard)"""
    exit_code: Ints
    """as a shell has it: 128 plus the number of the signal that ended it"""

    def __len__(self) -> int:
        return len(self.job_id)


@dataclass(frozen=True)
class NodeRows:
    """The nodes: columns with one entry per node. Memory is in MiB.

    `gpus` and `gpus_used` count the GPUs by type; those without a type are under the empty name. MIG instances are
    counted under the type of their profile, and a GPU of which shards are in use is in use.
    """

    name: tuple[str, ...]
    state: tuple[frozenset[str], ...]
    """Slurm's state and flags in lower case: idle, mixed, drain, reserved, ..."""
    partitions: tuple[frozenset[str], ...]
    features: tuple[frozenset[str], ...]
    """the active ones: slurmctld starts no job for others, unless a plugin of the site can activate them by a reboot"""
    gpus: tuple[Mapping[str, int], ...]
    gpus_used: tuple[Mapping[str, int], ...]
    cpus: Ints
    cpus_used: Ints
    cpu_load: Floats
    memory: Floats
    memory_used: Floats
    memory_free: Floats
    """as the node's operating system reports it; NaN where it does not"""


@dataclass(frozen=True)
class Reservation:
    """Nodes that are reserved for users or accounts, from `start` to `end` in seconds since the epoch."""

    name: str
    nodes: frozenset[str]
    users: frozenset[str]
    accounts: frozenset[str]
    start: float
    end: float


@dataclass(frozen=True)
class Ending:
    """How a job ended that slurmctld no longer lists, from the accounting. Times are seconds since the epoch."""

    job_id: int
    state: str
    start: float
    end: float
    exit_code: int
    suspended: float = 0.0
    """seconds of its last run in which it was suspended"""


@dataclass(frozen=True)
class ResourceRequest:
    """What a job has or requests in all, and the options by which it requested that.

    From these follows what an update of the job has to change, what rules an update out, and what others have changed
    since. Numbers are 0 where the job did not request them.
    """

    nodes: int
    gpus: int
    """in all; of a pending job of Slurm 22.05 whose NumNodes was updated, as before that update"""
    cpus: int
    memory: float
    """MiB"""
    het_id: int
    reservation: str

    gres: str
    """per node, as squeue prints it: gres:gpu:2, or gres/gpu:a100:2 since 23.02; so are the three at the end"""
    tasks: int
    tasks_per_node: int
    cpus_per_task: int
    min_cpus_per_node: int
    memory_requested: bool
    """whether per node or per CPU: not per GPU, and not all that a node has"""
    min_memory: float
    """MiB per node or per CPU"""
    cpus_follow_gpus: bool
    """whether it requested CPUs per GPU, so that Slurm changes their number with that of the GPUs"""
    requeue: bool
    """whether Slurm may requeue it"""
    excluded_nodes: str
    """a host list, as is `required_nodes`"""
    required_nodes: str
    time_limit: float | None
    """seconds; None for no limit"""
    nice: int
    gres_per_job: str = ""
    gres_per_socket: str = ""
    gres_per_task: str = ""
    """since 23.11 with the CPUs: cpu=2,gres/gpu=1"""
    max_nodes: int = 0
    """the most nodes, which Slurm shows while it is pending; 0 for any number"""
    memory_per_cpu: bool = False
    """whether `min_memory` is per CPU, so that Slurm changes the job's memory with its CPUs"""
    tasks_per_gpu: int = 0
    whole_nodes: bool = False
    """whether it gets all that its nodes have: --exclusive, or its partition's OverSubscribe=EXCLUSIVE"""
    cpus_per_gpu: int = 0
    pending: bool = True
    """whether it was pending when this was read, which is later than the queue"""


class RunIdentity(NamedTuple):
    """What tells a job's present run from its other runs, and from another job with its id.

    `submit`: when it was submitted or requeued last, in whole seconds since the epoch.
    """

    uid: int
    submit: int
    restarts: int


@dataclass(frozen=True)
class Site:
    """What decisions depend on in the site's slurm.conf, and when its slurmctld started."""

    cluster: str
    version: str
    booted: float = 0.0
    """seconds since the epoch; another value is another start of slurmctld, which may have lost what was set last"""
    places: bool = False
    """whether jobs start where the policy places them, and only then; False under Slurm, which places them itself"""
    identity: str = ""
    """the same for as long as slurmctld has neither been started again nor reconfigured"""


@dataclass(frozen=True)
class Reading:
    """The state of the cluster at one time, `now`. `scripts` and `reports` hold only what is new, by job id.

    A job whose script could not be read yet is not in `scripts`; one without a script has an empty one.
    """

    now: float
    site: Site
    jobs: JobRows
    nodes: NodeRows
    reservations: tuple[Reservation, ...] = ()
    endings: tuple[Ending, ...] = ()
    scripts: Mapping[int, bytes] = field(default_factory=dict)
    reports: Mapping[int, bytes] = field(default_factory=dict)
    faults: tuple[SpoolFault, ...] = ()
    site_factors: Mapping[int, int] | None = None
    """as `ClusterPort.site_factors_in_slurm`; None where they were not read with this reading"""


@dataclass(frozen=True)
class Traces:
    """What a daemon may have left in Slurm and in the spool, found without its ledger.

    `requests`: the job id, the restart and the kind of each request file. `faults`: what could not be read.
    """

    site_factors: Mapping[int, int] | None
    """by job id, of the pending jobs that may start, as sprio lists no others; None where it could not be read"""
    requests: tuple[tuple[int, int, str], ...] = ()
    waiting: frozenset[int] = frozenset()
    """the job ids that the daemon held for admission when it last ran"""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """One effect on one job, for an operation or for none.

    The `fields` of each verb:

    update      what to set (SiteFactor, Gres, StartTime, ...), several at once
    signal      `signal`, and `to`: batch, steps or full
    ask         `what` to request of the job, stop or checkpoint, and `restart`, the number of its run; of a stop also
                `content`, what its file says to the program
    withdraw    `what` and `restart` of a request to take back
    reserve     `name`, `nodes` joined by commas, `user` and `seconds`: these nodes start only that user's jobs then
    unreserve   `name`
    place       `nodes`, such as n1:4,n2:2: the GPUs that the job has from now on; only where `Site.places`
    requeue, cancel, hold (as an administrator) and release have none.
    """

    id: str
    verb: Verb
    job: JobKey
    fields: Mapping[str, str] = field(default_factory=dict)
    operation: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a command.

    What an `unknown` one did is found in the next reading. One that was put off did nothing, as slurmdbd has not
    recorded its job yet; it may be tried again.
    """

    command: str
    status: Status
    message: str = ""


class ClusterPort(Protocol):
    """A cluster, live or simulated; its callers do not know which."""

    def read(self, known: Container[Submission], alive: Mapping[int, int]) -> Reading:
        """Read the state of the cluster.

        Args:
            known: the submissions whose scripts are not needed.
            alive: the jobs that had not ended when last read, with the uid of each one's user; one of them that
                slurmctld no longer lists is returned as an `Ending`.

        Raises:
            ReadFailed: the cluster could not be read. An empty queue is never returned instead.
        """
        ...

    def site_factors_in_slurm(self, booted: float) -> Mapping[int, int]:
        """The SiteFactors in Slurm by job id, of the pending jobs that may start and whose priority is not pinned.

        Of the others Slurm does not show them.

        booted: `Site.booted` of the last reading.

        Raises:
            ReadFailed: they could not be read, or slurmctld was started again since that reading.
        """
        ...

    def resource_requests(self, job_ids: Collection[int]) -> Mapping[int, ResourceRequest]:
        """By job id, what these jobs request and how, of those that slurmctld lists.

        Raises:
            ReadFailed: the cluster could not be read.
        """
        ...

    def limits(self) -> Limits:
        """The limits of QOS, associations and partitions. Raises ReadFailed."""
        ...

    def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Carry the commands out in order; returns one outcome for each.

        A command that would change what a job does is refused where its id is not of the job of the last reading.
        """
        ...

    def now(self) -> float:
        """The cluster's time, seconds since the epoch."""
        ...

    def wait(self, until: float) -> bool:
        """Let time pass until `until`, seconds since the epoch, or sooner when woken; False ends the daemon's loop."""
        ...

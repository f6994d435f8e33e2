"""The facts of a job that Slurm tells: those that the ledger keeps of it, and what is read from them.

Reports load this module without NumPy, which takes long.
"""

from typing import NamedTuple

from slurmplug.cluster.states import LIVE_STATES
from slurmplug.cluster.tres import JobGPUs


class Resources(NamedTuple):
    """Amounts in all: whole GPUs, CPUs, and memory in MiB; in the order of `policies.snapshot.RESOURCES`."""

    gpus: int
    cpus: int
    memory: float


NO_RESOURCES = Resources(0, 0, 0.0)


class JobFacts(NamedTuple):
    """The columns of `JobRows` that describe a job, without its priority, which changes with every reading.

    None stands for NaN, so that equal facts compare equal.
    """

    job_id: int
    array_id: int
    array_task: int
    elements: int
    het_id: int
    uid: int
    user: str
    account: str
    qos: str
    partition: str
    state: str
    reason: str
    name: str
    comment: str
    dependency: str
    features: str
    reservation: str
    node_list: str
    batch: bool
    restarts: int
    submit: float
    eligible: float | None
    start: float | None
    end: float | None
    time_limit: float | None
    nodes: int
    cpus: int
    memory: float
    gpus: int
    gpu_type: str
    exit_code: int
    gpu_type_held: str
    shards: int
    array_tasks: str = ""
    suspended: float = 0.0

    @property
    def live(self) -> bool:
        """Whether the job has not ended."""
        return self.state in LIVE_STATES

    @property
    def of_gpus(self) -> JobGPUs:
        """Its GPUs, and of which types they are."""
        return JobGPUs(self.gpus, self.gpu_type, self.gpu_type_held, self.shards)

    @property
    def resources(self) -> Resources:
        """What it requests, or has once it runs."""
        return Resources(self.of_gpus.whole, self.cpus, self.memory)

    @property
    def shown_id(self) -> str:
        """As squeue shows it (`shown_id`)."""
        return shown_id(*[getattr(self, name) for name in SHOWN_ID])


SHOWN_ID = ("job_id", "array_id", "array_task", "elements", "het_id", "array_tasks")
"""The facts of a job that its shown id is made of."""


def shown_id(  # noqa: PLR0917 by `SHOWN_ID`
    job_id: int, array_id: int, array_task: int, elements: int, het_id: int, array_tasks: str
) -> str:
    """A job's id as squeue shows it: 12, or 10_3 of an array, 10_[4-7] of elements that still wait together, 12+1 of a
    heterogeneous job. 10_[x4] where it is not known which four elements wait."""
    if het_id:
        return f"{het_id}+{job_id - het_id}"
    if not array_id:
        return str(job_id)
    if array_task < 0:
        return f"{array_id}_[{array_tasks or f'x{elements}'}]"
    return f"{array_id}_{array_task}"

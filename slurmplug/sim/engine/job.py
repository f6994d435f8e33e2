"""The jobs of a workload: how each trains, known before any of them runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from predictors.arrays import Floats, Ints

NAN = float("nan")
_NOTHING: Floats = np.empty(0)


@dataclass(frozen=True, eq=False, slots=True)
class Speed:
    """Iterations a second of one model, measured at k points of (GPUs, nodes).

    Between two measured numbers of GPUs the logarithm of the rate is linear in that of the GPUs; outside it is flat.
    """

    gpus: Ints
    nodes: Ints
    rate: Floats

    def at(self, gpus: int, nodes: int) -> float:
        """Iterations a second on so many GPUs of so many nodes, from the points nearest in nodes."""
        if len(self.rate) == 1:
            return float(self.rate[0])
        near = self.nodes[np.abs(self.nodes - nodes).argmin()]
        chosen = np.flatnonzero(self.nodes == near)
        order = chosen[np.argsort(self.gpus[chosen])]
        return float(np.exp(np.interp(np.log(gpus), np.log(self.gpus[order]), np.log(self.rate[order]))))


@dataclass(frozen=True, eq=False, slots=True)
class ServerTraining:
    """How a job trains with parameter servers: from one to `most` of them, each on so many CPUs.

    times: (5,) how long an iteration takes by workers and servers (`policies.marginal_gain.server_speeds`). sampled:
    the same as its sample runs show it.
    """

    most: int
    cpus: int
    times: Floats
    sampled: Floats


@dataclass(frozen=True)
class Part:
    """One Slurm job of an ML job of several: `share` of the model's parameters, `parents` the parts it waits for."""

    gpus: int
    cpus: int
    memory: float
    role: str = ""
    share: float = 1.0
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class SimJob:
    """One job of a workload, an ML job or any other.

    Times are seconds from the workload's start, durations seconds, memory MiB. `curve_at` (k,), increasing, are the
    iterations at which `losses` and `accuracies` (k,) are known; between them they are linear. An ML job reports at
    each iteration at most, and ends after `iterations`, the number its user requested. A job that is not managed has
    one iteration, which takes its run time, no curve and no directives.
    """

    name: str
    submit: float
    gpus: int
    iterations: int
    speed: Speed
    user: str = "user"
    account: str = "account"
    qos: str = "normal"
    partition: str = "gpu"
    kind: str = ""
    gpu_type: str = ""
    """the type of GPU that it requests, empty for any; of a job in a log of Slurm, any if no node has that type"""
    type_speeds: Mapping[str, float] = field(default_factory=dict)
    """by type of GPU, by what factor it trains faster there than `speed` says, 1 on others"""
    gpus_min: int = 0
    """0: as `gpus`; else it is elastic from here"""
    gpus_max: int = 0
    cpus: int = 0
    """in all; 0: negligible"""
    cpus_requested: int = 0
    """of a job that was given whole nodes, and thus more than these; 0: `cpus`"""
    memory: float = 0.0
    time_limit: float = NAN
    curve_at: Floats = field(default_factory=lambda: _NOTHING)
    losses: Floats = field(default_factory=lambda: _NOTHING)
    accuracies: Floats = field(default_factory=lambda: _NOTHING)
    target: float = NAN
    """the requested accuracy"""
    deadline: float = NAN
    urgency: float = NAN
    utility: tuple[float, float, float] | None = None
    """OASiS' th1, th2 (per second), th3 (seconds)"""
    params: float = NAN
    work: str = ""
    """what its run time depends on, as `policies.snapshot.Jobs.work`"""
    stop: str = "iterations"
    downgrade: str = ""
    traffic: float = 0.0
    """bytes that an iteration sends between nodes where the job is spread over several"""
    checkpoint_every: float = 0.0
    """seconds between checkpoints of its own; 0: it saves on request, and loses nothing"""
    restart: float = 30.0
    """seconds that a start from a checkpoint, or with other GPUs, takes before it trains"""
    startup: float = 0.0
    """seconds that its first start takes before it trains"""
    runtime_noise: float = 0.0
    """standard deviation of the logarithm of what is forecast of its run time"""
    loss_noise: float = 0.0
    """standard deviation of the logarithm of each loss reduction that is forecast"""
    paces: Floats = field(default_factory=lambda: _NOTHING)
    """by what factor it trains faster than `speed` says, in each hour from the workload's start on, over and over; what
    is forecast knows only the present one; empty: always 1"""
    stated_iterations: int = 0
    """the iterations that its user states, and what is forecast goes by; 0: those that it does"""
    waited: float = NAN
    """seconds that it waited where it was recorded"""
    nodes: int = 0
    """Slurm gives it this number of nodes, and as much of each; up to 1: as few as can hold it"""
    exclusive: bool = False
    """Slurm gives it whole nodes"""
    managed: bool = True
    parts: tuple[Part, ...] = ()
    """its Slurm jobs, where it is more than one"""
    servers: ServerTraining | None = None
    """of a job with parameter servers: `speed` is then its speed with as many servers as GPUs"""

    @property
    def stated(self) -> int:
        """The iterations that its user states."""
        return self.stated_iterations or self.iterations

    def type_speed(self, gpu_types: Iterable[str]) -> float:
        """By what factor it trains faster on GPUs of these types than `speed` says: it waits for the slowest."""
        return min((self.type_speeds.get(each, 1.0) for each in gpu_types), default=1.0)


@dataclass(frozen=True)
class Workload:
    """Jobs in order of submission, and the cluster that they were recorded on or made for."""

    name: str
    jobs: tuple[SimJob, ...]
    nodes: int = 0
    gpus_a_node: int = 0
    skipped: int = 0
    """rows of its file that could not be used"""
    of_slurm: bool = False
    """whether it is the past of a Slurm cluster, rather than an experiment of a paper"""
    assumed: tuple[str, ...] = ()
    """what its jobs are taken for, a phrase each, where its file does not say it"""
    not_known: tuple[str, ...] = ()
    """what its file does not say, and the simulation does without"""

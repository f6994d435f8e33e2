"""The cluster at one moment, in columns: the input of every policy.

Every column of `Jobs` has one entry per job, so that a policy decides on 100,000 jobs without a Python loop. Times are
seconds since the epoch, durations are seconds, and NaN means not given or unknown.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts

RESOURCES = ("gpus", "cpus", "memory")
"""The columns of `Jobs.demand`, `Nodes.capacity`, `Nodes.used` and `Nodes.load`; memory in MiB."""


class JobKey(NamedTuple):
    """The permanent identity of a job: Slurm's job ids wrap around, and a requeue changes the submit time."""

    cluster: str
    job_id: int
    first_submit: int


@dataclass(frozen=True)
class Curves:
    """One curve per row: row i's points are `[starts[i]:starts[i + 1]]` of `iterations` and `values`."""

    iterations: Floats
    values: Floats
    starts: Ints

    def row(self, i: int) -> tuple[Floats, Floats]:
        """The iterations and the values of row i, in order of iteration."""
        points = slice(self.starts[i], self.starts[i + 1])
        return self.iterations[points], self.values[points]

    def lengths(self) -> Ints:
        """The number of points of each row."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class Jobs:
    """The pending and running jobs. A pending array is one row with its number of `elements`."""

    keys: tuple[JobKey, ...]
    elements: Ints
    restarts: Ints
    state: Texts
    """pending, running, suspended or completing"""
    reason: Texts
    """Slurm's reason for a pending job: Priority, Resources, Dependency, ..."""
    managed: Bools
    """slurmplug may rank the job and act on it"""
    held: Bools
    interactive: Bools
    user: Texts
    account: Texts
    qos: Texts
    partition: Texts
    name: Texts
    kind: Texts
    """`--type`: jobs of one kind train in the same way"""
    ml_job: Ints
    """the first row of the jobs that train the same model"""
    role: Texts
    """worker, ps, or empty"""

    submitted: Floats
    started: Floats
    suspended: Floats
    """seconds in which it was suspended since then"""
    expected: Floats
    """the start that Slurm expects for a pending job; NaN where it expects none"""
    time_limit: Floats
    waited: Floats
    """seconds eligible and pending, in this run and those before it"""
    attained: Floats
    """GPU seconds, in this run and those before it, without those in which it was suspended"""
    priority: Floats
    """Slurm's own priority, which includes the SiteFactor"""
    site_factor: Floats
    """the present SiteFactor, NaN where unknown"""
    factor_by_others: Bools
    """somebody else than slurmplug set the SiteFactor"""
    nice: Ints
    """what its user took off its priority"""
    surplus: Floats
    """what a change of its request since its SiteFactor was set added to its priority, and is to be taken off"""
    taken_out: Bools
    """its directives were changed so that slurmplug does not manage it any more"""

    gpus: Ints
    """requested, or held by a running job"""
    gpus_min: Ints
    gpus_max: Ints
    demand: Floats
    """(n, resources)"""
    requested: Floats
    """(n, resources): what its user asked for, whatever it was given since; what it had, where it was never seen to
    wait"""
    placement: Ints
    """placement class: a row of `Snapshot.fits`"""
    gpu_type: Texts
    """of the GPUs that the job holds; of a job that waits, as it requests or, where it may run on one type alone, that
    one; empty where not known, and for several types"""
    part_of_gpu: Bools
    """it holds or requests MIG instances or shards; of whole GPUs it has none, so that `gpus` is 0"""

    urgency: Floats
    deadline: Floats
    target: Floats
    """the value that the curve in `accuracies` is to reach, higher being better"""
    unit_mismatch: Texts
    """percent or share: what the job seems to report, while its target is the other; empty where nothing speaks for
    that"""
    requires_target: Bools
    """a stop before the target is met is a failure of the job"""
    quantity: Texts
    """the reported quantity that `accuracies` and `target` are about"""
    sign: Floats
    """-1 where that quantity is better when lower, and negated there; else 1"""
    max_iterations: Floats
    params: Floats
    work: Texts
    """what its run time may depend on, as its user declares it: name:number or name:kind, joined by commas in the order
    of the names; empty for nothing"""
    utility: Floats
    """(n, 3): OASiS' th1, th2 (per second), th3 (seconds)"""
    stop: Texts
    """iterations, optstop or target"""
    trials: Texts
    """empty: one training, as far as is known; all: several, one after the other, each of which runs to its end; first:
    several, and the first that meets the target ends the job"""
    downgrade: Texts
    """the stop option that slurmplug may apply under overload: empty, optstop or target"""
    signal: Texts
    """as declared with --checkpoint: USR1; empty for none"""
    signal_to: Texts
    """batch, steps or full"""
    grace: Floats
    """seconds from a request to stop to the next step"""
    restartable: Bools
    """declared --checkpoint: after a requeue the job resumes from there"""
    awaits: Bools
    """held since its submission until a policy admits the job"""
    traffic: Floats
    """bytes a second sent between nodes, as reported"""
    network: Floats
    """share of the bandwidth of its nodes' networks in use, in [0, 1], as the job reports it; NaN where it does not"""

    gpus_used: Floats
    """when it last reported that its GPUs were not idle, 0 if it never did; NaN where it does not report their use, or
    has not lately"""

    iteration: Floats
    """iterations reported as done, 0 before the first report"""
    iteration_time: Floats
    """median seconds an iteration in this run"""
    checkpoint: Floats
    """the iteration of the last checkpoint"""
    checkpointed: Floats
    """when the last checkpoint was reported"""
    resumed: Floats
    """the first iteration reported in this run"""
    reported: Floats
    """the time of the last report"""
    not_finite: Ints
    """how many of the last reports in a row had a loss (without losses: what is in `accuracies`) of NaN or infinity"""
    losses: Curves
    accuracies: Curves
    """the quantity by which the job is judged: that of its --stop, else of its target, else accuracy, else one measured
    on validation data; negated where lower is better; only finite values"""
    validation_losses: Curves
    """the loss on validation data, negated, of jobs that are judged by another quantity"""
    parents: Ints
    """(edges, 2): a row and the row that it depends on, -1 if missing"""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def pending(self) -> Bools:
        """(n,) whether the job is pending; read only and cached, as `running`, since comparing texts is slow."""
        return _read_only(self.state == "pending")

    @cached_property
    def running(self) -> Bools:
        """(n,) whether the job runs; read only."""
        return _read_only(self.state == "running")


@dataclass(frozen=True)
class Nodes:
    """The nodes; `capacity`, `used` and `load` have a column for each of `RESOURCES`.

    GPUs are whole ones: MIG instances are not counted, and a GPU of which shards are in use is in use.
    """

    names: tuple[str, ...]
    up: Bools
    capacity: Floats
    used: Floats
    load: Floats
    """use as Slurm measures it, in the unit of the capacity; NaN where unknown"""
    gpu_types: tuple[str, ...] = ()
    """the types of GPUs of any node, by name"""
    of_type: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """(nodes, types): the GPUs of each type; as `of_type_used`, empty where no type is known"""
    of_type_used: Floats = field(default_factory=lambda: np.zeros((0, 0)))


@dataclass(frozen=True)
class JobServers:
    """The parameter servers of the n jobs; each holds CPUs of a node, and no GPU. Only simulated jobs have any.

    most: (n,) that a job may have; 0 for one that synchronises by all-reduce. Another trains with one at least. cpus:
    (n,) of each. Columns of `Jobs` count as many servers as GPUs. times: (n, 5) how long an iteration takes by workers
    and servers, as the job's sample runs show it (`policies.marginal_gain.server_speeds`). on: (allocations,) the
    servers of each row of `Snapshot.runs_on`.
    """

    most: Ints
    cpus: Floats
    times: Floats
    on: Ints

    @classmethod
    def none(cls, jobs: int, allocations: int) -> "JobServers":
        """The columns for so many jobs and allocations without parameter servers."""
        most, on = np.zeros(jobs, dtype=np.int64), np.zeros(allocations, dtype=np.int64)
        return cls(most, np.zeros(jobs), np.full((jobs, 5), np.nan), on)


@dataclass(frozen=True)
class Snapshot:
    """The complete input of a decision. A policy takes its time from `now` and its randomness from `seed`."""

    cycle: int
    now: float
    seed: int
    jobs: Jobs
    nodes: Nodes
    fits: Bools
    """(placement classes, nodes): whether partition, features, reservation and typed gres allow a job there"""
    runs_on: Ints
    """(allocations, 3): job row, node row, GPUs"""
    type_of_class: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(placement classes,): the one type of GPU that jobs of the class request, by its place in `Nodes.gpu_types`; -1
    for any. Empty where no class requests one"""
    missing: int = 0
    """how many jobs were alive at the last reading and are now listed neither alive nor ended"""
    servers: JobServers | None = None
    """None where no job has parameter servers"""

    @cached_property
    def elapsed(self) -> Floats:
        """(n,) seconds that each job has run since its start, as Slurm counts them against its time limit: without
        those in which it was suspended, and 0 while it is pending; read only."""
        jobs = self.jobs
        found = np.nan_to_num(np.maximum(self.now - jobs.started - jobs.suspended, 0.0))
        found.flags.writeable = False
        return found


def _read_only(column: Bools) -> Bools:
    column.flags.writeable = False
    return column

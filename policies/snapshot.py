"""What is: the cluster at one moment, in columns.

Every column of `Jobs` has one entry a job, so that a policy decides 100,000 jobs without a Python loop. Times are
seconds since the epoch, durations are seconds, and NaN stands for what was not given or is not known.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts

RESOURCES = ("gpus", "cpus", "memory")
"""The columns of `Jobs.demand`, `Nodes.capacity`, `Nodes.used` and `Nodes.load`; memory in MiB."""


class JobKey(NamedTuple):
    """What names a job for ever: Slurm's job ids wrap and a requeue changes the submit time."""

    cluster: str
    job_id: int
    first_submit: int


@dataclass(frozen=True)
class Curves:
    """A curve for each row: row i's points are `[starts[i]:starts[i + 1]]` of `iterations` and `values`."""

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
    """The jobs that wait or run. A pending array is one row of so many `elements`."""

    keys: tuple[JobKey, ...]
    elements: Ints
    restarts: Ints
    state: Texts
    """pending, running, suspended or completing"""
    reason: Texts
    """why Slurm says that it waits: Priority, Resources, Dependency, ..."""
    managed: Bools
    """slurmplug may rank it and act on it"""
    held: Bools
    interactive: Bools
    user: Texts
    account: Texts
    qos: Texts
    partition: Texts
    name: Texts
    kind: Texts
    """`--type`: jobs of one kind train alike"""
    ml_job: Ints
    """the first row of the jobs that train the same model"""
    role: Texts
    """worker, ps, or empty"""

    submitted: Floats
    started: Floats
    expected: Floats
    """when Slurm expects it to start, while it waits; NaN where it does not say"""
    time_limit: Floats
    waited: Floats
    """seconds eligible and pending, in this run and those before it"""
    attained: Floats
    """GPU seconds, likewise"""
    priority: Floats
    """Slurm's own, with the label in it"""
    label: Floats
    """the SiteFactor in place, NaN where not known"""

    gpus: Ints
    """asked for, or held while it runs"""
    gpus_min: Ints
    gpus_max: Ints
    demand: Floats
    """(n, resources)"""
    placement: Ints
    """row of `Snapshot.fits`"""

    urgency: Floats
    deadline: Floats
    target: Floats
    """of the curve in `accuracies`: the value to reach, higher being better"""
    max_iterations: Floats
    params: Floats
    utility: Floats
    """(n, 3): OASiS' th1, th2 (per second), th3 (seconds)"""
    stop: Texts
    """iterations, optstop or target"""
    downgrade: Texts
    """how far the system may go under overload: empty, optstop or target"""
    signal: Texts
    """as declared with --checkpoint: USR1; empty for none"""
    signal_to: Texts
    """batch, steps or full"""
    grace: Floats
    """seconds from a request to its next step"""
    restartable: Bools
    """it declared a checkpoint, by --checkpoint: once requeued it goes on from there"""
    awaits: Bools
    """held since its submission until a policy admits it"""
    traffic: Floats
    """bytes a second that it sends between nodes, as it reported"""

    iteration: Floats
    """how many it has reported as done, 0 before the first report"""
    iteration_time: Floats
    """median seconds an iteration in this run"""
    checkpoint: Floats
    """the iteration of the last checkpoint"""
    checkpointed: Floats
    """when that was reported"""
    resumed: Floats
    """the first iteration that this run reported"""
    reported: Floats
    """when the last report was made"""
    losses: Curves
    accuracies: Curves
    """the quantity that the target names (accuracy where it names none), negated where lower is better"""
    parents: Ints
    """(edges, 2): row, row that it depends on"""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def pending(self) -> Bools:
        """(n,) read only, as `running`: texts are slow to compare, and every part of a decision asks."""
        return _read_only(self.state == "pending")

    @cached_property
    def running(self) -> Bools:
        """(n,)"""
        return _read_only(self.state == "running")


@dataclass(frozen=True)
class Nodes:
    """The nodes, in columns of the resources."""

    names: tuple[str, ...]
    up: Bools
    capacity: Floats
    used: Floats
    load: Floats
    """measured use of what is shared, in the unit of the capacity; NaN where nothing tells it"""
    load_age: Floats
    """seconds since the oldest figure of the load was measured"""
    network: Floats
    """share of the network's bandwidth in use, in [0, 1]; NaN where nothing tells it"""


@dataclass(frozen=True)
class Snapshot:
    """All that a decision may look at. A policy takes its time from `now` and its randomness from `seed`."""

    cycle: int
    now: float
    seed: int
    jobs: Jobs
    nodes: Nodes
    fits: Bools
    """(placement classes, nodes): partition, features, reservation and typed gres allow it there"""
    runs_on: Ints
    """(allocations, 3): job row, node row, GPUs"""


def _read_only(column: Bools) -> Bools:
    column.flags.writeable = False
    return column

"""What slurmplug knows of one job, as the intake holds it and the ledger keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from policies.snapshot import JobKey
from predictors.arrays import Floats
from slurmplug.directives import Directives
from slurmplug.progress import Fault, Points

LIVE_STATES = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD "
    "SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED".split()
)
"""Slurm's long names of the states that a job leaves again (squeue(1), JOB STATE CODES)."""


class JobFacts(NamedTuple):
    """The columns of `JobRows` that describe a job, less its priority, which changes with every look.

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

    @property
    def live(self) -> bool:
        return self.state in LIVE_STATES


@dataclass
class JobRecord:
    """One job. `label`: the SiteFactor in place, NaN where not known. The two `before`s sum over runs that ended."""

    key: JobKey
    facts: JobFacts
    directives: Directives | None = None
    """None until they were looked for"""
    points: Points = field(default_factory=Points)
    """what it reported, of the runs before as far as this one has not repeated it"""
    points_of: int = 0
    """the restart that reported last"""
    label: float = 0.0
    waited_before: float = 0.0
    attained_before: float = 0.0

    @property
    def managed(self) -> bool:
        """Whether its user put it into slurmplug's hands: a batch job with directives, be it mistaken ones."""
        given = self.directives
        return given is not None and self.facts.batch and given.managed and given != Directives()

    @property
    def quantity(self) -> str:
        """What its target is about."""
        return self.directives.target.quantity if self.directives and self.directives.target else "accuracy"

    @property
    def sign(self) -> float:
        """-1 where the target's quantity is better when lower."""
        lower = self.directives and self.directives.target and self.directives.target.relation == "<="
        return -1.0 if lower else 1.0

    def curve(self, quantity: str) -> tuple[Floats, Floats]:
        """The iterations at which the quantity was told, and its values."""
        values = self.points.quantities.get(quantity, np.full(len(self.points), np.nan))
        told = ~np.isnan(values)
        return self.points.iterations[told], values[told]


class Point(NamedTuple):
    """One report of a job, as it is added to the ledger."""

    key: JobKey
    restarts: int
    iteration: float
    time: float
    quantities: Mapping[str, float]


def below(points: Points, iteration: float) -> Points:
    """The points before an iteration: what a run that went on from a checkpoint leaves of the run before."""
    kept = points.iterations < iteration
    quantities = {name: column[kept] for name, column in points.quantities.items()}
    return replace(points, iterations=points.iterations[kept], times=points.times[kept], quantities=quantities)


@dataclass(frozen=True)
class Changes:
    """What a reading brought that the ledger does not have: jobs new or changed, points, and faults of the spool."""

    now: float
    records: tuple[JobRecord, ...] = ()
    points: tuple[Point, ...] = ()
    faults: tuple[Fault, ...] = ()

    def after(self, earlier: "Changes | None") -> "Changes":
        """These and those of a reading before, which were never written."""
        if earlier is None:
            return self
        records = {record.key: record for record in (*earlier.records, *self.records)}
        return Changes(
            now=self.now,
            records=tuple(records.values()),
            points=earlier.points + self.points,
            faults=earlier.faults + self.faults,
        )

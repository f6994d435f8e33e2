"""What slurmplug knows of one job, as the intake holds it and the ledger keeps it."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from policies.snapshot import JobKey
from predictors.arrays import Floats
from slurmplug.directives.parser import Directives
from slurmplug.spool.report_lines import Points, SpoolFault

LIVE_STATES = frozenset(
    "PENDING RUNNING SUSPENDED COMPLETING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING RESV_DEL_HOLD "
    "SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED".split()
)
"""Slurm's long names of the states that a job leaves again (squeue(1), JOB STATE CODES)."""


Admission: TypeAlias = Literal["", "new", "held", "gone"]


def admitted(before: Admission, facts: "JobFacts", priority: float) -> Admission:
    """Where a job stands on its way to admission, by what is seen of it now.

    A hold that was an administrator's and is its user's now was let go in between, by whomever. A held job's priority
    is 0, also where its reason tells of something else, such as a dependency.
    """
    if before == "gone" or facts.state != "PENDING" or priority != 0 or facts.restarts:
        return "gone"
    if facts.reason == "JobHeldAdmin":
        return "held"
    return "gone" if before == "held" and facts.reason == "JobHeldUser" else before or "new"


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


NO_DIRECTIVES = Directives()
_next_version = itertools.count(1).__next__
_set = object.__setattr__


@dataclass(slots=True)
class JobRecord:
    """One job. `site_factor`: the one in place, NaN where not known. The two `before`s sum over runs that ended.

    `listed`: whether Slurm's controller still lists it, as it does an ended job for a while. `admission`: new, held
    since it was first seen; held, by an administrator since; gone, let go: whatever holds it now is no admission.

    Whoever assigns to a field gives the record a new `version`, which no other record ever had. Values are replaced
    and never changed in place, so that two looks at the same version see the same record.
    """

    key: JobKey
    facts: JobFacts
    directives: Directives | None = None
    """None until they were looked for"""
    points: Points = field(default_factory=Points)
    """what the run that reported last told, and the last checkpoint of all runs"""
    points_of: int = 0
    """the restart of that run"""
    earlier: Points = field(default_factory=Points)
    """what the runs before it told"""
    site_factor: float = 0.0
    waited_before: float = 0.0
    attained_before: float = 0.0
    listed: bool = True
    admission: Admission = ""
    version: int = field(init=False, repr=False, compare=False)

    def __setattr__(self, name: str, value: object) -> None:
        _set(self, name, value)
        _set(self, "version", _next_version())

    @property
    def managed(self) -> bool:
        """Whether its user put it into slurmplug's hands: a batch job with directives, be it mistaken ones."""
        given = self.directives
        return given is not None and self.facts.batch and given.managed and given != NO_DIRECTIVES

    @property
    def awaits(self) -> bool:
        """Whether it is held since its submission, until a policy admits it."""
        asked = self.managed and self.directives is not None and self.directives.utility is not None
        return asked and self.admission in ("new", "held")

    @property
    def quantity(self) -> str:
        """What its target is about."""
        return self.directives.target.quantity if self.directives and self.directives.target else "accuracy"

    @property
    def sign(self) -> float:
        """-1 where the target's quantity is better when lower."""
        lower = self.directives and self.directives.target and self.directives.target.relation == "<="
        return -1.0 if lower else 1.0

    @property
    def all_points(self) -> Points:
        """What all its runs told: the last one, and those before as far as it has not repeated them."""
        return joined(self.earlier, self.points)


def values_of(points: Points, quantity: str) -> tuple[Floats, Floats]:
    """The iterations at which the quantity was told, and its values."""
    values = points.quantities.get(quantity)
    if values is None:
        return _NO_CURVE
    told = ~np.isnan(values)
    return points.iterations[told], values[told]


_NO_CURVE = (np.empty(0), np.empty(0))


class Point(NamedTuple):
    """One report of a job, as the ledger keeps it; quantities of None: it is kept no more."""

    key: JobKey
    restarts: int
    iteration: float
    time: float
    quantities: Mapping[str, float] | None

    @property
    def place(self) -> tuple[JobKey, int, float]:
        return self.key, self.restarts, self.iteration


def joined(before: Points, after: Points) -> Points:
    """The points of a run and of those before it, as far as it has not repeated them: it began at a checkpoint."""
    if not len(before):
        return after
    if not len(after):
        return _with_checkpoint(before, after)
    kept = before.iterations < after.iterations[0]
    nothing = np.full(len(before), np.nan), np.full(len(after), np.nan)
    return Points(
        iterations=np.append(before.iterations[kept], after.iterations),
        times=np.append(before.times[kept], after.times),
        quantities={
            name: np.append(before.quantities.get(name, nothing[0])[kept], after.quantities.get(name, nothing[1]))
            for name in before.quantities.keys() | after.quantities.keys()
        },
        checkpoint=after.checkpoint,
        checkpoint_time=after.checkpoint_time,
        load=after.load,
        load_time=after.load_time,
    )


def of_next_run(points: Points) -> Points:
    """What the points of a run leave to the run after it, before that has told any: the checkpoint."""
    return _with_checkpoint(Points(), points)


def _with_checkpoint(points: Points, other: Points) -> Points:
    return replace(points, checkpoint=other.checkpoint, checkpoint_time=other.checkpoint_time)


@dataclass(frozen=True)
class Changes:
    """What a reading brought that the ledger does not have: jobs new or changed, points, and faults of the spool.

    Of each place there is one point.
    """

    now: float
    records: tuple[JobRecord, ...] = ()
    points: tuple[Point, ...] = ()
    faults: tuple[SpoolFault, ...] = ()

    def after(self, earlier: "Changes | None") -> "Changes":
        """These and those of a reading before, which were never written."""
        if earlier is None:
            return self
        records = {record.key: record for record in (*earlier.records, *self.records)}
        return Changes(
            now=self.now,
            records=tuple(records.values()),
            points=tuple({point.place: point for point in (*earlier.points, *self.points)}.values()),
            faults=earlier.faults + self.faults,
        )

"""The record of one job, which the intake updates and the ledger stores."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from policies.snapshot import JobKey
from predictors.arrays import Floats
from slurmplug.directives import quantities
from slurmplug.directives.changes import Change, in_force
from slurmplug.directives.parser import Directives
from slurmplug.intake.job_facts import NO_RESOURCES, JobFacts, Resources
from slurmplug.intake.site_factor import SiteFactor
from slurmplug.spool.values import REPORTED_NAN, Points, SpoolFault

if TYPE_CHECKING:
    from slurmplug.cluster.port import Submission

Admission: TypeAlias = Literal["", "new", "held", "gone"]


def next_admission(before: Admission, facts: JobFacts, priority: float) -> Admission:
    """The state of a job's admission after a reading.

    A job under its user's hold that was under an administrator's was released in between. A held job's priority is 0,
    even where its reason is another one, such as a dependency.
    """
    if before == "gone" or facts.state != "PENDING" or priority != 0 or facts.restarts:
        return "gone"
    if facts.reason == "JobHeldAdmin":
        return "held"
    return "gone" if before == "held" and facts.reason == "JobHeldUser" else before or "new"


NO_DIRECTIVES = Directives()


def is_managed(batch: bool, directives: Directives | None, *, in_doubt: bool) -> bool:
    """Whether slurmplug may act on a job: a batch job with directives, of which one at least is no mistake."""
    if not batch or in_doubt or directives is None or not directives.managed:
        return False
    problems = directives.problems
    return directives != (replace(NO_DIRECTIVES, problems=problems) if problems else NO_DIRECTIVES)


class JudgedBy(NamedTuple):
    """A reported quantity by which a job is judged: -1 is the `sign` of one that is better when lower."""

    quantity: str
    sign: float


def judged_by(directives: Directives, reported: Collection[str]) -> JudgedBy:
    """The quantity by which a job is judged: that of its target, else of its --stop, else accuracy, else the first of
    those measured on validation data. A training loss that nobody named says nothing of how good the model is.

    reported: the names of the quantities that it reported.
    """
    target = directives.target
    if target is not None:
        return JudgedBy(target.quantity, 1.0 if target.relation == ">=" else -1.0)
    chosen = directives.stop_quantity
    if not chosen and "accuracy" not in reported:
        chosen = quantities.validation_quantity(reported) or ""
    what = quantities.known(chosen or "accuracy")
    return JudgedBy(chosen or "accuracy", what.sign if what else 1.0)


_next_version = itertools.count(1).__next__
_set = object.__setattr__


@dataclass(slots=True)
class JobRecord:
    """One job. The two `before`s sum over runs that ended.

    `listed`: whether Slurm's controller still lists it, as it does an ended job for a while. `admission`: "new" while
    it is held since it was first seen, "held" once an administrator holds it, "gone" after its release: no later hold
    is one for admission.

    Assigning to a field gives the record a new `version`, which no other record ever had. Values are replaced, never
    changed in place: a version always means the same values.
    """

    key: JobKey
    facts: JobFacts
    directives: Directives | None = None
    """those in force; None until its script was read"""
    digest: str = ""
    """of its script (`identity.digest_of`); empty until that was read, and where it has none"""
    in_doubt: bool = False
    """whether its id may have been taken over by another job: then nothing is done to it"""
    points: Points = field(default_factory=Points)
    """the points of the run that reported last, and the last checkpoint of all runs"""
    points_run: int = 0
    """the restart count of the run that `points` belong to"""
    earlier: Points = field(default_factory=Points)
    """the points of the runs before that one, of the trial in which they ended"""
    placed: SiteFactor = field(default_factory=SiteFactor)
    surplus: float = 0.0
    """as `policies.snapshot.Jobs.surplus`; the ledger does not keep it"""
    waited_before: float = 0.0
    attained_before: float = 0.0
    requested: Resources = NO_RESOURCES
    """what its user asked for, as far as it was seen waiting; else what it had when it was first seen"""
    listed: bool = True
    admission: Admission = ""
    submitted_directives: Directives | None = None
    """what script and comment say, where that was changed since; None where it is in force as it is"""
    changes: tuple[Change, ...] = ()
    """of its directives since the submission, the earliest first"""
    version: int = field(init=False, repr=False, compare=False)

    def __setattr__(self, name: str, value: object) -> None:
        _set(self, name, value)
        _set(self, "version", _next_version())

    def change_directives(self, change: Change) -> bool:
        """Put a change of its directives in force; False if its script was not read yet, or the change is known."""
        if self.directives is None or any(known.id == change.id for known in self.changes):
            return False
        submitted = self.submitted_directives or self.directives
        self.submitted_directives, self.changes = submitted, (*self.changes, change)
        self.directives = in_force(submitted, self.changes)
        return True

    @property
    def taken_out(self) -> bool:
        """Whether a change of its directives took it out of slurmplug's hands."""
        return bool(self.changes) and not self.managed and not self.in_doubt

    @property
    def site_factor(self) -> float:
        """The SiteFactor in place, NaN where not known."""
        return self.placed.value

    @property
    def managed(self) -> bool:
        """Whether slurmplug may act on it: a batch job with directives, of which one at least is no mistake."""
        return is_managed(self.facts.batch, self.directives, in_doubt=self.in_doubt)

    @property
    def settled(self) -> bool:
        """Whether an unchanged row of the queue says nothing new about it."""
        return self.admission == "gone" and not self.in_doubt

    @property
    def submissions(self) -> "tuple[Submission, Submission]":
        """The first and the latest time at which it was submitted or requeued."""
        job_id = self.facts.job_id
        return (job_id, self.key.first_submit), (job_id, int(self.facts.submit))

    @property
    def awaits(self) -> bool:
        """Whether it is held since its submission, until a policy admits it."""
        priced = self.managed and self.directives is not None and self.directives.utility is not None
        return priced and self.admission in ("new", "held")

    @property
    def judged_by(self) -> JudgedBy:
        """The reported quantity by which the job is judged."""
        return judged_by(
            self.directives or NO_DIRECTIVES, self.points.quantities.keys() | self.earlier.quantities.keys()
        )

    @property
    def trials(self) -> str:
        """As `policies.snapshot.Jobs.trials`."""
        declared = self.directives.trials if self.directives else None
        return declared or ("all" if self.points.several else "")

    @property
    def all_points(self) -> Points:
        """The points of its present trial in all its runs; where a run repeated iterations of those before, its own."""
        return join_runs(self.earlier, self.points)


def values_of(points: Points, quantity: str) -> tuple[Floats, Floats]:
    """The iterations at which a finite value of the quantity was reported, and these values."""
    values = points.quantities.get(quantity)
    if values is None:
        return _NO_VALUES
    reported = np.isfinite(values) & (values != REPORTED_NAN)
    return points.iterations[reported], values[reported]


def last_not_finite(points: Points, quantity: str) -> int:
    """How many of the last reports of the quantity in a row were NaN or infinite."""
    values = points.quantities.get(quantity)
    if values is None:
        return 0
    reported = values[~np.isnan(values)]
    finite = np.flatnonzero(np.isfinite(reported) & (reported != REPORTED_NAN))
    return len(reported) - 1 - int(finite[-1]) if len(finite) else len(reported)


_NO_VALUES = (np.empty(0), np.empty(0))


class Point(NamedTuple):
    """One report of a job, as the ledger stores it; None for the quantities deletes it there."""

    key: JobKey
    restarts: int
    trial: int
    iteration: float
    time: float
    quantities: Mapping[str, float] | None

    @property
    def primary_key(self) -> tuple[JobKey, int, int, float]:
        """Its key in the ledger: the job, its restart count, the trial and the iteration."""
        return self.key, self.restarts, self.trial, self.iteration


def join_runs(before: Points, after: Points) -> Points:
    """The points of the trial in which a run is, and of the runs before it up to the iteration at which it resumed.

    A run that has been in another trial did not resume in this one.
    """
    present = after.of_trial(after.trial)
    if not len(before) or before.trial != after.trial or len(present) < len(after):
        return present
    after = present
    if not len(after):
        return replace(
            after, iterations=before.iterations, times=before.times, quantities=before.quantities,
            trial_of=before.trial_of,
        )  # fmt: skip
    kept = before.iterations < after.iterations[0]
    nothing = np.full(len(before), np.nan), np.full(len(after), np.nan)
    return replace(
        after,
        iterations=np.append(before.iterations[kept], after.iterations),
        times=np.append(before.times[kept], after.times),
        quantities={
            name: np.append(before.quantities.get(name, nothing[0])[kept], after.quantities.get(name, nothing[1]))
            for name in before.quantities.keys() | after.quantities.keys()
        },
        trial_of=np.append(before.trial_of[kept], after.trial_of),
    )


def carried_over(points: Points) -> Points:
    """The points with which the next run begins: none, but the last checkpoint, what is known of the
    trials, and how much its GPUs were in use."""
    return Points(
        checkpoint=points.checkpoint,
        checkpoint_time=points.checkpoint_time,
        trials=points.trials,
        trial=points.trial,
        first=points.first,
        gpu_use=points.gpu_use,
    )


@dataclass(frozen=True)
class Changes:
    """What of a reading the ledger has to store: new and changed jobs, points (one per primary key), and faults."""

    now: float
    records: tuple[JobRecord, ...] = ()
    points: tuple[Point, ...] = ()
    faults: tuple[SpoolFault, ...] = ()

    def after(self, earlier: "Changes | None") -> "Changes":
        """These changes and earlier ones that were not stored."""
        if earlier is None:
            return self
        records = {record.key: record for record in (*earlier.records, *self.records)}
        return Changes(
            now=self.now,
            records=tuple(records.values()),
            points=tuple({point.primary_key: point for point in (*earlier.points, *self.points)}.values()),
            faults=earlier.faults + self.faults,
        )

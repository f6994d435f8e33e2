"""The jobs of a snapshot, in columns, from the records of jobs: one table says where each column comes from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Curves, Jobs
from predictors.arrays import Floats, Ints
from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.tres import JobGPUs
from slurmplug.directives import quantities
from slurmplug.directives.parser import Directives
from slurmplug.intake.eligibility import PlacementClass
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import NO_DIRECTIVES, JobRecord, JudgedBy, last_not_finite, values_of
from slurmplug.intake.node_load import gpus_used, reported_load
from slurmplug.intake.target_unit import UnitMismatch, unit_mismatch
from slurmplug.spool.values import Points

Columns: TypeAlias = dict[str, NDArray[Any]]

NAN = float("nan")
_MAX_DEPENDENCIES = 64
"""of one job that are read"""
_RECENT_REPORTS = 20
"""whose times give the time of an iteration"""
_NAME_LENGTH = 128
_SECONDS_PER_HOUR = 3600.0
_NEVER = "DependencyNeverSatisfied"
_STATES = {
    "RUNNING": "running", "CONFIGURING": "running", "RESIZING": "running", "SIGNALING": "running",
    "STAGE_OUT": "running", "SUSPENDED": "suspended", "STOPPED": "suspended", "COMPLETING": "completing",
}  # fmt: skip
"""Every other state of a live job is pending."""


class _Job(NamedTuple):
    """What the columns of one job are computed from."""

    record: JobRecord
    facts: JobFacts
    directives: Directives
    """empty where they were not read yet"""
    points: Points
    """of its present trial in all its runs, with iterations counted from 1"""
    judged_by: JudgedBy
    gpus: JobGPUs


class _Column(NamedTuple):
    """One column that depends on the record alone: `value` is a dotted attribute of a `_Job`, or computed from one."""

    name: str
    dtype: Any
    value: str | Callable[[_Job], Any]

    def of(self, jobs: Sequence[_Job]) -> NDArray[Any]:
        """(n,) or, of a dtype with a shape, (n, ...); None becomes NaN in a column of floats."""
        values = map(attrgetter(self.value) if isinstance(self.value, str) else self.value, jobs)
        return np.array([*values], np.str_) if self.dtype is str else np.fromiter(values, self.dtype, len(jobs))


_SNAPSHOT_COLUMNS = (
    _Column("elements", int, "facts.elements"),
    _Column("restarts", int, "facts.restarts"),
    _Column("state", str, lambda job: _STATES.get(job.facts.state, "pending")),
    _Column("reason", str, "facts.reason"),
    _Column("managed", bool, "record.managed"),
    _Column("interactive", bool, lambda job: not job.facts.batch),
    _Column("user", str, "facts.user"),
    _Column("account", str, "facts.account"),
    _Column("qos", str, "facts.qos"),
    _Column("partition", str, "facts.partition"),
    _Column("name", str, lambda job: job.facts.name[:_NAME_LENGTH]),
    _Column("kind", str, lambda job: job.directives.type or ""),
    _Column("role", str, lambda job: job.directives.role or ""),
    _Column("submitted", float, "record.key.first_submit"),
    _Column("suspended", float, "facts.suspended"),
    _Column("time_limit", float, "facts.time_limit"),
    _Column("site_factor", float, "record.site_factor"),
    _Column("factor_by_others", bool, "record.placed.by_others"),
    _Column("surplus", float, "record.surplus"),
    _Column("taken_out", bool, "record.taken_out"),
    _Column("gpus", int, "gpus.whole"),
    _Column("gpus_min", int, lambda job: _range(job)[0]),
    _Column("gpus_max", int, lambda job: _range(job)[1]),
    _Column("demand", (float, 3), attrgetter("gpus.whole", "facts.cpus", "facts.memory")),
    _Column("requested", (float, 3), "record.requested"),
    _Column("gpu_type", str, "gpus.only_type"),
    _Column("part_of_gpu", bool, "gpus.are_parts"),
    _Column("urgency", float, "directives.urgency"),
    _Column("deadline", float, "directives.deadline"),
    _Column("target", float, lambda job: job.directives.target and job.judged_by.sign * job.directives.target.value),
    _Column("unit_mismatch", str, lambda job: _unit_mismatch(job.directives, job.points)),
    _Column("requires_target", bool, lambda job: job.directives.require_target is not None),
    _Column("quantity", str, "judged_by.quantity"),
    _Column("sign", float, "judged_by.sign"),
    _Column("max_iterations", float, "directives.max_iterations"),
    _Column("params", float, "directives.model_params"),
    _Column("work", str, "directives.work"),
    _Column("utility", (float, 3), lambda job: _utility(job.directives)),
    _Column("stop", str, "directives.stop_option"),
    _Column("trials", str, "record.trials"),
    _Column("downgrade", str, lambda job: job.directives.allow_downgrade or ""),
    _Column("signal", str, lambda job: (job.directives.checkpoint and job.directives.checkpoint.signal) or ""),
    _Column("signal_to", str, lambda job: job.directives.checkpoint.way if job.directives.checkpoint else ""),
    _Column("grace", float, lambda job: job.directives.checkpoint and job.directives.checkpoint.grace),
    _Column("restartable", bool, lambda job: job.directives.checkpoint is not None),
    _Column("awaits", bool, "record.awaits"),
    _Column("iteration", float, lambda job: job.points.iterations[-1] if len(job.points) else 0.0),
    _Column("iteration_time", float, lambda job: _iteration_time(job.points, job.facts.start or 0.0)),
    _Column("checkpoint", float, "points.checkpoint"),
    _Column("checkpointed", float, "points.checkpoint_time"),
    _Column("resumed", float, lambda job: _resumed(job.record)),
    _Column("not_finite", int, lambda job: _not_finite(job.points, job.judged_by.quantity)),
    _Column("reported", float, lambda job: job.points.times[-1] if len(job.points) else NAN),
)  # fmt: skip
"""The columns of `policies.snapshot.Jobs` that depend on a job's record alone."""

_OTHER_COLUMNS = (
    _Column("admin_held", bool, lambda job: job.facts.reason.startswith("JobHeld")),
    _Column("ml_job_name", object, lambda job: _ml_job_name(job.record)),
    _Column("eligible", float, "facts.eligible"),
    _Column("start", float, "facts.start"),
    _Column("waited_before", float, "record.waited_before"),
    _Column("attained_before", float, "record.attained_before"),
    _Column("class", object, lambda job: _placement_class(job.facts)),
    _Column("reports_load", bool, lambda job: bool(job.record.points.load)),
    _Column("depends", bool, lambda job: bool(job.facts.dependency) or job.facts.reason == _NEVER),
    _Column("losses", object, lambda job: _curve(job.points, "loss", 1.0)),
    _Column("accuracies", object, lambda job: _curve(job.points, *job.judged_by)),
    _Column("validation_losses", object, lambda job: _validation_loss(job.points, job.judged_by.quantity)),
)
"""Columns from which the remaining ones are computed, which depend on the time or on other jobs."""


class ColumnCache:
    """Makes the columns of a snapshot's jobs; a row is computed again only when its record has a new version."""

    def __init__(self) -> None:
        self._columns = _columns_of([])
        self._row_of_version: dict[int, int] = {}

    def jobs_of(
        self, records: Sequence[JobRecord], priority: Floats, expected: Floats, nice: Ints, now: float
    ) -> tuple[Jobs, list[PlacementClass]]:
        """The columns of these jobs, and the placement classes that `Jobs.placement` numbers.

        Args:
            records: (n,) of the jobs, in the order of the rows.
            priority: (n,) Slurm's priority.
            expected: (n,) the start that Slurm expects, in seconds since the epoch, NaN for none.
            nice: (n,) what their users took off the priority.
            now: seconds since the epoch.
        """
        columns = self._renewed(records)
        pending, start = columns["state"] == "pending", columns["start"]
        waits_until = np.where(pending, now, start)
        running_for = np.where(pending, 0.0, np.nan_to_num(np.maximum(now - start - columns["suspended"], 0.0)))
        placement, classes = _numbered(columns["class"].tolist())
        reporting = np.flatnonzero(columns["reports_load"])
        jobs = Jobs(
            **{column.name: columns[column.name] for column in _SNAPSHOT_COLUMNS},
            keys=tuple(record.key for record in records),
            held=columns["admin_held"] | (pending & (priority == 0)),
            ml_job=_ml_jobs(columns["ml_job_name"]),
            started=np.where(pending, NAN, start),
            expected=expected,
            waited=columns["waited_before"] + np.nan_to_num(np.maximum(waits_until - columns["eligible"], 0.0)),
            attained=columns["attained_before"] + columns["gpus"] * running_for,
            priority=priority,
            nice=nice,
            placement=placement,
            traffic=reported_load(records, "sent", reporting, now),
            network=reported_load(records, "network", reporting, now),
            gpus_used=gpus_used(records, reporting, now),
            losses=_curves(columns["losses"]),
            accuracies=_curves(columns["accuracies"]),
            validation_losses=_curves(columns["validation_losses"]),
            parents=_parents(records, np.flatnonzero(columns["depends"])),
        )
        return jobs, classes

    def _renewed(self, records: Sequence[JobRecord]) -> Columns:
        """The columns of these records: rows of unchanged versions are kept, those of new versions computed."""
        versions = [record.version for record in records]
        rows = np.array([self._row_of_version.get(version, -1) for version in versions], dtype=np.int64)
        new = np.flatnonzero(rows < 0)
        rows[new] = len(self._row_of_version) + np.arange(len(new))
        added = _columns_of([records[row] for row in new.tolist()])
        self._columns = {name: np.concatenate([column, added[name]])[rows] for name, column in self._columns.items()}
        self._row_of_version = {version: row for row, version in enumerate(versions)}
        return self._columns


def jobs_of(
    records: Sequence[JobRecord], priority: Floats, expected: Floats, nice: Ints, now: float
) -> tuple[Jobs, list[PlacementClass]]:
    """As `ColumnCache.jobs_of`, without a cache."""
    return ColumnCache().jobs_of(records, priority, expected, nice, now)


def _columns_of(records: Sequence[JobRecord]) -> Columns:
    """By name, the columns (n, ...) that depend on the records alone."""
    jobs = [
        _Job(
            record,
            record.facts,
            record.directives or NO_DIRECTIVES,
            _counted_from_1(record.all_points),
            record.judged_by,
            record.facts.of_gpus,
        )
        for record in records
    ]
    return {column.name: column.of(jobs) for column in (*_SNAPSHOT_COLUMNS, *_OTHER_COLUMNS)}


def _numbered(values: Sequence[PlacementClass]) -> tuple[Ints, list[PlacementClass]]:
    """(n,) an index for each value into the distinct values, and these in order of first occurrence."""
    numbers: dict[PlacementClass, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64), list(numbers)


def runs_on(records: Sequence[JobRecord], names: Sequence[str]) -> Ints:
    """(allocations, 3): job row, node row, GPUs. squeue gives the GPUs of a whole job: they are spread evenly."""
    node_rows = {name: row for row, name in enumerate(names)}
    found = []
    for row, record in enumerate(records):
        if record.facts.state in _STATES and record.facts.node_list:
            nodes = [node_rows[name] for name in _expanded(record.facts.node_list) if name in node_rows]
            gpus = record.facts.of_gpus.whole
            found += [
                (row, node, gpus * (i + 1) // len(nodes) - gpus * i // len(nodes)) for i, node in enumerate(nodes)
            ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


@lru_cache(maxsize=65_536)
def _expanded(node_list: str) -> list[str]:
    """Cached, as a running job has the same node list in every cycle."""
    return expand(node_list)


def _range(job: _Job) -> tuple[int, int]:
    """The fewest and the most GPUs that it may have; parts of GPUs never change."""
    asked, held = job.directives.gpus, job.gpus
    return (held.whole, held.whole) if asked is None or held.are_parts else (asked.least, asked.most)


def _placement_class(facts: JobFacts) -> PlacementClass:
    return PlacementClass(facts.partition, facts.features, facts.reservation, facts.gpu_type)


def _ml_job_name(record: JobRecord) -> tuple[int, str] | None:
    """The same for one user's jobs with the same --ml-job, and for the components of a het job; None for others."""
    name = record.directives.ml_job if record.directives else None
    if not name and not record.facts.het_id:
        return None
    return record.facts.uid, f"ml {name}" if name else f"het {record.facts.het_id}"


def _ml_jobs(names: NDArray[np.object_]) -> Ints:
    """(n,) the first row of each job's ML job."""
    first: dict[tuple[int, str], int] = {}
    found = np.arange(len(names))
    for row in np.flatnonzero(names != None).tolist():  # noqa: E711  of each element
        found[row] = first.setdefault(names[row], row)
    return found


def _parents(records: Sequence[JobRecord], dependent: Ints) -> Ints:
    """(edges, 2): row, row that it depends on, from dependencies such as `afterok:12(unfulfilled),afterany:13_*`.

    The second is -1 where the dependency is never satisfied. `dependent`: the rows with a dependency.
    """
    row_of = {record.facts.job_id: row for row, record in enumerate(records)} if len(dependent) else {}
    edges = []
    for row in dependent.tolist():
        facts = records[row].facts
        for clause in facts.dependency.replace("?", ",").split(",")[:_MAX_DEPENDENCIES]:
            kind, _, ids = clause.partition(":")
            if kind.startswith("after"):
                heads = (
                    word.partition("(")[0].partition("_")[0].partition("+")[0]
                    for word in ids.split(":")[:_MAX_DEPENDENCIES]
                )
                edges += [(row, row_of[int(head)]) for head in heads if head.isdecimal() and int(head) in row_of]
        if facts.reason == _NEVER:
            edges.append((row, -1))
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def _counted_from_1(points: Points) -> Points:
    """The points with iterations as a number done: programs count from 0 as often as from 1."""
    from_0 = points.first == 0 or (len(points) and points.iterations[0] == 0)
    return replace(points, iterations=points.iterations + 1) if from_0 else points


def _iteration_time(points: Points, since: float) -> float:
    """Median seconds per iteration over the recent reports since then, NaN before the second."""
    if len(points) < 2:
        return NAN
    inside = points.times >= since
    iterations, times = points.iterations[inside][-_RECENT_REPORTS:], points.times[inside][-_RECENT_REPORTS:]
    if len(iterations) < 2:
        return NAN
    with np.errstate(all="ignore"):  # reported times and iterations may be as close together as floats can
        return max(0.0, float(np.median(np.diff(times) / np.diff(iterations))))


def _resumed(record: JobRecord) -> float:
    """The first iteration that the present run reported, NaN before its first report."""
    iterations = record.points.iterations
    return float(iterations[0]) if record.points_run == record.facts.restarts and len(iterations) else NAN


def _not_finite(points: Points, judged: str) -> int:
    """How many of the last reports in a row had a loss that is NaN or infinite; of a job that reports no loss, such a
    value of the quantity by which it is judged."""
    return last_not_finite(points, "loss" if "loss" in points.quantities else judged)


def _unit_mismatch(directives: Directives, points: Points) -> UnitMismatch:
    target = directives.target
    return unit_mismatch(target, values_of(points, target.quantity)[1]) if target else ""


_Curve: TypeAlias = tuple[Floats, Floats]


def _curve(points: Points, quantity: str, sign: float) -> _Curve | None:
    """The iterations and the values, times `sign`, of a quantity; None for an empty curve, as most are."""
    iterations, values = values_of(points, quantity)
    return (iterations, sign * values) if len(iterations) else None


def _validation_loss(points: Points, judged: str) -> _Curve | None:
    """The negated loss on validation data, where the job reports one and is judged by another quantity."""
    name = quantities.validation_quantity(points.quantities.keys() - {judged}, sign=-1.0)
    return _curve(points, name, -1.0) if name else None


def _curves(curves: NDArray[np.object_]) -> Curves:
    """The curves (n,) as pooled columns; None stands for an empty one."""
    rows = np.flatnonzero(curves != None)  # noqa: E711  of each element
    found = curves[rows].tolist()
    lengths = np.zeros(len(curves) + 1, dtype=np.int64)
    lengths[rows + 1] = [len(values) for _, values in found]
    return Curves(
        iterations=np.concatenate([*map(itemgetter(0), found), np.empty(0)]),
        values=np.concatenate([*map(itemgetter(1), found), np.empty(0)]),
        starts=np.cumsum(lengths),
    )


def _utility(directives: Directives) -> tuple[float, float, float]:
    """Worth, steepness per second and target in seconds; users give the last two in hours."""
    utility = directives.utility
    if utility is None:
        return NAN, NAN, NAN
    return utility.worth, utility.steepness / _SECONDS_PER_HOUR, utility.target * _SECONDS_PER_HOUR

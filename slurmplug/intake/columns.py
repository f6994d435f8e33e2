"""From the records of jobs to the columns of a snapshot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Curves, Jobs
from predictors.arrays import Floats, Ints
from slurmplug.cluster.hostlist import expand
from slurmplug.directives.parser import Directives
from slurmplug.intake.eligibility import PlacementClass
from slurmplug.intake.job_record import JobFacts, JobRecord, curve
from slurmplug.intake.node_load import traffic
from slurmplug.spool.report_lines import Points

_STATES = {
    "RUNNING": "running", "CONFIGURING": "running", "RESIZING": "running", "SIGNALING": "running",
    "STAGE_OUT": "running", "SUSPENDED": "suspended", "STOPPED": "suspended", "COMPLETING": "completing",
}  # fmt: skip
"""What else lives is pending."""
_PARENTS = 64
"""How many jobs of a dependency are looked at."""
_RECENT = 20
"""The iterations from whose times the time of one is taken."""
_NAME = 128
_NOTHING = Directives()
NAN = float("nan")
_HOUR = 3600.0
_NEVER = "DependencyNeverSatisfied"


class Columns:
    """Makes the columns of a snapshot's jobs, and keeps what it made of a record for as long as that stays as it is.

    A record is changed by giving it other values, never by changing these, so that one look at each is enough.
    """

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._seen = _Seen.of([])
        self._told: dict[str, NDArray[Any]] = _told_by([], _Numbered())
        self._classes = _Numbered()

    def jobs_of(
        self, records: Sequence[JobRecord], priority: Floats, expected: Floats, now: float
    ) -> tuple[Jobs, list[PlacementClass]]:
        """The columns of these jobs, and the placement classes that `Jobs.placement` numbers.

        priority, expected: (n,) of the reading, as they change from one to the next.
        """
        told = self._told_of(records)
        state, eligible, started, gpus = (told[name] for name in ("state", "eligible", "started", "gpus"))
        runs = state != "pending"
        until = np.where(runs, started, now)
        ran = np.where(runs, np.nan_to_num(np.maximum(now - started, 0.0)), 0.0)
        placement, classes = self._classes.in_order(told["placement"])
        taken = {name: told[name] for name in _AS_TOLD}
        jobs = Jobs(
            **taken,
            keys=tuple(record.key for record in records),
            held=told["held"] | (~runs & (priority == 0)),
            ml_job=_ml_jobs(told),
            started=np.where(runs, started, np.nan),
            expected=expected,
            waited=told["waited_before"] + np.nan_to_num(np.maximum(until - eligible, 0.0)),
            attained=told["attained_before"] + gpus * ran,
            priority=priority,
            site_factor=np.array([record.site_factor for record in records], dtype=float),
            demand=np.stack([gpus, told["cpus"], told["memory"]], axis=1).astype(float).reshape(-1, 3),
            placement=placement,
            traffic=traffic(records, np.flatnonzero(told["loaded"]), now),
            losses=_curves(told["loss"]),
            accuracies=_curves(told["accuracy"]),
            parents=_parents(records, told),
        )
        return jobs, classes

    def _told_of(self, records: Sequence[JobRecord]) -> dict[str, NDArray[Any]]:
        """The columns that do not go by the time, each row made anew or taken from the last time."""
        seen = _Seen.of(records)
        before = [self._rows.get(job_id, -1) for job_id in seen.job_ids]
        at = seen.as_in(self._seen, np.array(before, dtype=np.int64))
        new = np.flatnonzero(at < 0)
        if len(new):
            at[new] = len(self._seen.job_ids) + np.arange(len(new))
            added = _told_by([records[row] for row in new.tolist()], self._classes)
            self._told = {name: np.concatenate([column, added[name]])[at] for name, column in self._told.items()}
        else:
            self._told = {name: column[at] for name, column in self._told.items()}
        self._rows = dict(zip(seen.job_ids, range(len(records)), strict=True))
        self._seen = seen
        return self._told


class _Seen(NamedTuple):
    """What of some records (n,) decides their columns, and by which numbers Python tells these values apart."""

    job_ids: list[int]
    values: list[list[object]]
    """held, so that no other value gets their numbers"""
    numbers: Ints
    """(values of a record, n)"""

    @classmethod
    def of(cls, records: Sequence[JobRecord]) -> "_Seen":
        values = [list(map(attrgetter(name), records)) for name in _DECIDE]
        numbers = np.stack([np.fromiter(map(id, each), np.int64, len(each)) for each in values])
        return cls([record.facts.job_id for record in records], values, numbers)

    def as_in(self, other: "_Seen", rows: Ints) -> Ints:
        """The rows (n,) of the other, or -1 where the values are not the same: equal ones would take long to tell."""
        if not len(other.job_ids):
            return np.full(len(rows), -1)
        return np.where((self.numbers == other.numbers[:, rows]).all(axis=0) & (rows >= 0), rows, -1)


_DECIDE = ("facts", "directives", "points", "earlier", "admission")


class _Numbered:
    """Placement classes by the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[PlacementClass, int] = {}

    def of(self, facts: Sequence[JobFacts]) -> Ints:
        """(n,) the number of each job's class."""
        numbers = self._numbers
        kinds = (PlacementClass(f.partition, f.features, f.reservation, f.gpu_type) for f in facts)
        return np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=np.int64)

    def in_order(self, numbers: Ints) -> tuple[Ints, list[PlacementClass]]:
        """Of those that these jobs have (n,): numbers in the order of the jobs, and the classes."""
        kinds = list(self._numbers)
        distinct, first, row_of = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return place[row_of], [kinds[number] for number in distinct[order].tolist()]


def jobs_of(
    records: Sequence[JobRecord], priority: Floats, expected: Floats, now: float
) -> tuple[Jobs, list[PlacementClass]]:
    """As `Columns.jobs_of`, of records that are looked at once."""
    return Columns().jobs_of(records, priority, expected, now)


_AS_TOLD = (
    "elements", "restarts", "state", "reason", "managed", "interactive", "user", "account", "qos", "partition", "name",
    "kind", "role", "submitted", "time_limit", "gpus", "gpus_min", "gpus_max", "urgency", "deadline", "target",
    "max_iterations", "params", "utility", "stop", "downgrade", "signal", "signal_to", "grace", "restartable", "awaits",
    "iteration", "iteration_time", "checkpoint", "checkpointed", "resumed", "reported",
)  # fmt: skip
"""The columns that stand in `Jobs` as `_told_by` makes them."""


def _told_by(records: Sequence[JobRecord], classes: _Numbered) -> dict[str, NDArray[Any]]:
    """What the records alone tell: columns (n, ..)."""
    facts = [record.facts for record in records]
    given = [record.directives or _NOTHING for record in records]
    told = [_counted(record.told) for record in records]
    by_name = dict(zip(JobFacts._fields, zip(*facts, strict=True), strict=False))

    def fact(name: str, dtype: Any = np.float64) -> NDArray[Any]:
        return np.array(by_name.get(name, ()), dtype=dtype)

    def asked(value: Callable[[Directives], Any], dtype: Any = np.float64) -> NDArray[Any]:
        return np.array([value(each) for each in given], dtype=dtype)

    gpus = fact("gpus", np.int64)
    signed = [_signed(record, points) for record, points in zip(records, told, strict=True)]
    return {
        "elements": fact("elements", np.int64),
        "restarts": fact("restarts", np.int64),
        "state": np.array([_STATES.get(each.state, "pending") for each in facts], dtype=np.str_),
        "reason": fact("reason", np.str_),
        "managed": np.array([record.managed for record in records], dtype=bool),
        "held": np.array([f.reason.startswith("JobHeld") for f in facts], dtype=bool),
        "interactive": ~fact("batch", bool),
        "user": fact("user", np.str_),
        "account": fact("account", np.str_),
        "qos": fact("qos", np.str_),
        "partition": fact("partition", np.str_),
        "name": np.array([f.name[:_NAME] for f in facts], dtype=np.str_),
        "kind": asked(lambda d: d.type or "", np.str_),
        "group": _objects([_group(record) for record in records]),
        "role": asked(lambda d: d.role or "", np.str_),
        "submitted": np.array([record.key.first_submit for record in records], dtype=float),
        "eligible": fact("eligible"),
        "started": fact("start"),
        "time_limit": fact("time_limit"),
        "waited_before": np.array([record.waited_before for record in records], dtype=float),
        "attained_before": np.array([record.attained_before for record in records], dtype=float),
        "gpus": gpus,
        "gpus_min": _range(given, gpus, "least"),
        "gpus_max": _range(given, gpus, "most"),
        "cpus": fact("cpus"),
        "memory": fact("memory"),
        "placement": classes.of(facts),
        "urgency": asked(lambda d: d.urgency),
        "deadline": asked(lambda d: d.deadline),
        "target": np.array(
            [r.sign * d.target.value if d.target else NAN for r, d in zip(records, given, strict=True)], dtype=float
        ),
        "max_iterations": asked(lambda d: d.max_iterations),
        "params": asked(lambda d: d.params),
        "utility": asked(_utility).reshape(-1, 3),
        "stop": asked(lambda d: d.stop or "iterations", np.str_),
        "downgrade": asked(lambda d: d.allow_downgrade or "", np.str_),
        "signal": asked(lambda d: d.checkpoint.signal or "" if d.checkpoint else "", np.str_),
        "signal_to": asked(lambda d: d.checkpoint.way if d.checkpoint else "", np.str_),
        "grace": asked(lambda d: d.checkpoint.grace if d.checkpoint else None),
        "restartable": asked(lambda d: d.checkpoint is not None, bool),
        "awaits": np.array([record.awaits for record in records], dtype=bool),
        "iteration": np.array([_last(points.iterations, 0.0) for points in told], dtype=float),
        "iteration_time": np.array(
            [_iteration_time(p, f.start or 0.0) for p, f in zip(told, facts, strict=True)], dtype=float
        ),
        "checkpoint": np.array([points.checkpoint for points in told], dtype=float),
        "checkpointed": np.array([points.checkpoint_time for points in told], dtype=float),
        "resumed": np.array([_resumed(record) for record in records], dtype=float),
        "reported": np.array([_last(points.times, NAN) for points in told], dtype=float),
        "loaded": np.array([bool(record.points.load) for record in records], dtype=bool),
        "depends": np.array([bool(f.dependency) or f.reason == _NEVER for f in facts], dtype=bool),
        "loss": _objects([_kept(curve(points, "loss")) for points in told]),
        "accuracy": _objects([_kept(each) for each in signed]),
    }


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _kept(told: tuple[Floats, Floats]) -> "_Curve | None":
    """None for an empty curve, as most are."""
    return _Curve(*told) if len(told[0]) else None


def runs_on(records: Sequence[JobRecord], names: Sequence[str]) -> Ints:
    """(allocations, 3): job row, node row, GPUs. squeue tells a job's GPUs in all, so they are spread evenly."""
    at = {name: column for column, name in enumerate(names)}
    found = []
    for row, record in enumerate(records):
        if record.facts.state in _STATES and record.facts.node_list:
            nodes = [at[name] for name in _expanded(record.facts.node_list) if name in at]
            gpus = record.facts.gpus
            found += [
                (row, node, gpus * (i + 1) // len(nodes) - gpus * i // len(nodes)) for i, node in enumerate(nodes)
            ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


@lru_cache(maxsize=65_536)
def _expanded(node_list: str) -> list[str]:
    """A job that runs is told to be on the same nodes in every cycle."""
    return expand(node_list)


def _group(record: JobRecord) -> tuple[int, str] | None:
    """One user's jobs with the same --ml-job, or the components of a het job; None for a job of its own."""
    name = record.directives.ml_job if record.directives else None
    if not name and not record.facts.het_id:
        return None
    return record.facts.uid, f"ml {name}" if name else f"het {record.facts.het_id}"


def _ml_jobs(told: Mapping[str, NDArray[Any]]) -> Ints:
    """The first row of each ML job."""
    groups = told["group"]
    first: dict[tuple[int, str], int] = {}
    found = np.arange(len(groups))
    for row in np.flatnonzero(groups != None).tolist():  # noqa: E711  of each element
        found[row] = first.setdefault(groups[row], row)
    return found


def _parents(records: Sequence[JobRecord], told: Mapping[str, NDArray[Any]]) -> Ints:
    """(edges, 2): row, row that it depends on, from dependencies such as `afterok:12(unfulfilled),afterany:13_*`.

    -1 stands for a job that will never let it go on.
    """
    depends = np.flatnonzero(told["depends"]).tolist()
    rows = {record.facts.job_id: row for row, record in enumerate(records)} if depends else {}
    edges = []
    for row in depends:
        facts = records[row].facts
        for clause in facts.dependency.replace("?", ",").split(",")[:_PARENTS]:
            kind, _, ids = clause.partition(":")
            if kind.startswith("after"):
                heads = (
                    word.partition("(")[0].partition("_")[0].partition("+")[0] for word in ids.split(":")[:_PARENTS]
                )
                edges += [(row, rows[int(head)]) for head in heads if head.isdecimal() and int(head) in rows]
        if facts.reason == _NEVER:
            edges.append((row, -1))
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def _counted(points: Points) -> Points:
    """The points with iterations as a number done: programs count from 0 as often as from 1."""
    return replace(points, iterations=points.iterations + 1) if len(points) and points.iterations[0] == 0 else points


def _iteration_time(points: Points, since: float) -> float:
    """Median seconds an iteration over the recent reports of the run that began then, NaN before the second."""
    if len(points) < 2:
        return NAN
    inside = points.times >= since
    iterations, times = points.iterations[inside][-_RECENT:], points.times[inside][-_RECENT:]
    if len(iterations) < 2:
        return NAN
    with np.errstate(all="ignore"):  # what a job claims may be as close together as floats can
        return max(0.0, float(np.median(np.diff(times) / np.diff(iterations))))


def _resumed(record: JobRecord) -> float:
    """The first iteration that the run under way told, NaN where it has told none."""
    told = record.points.iterations
    return float(told[0]) if record.points_of == record.facts.restarts and len(told) else NAN


def _signed(record: JobRecord, points: Points) -> tuple[Floats, Floats]:
    iterations, values = curve(points, record.quantity)
    return iterations, record.sign * values


class _Curve(NamedTuple):
    iterations: Floats
    values: Floats


def _curves(told: NDArray[np.object_]) -> Curves:
    """Of (n,) curves, None where there is none."""
    rows = np.flatnonzero(told != None)  # noqa: E711  of each element
    found = told[rows].tolist()
    lengths = np.zeros(len(told) + 1, dtype=np.int64)
    lengths[rows + 1] = [len(each.values) for each in found]
    empty = [np.empty(0)]
    return Curves(
        iterations=np.concatenate([*(each.iterations for each in found), *empty]),
        values=np.concatenate([*(each.values for each in found), *empty]),
        starts=np.cumsum(lengths),
    )


def _utility(given: Directives) -> tuple[float, float, float]:
    """Users tell it by hours."""
    told = given.utility
    return (told.worth, told.steepness / _HOUR, told.target * _HOUR) if told else (NAN,) * 3


def _range(given: Sequence[Directives], gpus: Ints, end: str) -> Ints:
    return np.array(
        [getattr(d.gpus, end) if d.gpus else n for d, n in zip(given, gpus.tolist(), strict=True)], dtype=np.int64
    )


def _last(values: Floats, otherwise: float) -> float:
    return float(values[-1]) if len(values) else otherwise

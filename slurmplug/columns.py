"""From the records of jobs to the columns of a snapshot."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import Curves, Jobs
from predictors.arrays import Floats, Ints
from slurmplug.directives import Directives
from slurmplug.eligibility import PlacementClass, expand
from slurmplug.node_load import traffic
from slurmplug.progress import Points
from slurmplug.record import JobFacts, JobRecord, curve

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


def jobs_of(records: Sequence[JobRecord], priority: Floats, now: float) -> tuple[Jobs, list[PlacementClass]]:
    """The columns of these jobs, and the placement classes that `Jobs.placement` numbers."""
    facts = [record.facts for record in records]
    given = [record.directives or _NOTHING for record in records]
    told = [_counted(record.told) for record in records]

    by_name = dict(zip(JobFacts._fields, zip(*facts, strict=True), strict=False))

    def fact(name: str, dtype: Any = np.float64) -> NDArray[Any]:
        return np.array(by_name.get(name, ()), dtype=dtype)

    def asked(value: Callable[[Directives], Any], dtype: Any = np.float64) -> NDArray[Any]:
        return np.array([value(each) for each in given], dtype=dtype)

    state = np.array([_STATES.get(each.state, "pending") for each in facts], dtype=np.str_)
    eligible, started, gpus = fact("eligible"), fact("start"), fact("gpus", np.int64)
    runs = state != "pending"
    until = np.where(runs, started, now)
    ran = np.where(runs, np.nan_to_num(np.maximum(now - started, 0.0)), 0.0)
    classes: dict[PlacementClass, int] = {}
    placement = [
        classes.setdefault(PlacementClass(f.partition, f.features, f.reservation, f.gpu_type), len(classes))
        for f in facts
    ]
    jobs = Jobs(
        keys=tuple(record.key for record in records),
        elements=fact("elements", np.int64),
        restarts=fact("restarts", np.int64),
        state=state,
        reason=fact("reason", np.str_),
        managed=np.array([record.managed for record in records], dtype=bool),
        held=np.array([f.reason.startswith("JobHeld") for f in facts], dtype=bool) | (~runs & (priority == 0)),
        interactive=~fact("batch", bool),
        user=fact("user", np.str_),
        account=fact("account", np.str_),
        qos=fact("qos", np.str_),
        partition=fact("partition", np.str_),
        name=np.array([f.name[:_NAME] for f in facts], dtype=np.str_),
        kind=asked(lambda d: d.type or "", np.str_),
        ml_job=_ml_jobs(records),
        role=asked(lambda d: d.role or "", np.str_),
        submitted=np.array([record.key.first_submit for record in records], dtype=float),
        started=np.where(runs, started, np.nan),
        time_limit=fact("time_limit"),
        waited=_before(records, "waited_before") + np.nan_to_num(np.maximum(until - eligible, 0.0)),
        attained=_before(records, "attained_before") + gpus * ran,
        priority=priority,
        label=np.array([record.label for record in records], dtype=float),
        gpus=gpus,
        gpus_min=_range(given, gpus, "least"),
        gpus_max=_range(given, gpus, "most"),
        demand=np.stack([gpus, fact("cpus"), fact("memory")], axis=1).astype(float).reshape(-1, 3),
        placement=np.array(placement, dtype=np.int64),
        urgency=asked(lambda d: d.urgency),
        deadline=asked(lambda d: d.deadline),
        target=np.array([r.sign * d.target.value if d.target else NAN for r, d in zip(records, given, strict=True)]),
        max_iterations=asked(lambda d: d.max_iterations),
        params=asked(lambda d: d.params),
        utility=asked(_utility).reshape(-1, 3),
        stop=asked(lambda d: d.stop or "iterations", np.str_),
        downgrade=asked(lambda d: d.allow_downgrade or "", np.str_),
        signal=asked(lambda d: d.checkpoint.signal or "" if d.checkpoint else "", np.str_),
        signal_to=asked(lambda d: d.checkpoint.way if d.checkpoint else "", np.str_),
        grace=asked(lambda d: d.checkpoint.grace if d.checkpoint else None),
        restartable=asked(lambda d: d.checkpoint is not None, bool),
        awaits=np.array([record.awaits for record in records], dtype=bool),
        traffic=traffic(records, now),
        iteration=np.array([_last(points.iterations, 0.0) for points in told], dtype=float),
        iteration_time=np.array([_iteration_time(p, f.start or 0.0) for p, f in zip(told, facts, strict=True)]),
        checkpoint=np.array([points.checkpoint for points in told], dtype=float),
        checkpointed=np.array([points.checkpoint_time for points in told], dtype=float),
        resumed=np.array([_resumed(record) for record in records], dtype=float),
        reported=np.array([_last(points.times, NAN) for points in told], dtype=float),
        losses=_curves([curve(points, "loss") for points in told]),
        accuracies=_curves([_signed(record, points) for record, points in zip(records, told, strict=True)]),
        parents=_parents(records),
    )
    return jobs, list(classes)


def runs_on(records: Sequence[JobRecord], names: Sequence[str]) -> Ints:
    """(allocations, 3): job row, node row, GPUs. squeue tells a job's GPUs in all, so they are spread evenly."""
    at = {name: column for column, name in enumerate(names)}
    found = []
    for row, record in enumerate(records):
        if record.facts.state in _STATES and record.facts.node_list:
            nodes = [at[name] for name in expand(record.facts.node_list) if name in at]
            gpus = record.facts.gpus
            found += [
                (row, node, gpus * (i + 1) // len(nodes) - gpus * i // len(nodes)) for i, node in enumerate(nodes)
            ]
    return np.array(found, dtype=np.int64).reshape(-1, 3)


def _ml_jobs(records: Sequence[JobRecord]) -> Ints:
    """The first row of each ML job: one user's jobs with the same --ml-job, or the components of a het job."""
    first: dict[tuple[int, str], int] = {}
    rows = []
    for row, record in enumerate(records):
        name = record.directives.ml_job if record.directives else None
        group = f"ml {name}" if name else f"het {record.facts.het_id}" if record.facts.het_id else f"job {row}"
        rows.append(first.setdefault((record.facts.uid, group), row))
    return np.array(rows, dtype=np.int64)


def _parents(records: Sequence[JobRecord]) -> Ints:
    """(edges, 2): row, row that it depends on, from dependencies such as `afterok:12(unfulfilled),afterany:13_*`.

    -1 stands for a job that will never let it go on.
    """
    rows = {record.facts.job_id: row for row, record in enumerate(records)}
    edges = []
    for row, record in enumerate(records):
        for clause in (
            record.facts.dependency.replace("?", ",").split(",")[:_PARENTS] if record.facts.dependency else ()
        ):
            kind, _, ids = clause.partition(":")
            if kind.startswith("after"):
                heads = (
                    word.partition("(")[0].partition("_")[0].partition("+")[0] for word in ids.split(":")[:_PARENTS]
                )
                edges += [(row, rows[int(head)]) for head in heads if head.isdecimal() and int(head) in rows]
        if record.facts.reason == "DependencyNeverSatisfied":
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


def _curves(points: Sequence[tuple[Floats, Floats]]) -> Curves:
    starts = np.cumsum([0, *(len(iterations) for iterations, _ in points)])
    empty = [np.empty(0)]
    return Curves(
        iterations=np.concatenate([*(iterations for iterations, _ in points), *empty]),
        values=np.concatenate([*(values for _, values in points), *empty]),
        starts=starts.astype(np.int64),
    )


def _before(records: Sequence[JobRecord], name: str) -> Floats:
    return np.array([getattr(record, name) for record in records], dtype=float)


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

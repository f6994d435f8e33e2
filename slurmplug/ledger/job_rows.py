"""Jobs, their reports, and changes of their directives as rows of the ledger, and back."""

import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from policies.snapshot import JobKey
from slurmplug.directives.changes import Change, in_force
from slurmplug.directives.parser import Directives
from slurmplug.intake.job_facts import JobFacts, Resources
from slurmplug.intake.job_record import NO_DIRECTIVES, JobRecord, Point, join_runs
from slurmplug.intake.site_factor import SiteFactor
from slurmplug.ledger.last_reports import last_reports_of
from slurmplug.ledger.sqlite import Row
from slurmplug.ledger.stored_directives import directives_from
from slurmplug.spool.trials import Trial
from slurmplug.spool.values import GPUUse, Points, column_value, json_value

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_CHANGE = ("at", "uid", "user", "request")
"""The fields of a change that are stored unchanged, in columns of the same names."""


@functools.cache
def _directives() -> "TypeAdapter[Directives | None]":
    from pydantic import TypeAdapter  # noqa: PLC0415  it takes long to load, and most reports do without

    return TypeAdapter(Directives | None)


@functools.cache
def _changes() -> "TypeAdapter[tuple[Change, ...]]":
    from pydantic import TypeAdapter  # noqa: PLC0415  as above

    return TypeAdapter(tuple[Change, ...])


def nan_to_null(value: float) -> float | None:
    """The value as the ledger stores it: None for NaN."""
    return None if math.isnan(value) else float(value)


def null_to_nan(value: float | None) -> float:
    """The value of a column: NaN for NULL."""
    return float("nan") if value is None else float(value)


def record_row(record: JobRecord, now: float) -> Row:
    """The row of a job, without its points. `now`: when it was last seen."""
    return {
        **record.facts._asdict(),
        "cluster": record.key.cluster,
        "first_submit": record.key.first_submit,
        "script_digest": record.digest,
        "in_doubt": int(record.in_doubt),
        "directives": _directives().dump_json(record.directives).decode(),
        "checkpoint": nan_to_null(record.points.checkpoint),
        "checkpoint_time": nan_to_null(record.points.checkpoint_time),
        "trial": record.points.trial,
        "trials": json.dumps(record.points.trials),
        "first_iteration": nan_to_null(record.points.first),
        "gpu_use": json.dumps(record.points.gpu_use),
        "last_reported": None if math.isnan(record.points.first) else json.dumps(last_reports_of(record)),
        "label": nan_to_null(record.placed.value),
        "factor_compared": nan_to_null(record.placed.compared),
        "factor_booted": nan_to_null(record.placed.booted),
        "factor_by_others": int(record.placed.by_others),
        "waited_before": record.waited_before,
        "attained_before": record.attained_before,
        "requested": json.dumps(record.requested),
        "ended": int(not record.facts.live),
        "listed": int(record.listed),
        "admission": record.admission,
        "submitted_directives": _directives().dump_json(record.submitted_directives).decode(),
        "changes": _changes().dump_json(record.changes).decode(),
        "last_seen": now,
    }


def point_rows(points: Iterable[Point]) -> Iterator[tuple[JobKey, Row]]:
    """The rows of the points to be stored, with their jobs; points to be deleted are left out."""
    for point in points:
        if point.quantities is not None:
            quantities = json.dumps(
                {name: json_value(value) for name, value in point.quantities.items() if not math.isnan(value)}
            )
            place = {"restarts": point.restarts, "trial": point.trial, "iteration": point.iteration}
            yield point.key, {**place, "time": point.time, "quantities": quantities}


def record_from_row(row: Row, points: Iterable[Row]) -> JobRecord:
    """A job from its row and its points, in the order of their runs, trials and iterations."""
    facts = JobFacts(**{name: row[name] for name in JobFacts._fields})._replace(batch=bool(row["batch"]))
    earlier, last, latest = Points(), 0, Points()
    for run, rows in groupby(points, key=lambda point: int(point["restarts"])):
        earlier, last, latest = join_runs(earlier, latest), run, _points(list(rows))
    told = [Trial(name, began) for name, began in json.loads(row["trials"])]
    return JobRecord(
        key=JobKey(row["cluster"], row["job_id"], row["first_submit"]),
        facts=facts,
        directives=directives_from(row["directives"]),
        digest=row["script_digest"],
        in_doubt=bool(row["in_doubt"]),
        points=replace(
            latest,
            checkpoint=null_to_nan(row["checkpoint"]),
            checkpoint_time=null_to_nan(row["checkpoint_time"]),
            trials=tuple(told),
            trial=row["trial"],
            first=null_to_nan(row["first_iteration"]),
            gpu_use=GPUUse(*json.loads(row["gpu_use"])),
        ),
        points_run=last,
        earlier=earlier,
        placed=SiteFactor(
            value=null_to_nan(row["label"]),
            compared=null_to_nan(row["factor_compared"]),
            booted=null_to_nan(row["factor_booted"]),
            by_others=bool(row["factor_by_others"]),
        ),
        waited_before=row["waited_before"],
        attained_before=row["attained_before"],
        requested=Resources(*json.loads(row["requested"])),
        listed=bool(row["listed"]),
        admission=row["admission"],
        submitted_directives=directives_from(row["submitted_directives"]),
        changes=_changes_of(row["changes"]),
    )


def row_with_facts(names: Sequence[str], values: tuple[Any, ...]) -> Row:
    """The row of these columns. values: theirs, then those of `JobFacts`, which it has as `facts`."""
    row = dict(zip(names, values, strict=False))
    row["facts"] = JobFacts._make(values[len(names) :])
    return row


def directives_since(row: Row, since: float) -> list[Directives]:
    """The directives of a job that were in force at that time, in seconds since the epoch, and at any time after it."""
    changes = _changes_of(row["changes"])
    if not changes:
        return [directives_from(row["directives"]) or NO_DIRECTIVES]
    submitted = directives_from(row["submitted_directives"]) or NO_DIRECTIVES
    first = sum(change.at <= since for change in changes)
    return [in_force(submitted, changes[:count]) for count in range(first, len(changes) + 1)]


def _changes_of(stored: str) -> tuple[Change, ...]:
    """Those of a column `changes`, of which most jobs have none."""
    return () if stored == "[]" else _changes().validate_json(stored)


def changes_from(found: Sequence[Row]) -> tuple[Change, ...]:
    """The changes of directives of which these are the mappings."""
    return _changes().validate_python(found) if found else ()


def change_row(job: int, change: Change) -> Row:
    """The row of a change of directives that no cycle has put in force yet. `job`: the row of its job."""
    return {
        "job": job,
        **{name: getattr(change, name) for name in _CHANGE},
        "given": _directives().dump_json(change.given).decode(),
        "taken_back": json.dumps(change.taken_back),
    }


def change_from_row(row: Row) -> Change:
    """The change of such a row."""
    given = directives_from(row["given"]) or NO_DIRECTIVES
    taken_back = tuple(json.loads(row["taken_back"]))
    return Change(id=row["id"], given=given, taken_back=taken_back, **{name: row[name] for name in _CHANGE})


def _points(rows: Sequence[Row]) -> Points:
    """The points of one run."""
    quantities = [{name: column_value(value) for name, value in json.loads(row["quantities"]).items()} for row in rows]
    latest = max(rows, key=lambda row: (row["time"], row["trial"]))
    return Points(
        iterations=np.array([row["iteration"] for row in rows], dtype=float),
        times=np.array([row["time"] for row in rows], dtype=float),
        quantities={
            name: np.array([each.get(name, np.nan) for each in quantities], dtype=float)
            for name in set().union(*quantities)
        },
        trial_of=np.array([row["trial"] for row in rows], dtype=np.int64),
        trial=latest["trial"],
    )

"""The values of a cycle as rows of the ledger, and back."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from policies.plan import Fact, OtherJob, Reason
from policies.snapshot import JobKey
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast
from slurmplug.cluster.port import Command, ResourceRequest
from slurmplug.cycle.record import CycleRecord
from slurmplug.directives.changes import Change
from slurmplug.directives.parser import Directives
from slurmplug.intake.job_record import NO_DIRECTIVES, JobFacts, JobRecord, Point, Resources, join_runs
from slurmplug.intake.site_factor import SiteFactor
from slurmplug.ledger import codec
from slurmplug.operations import Facts, Operation, OperationOutcome
from slurmplug.spool.report_lines import Points, column_value, json_value
from slurmplug.spool.trials import Trial

Row = dict[str, Any]
_DIRECTIVES: TypeAdapter[Directives | None] = TypeAdapter(Directives | None)
_CHANGES: TypeAdapter[tuple[Change, ...]] = TypeAdapter(tuple[Change, ...])
_CHANGE = ("at", "uid", "user", "request")
"""The fields of a change that are stored unchanged, in columns of the same names."""
INTERVAL_LEVELS = (0.05, 0.5, 0.95)
"""The quantiles of a prediction that are stored: the median and the ends of the 90 % interval."""


def nan_to_null(value: float) -> float | None:
    """The value as the ledger stores it: None for NaN."""
    return None if math.isnan(value) else float(value)


def null_to_nan(value: float | None) -> float:
    """The value of a column: NaN for NULL."""
    return float("nan") if value is None else float(value)


def stored_facts(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """The facts of a reason as plain values: another job as its key and its score."""
    return {
        name: {"job": [*fact.job], "score": fact.score} if isinstance(fact, OtherJob) else fact
        for name, fact in facts.items()
    }


def facts_from(stored: Mapping[str, Any]) -> dict[str, Fact]:
    """The facts that `stored_facts` stored."""
    return {
        name: OtherJob(JobKey(*fact["job"]), fact["score"]) if isinstance(fact, Mapping) else fact
        for name, fact in stored.items()
    }


def cycle_row(record: CycleRecord) -> Row:
    """The row of a cycle in `cycles`, without its inputs."""
    jobs = record.snapshot.jobs
    return {
        "id": record.snapshot.cycle,
        "started": record.started,
        "policy": record.policy,
        "modes": json.dumps(dict(record.modes)),
        "jobs": len(jobs),
        "pending": int((jobs.state == "pending").sum()),
        "running": int((jobs.state == "running").sum()),
        "managed": int(jobs.managed.sum()),
        "frozen": record.verdict.frozen.rule if record.verdict.frozen else "",
        "postponed": record.postponed,
        "seconds": json.dumps(dict(record.seconds)),
        "error": record.error,
    }


def encode_inputs(record: CycleRecord) -> bytes:
    """The inputs of the cycle's decision, so that an audit can decide again."""
    return codec.dumps([record.snapshot, record.forecasts, record.memory])


def rankings_row(record: CycleRecord, jobs: Sequence[int]) -> Row:
    """The ranking of each job of the snapshot, in columns, as there may be 100,000 jobs.

    `jobs`: their row ids in the ledger (n,).
    """
    seen, plan, verdict, forecasts = record.snapshot.jobs, record.plan, record.verdict, record.forecasts
    protected_by = np.full(len(seen), "", dtype="U16")
    for rule, mask in reversed(list(verdict.protected_by.items())):
        protected_by[mask] = rule
    predicted = {
        **_with_interval("total", forecasts.total),
        **_with_interval("remaining", forecasts.remaining),
        **_with_interval("final", forecasts.final),
        "reach": forecasts.final.sf(seen.target),
        "iteration": seen.iteration,
        "done": seen.iteration / seen.max_iterations,
        "start": seen.expected,
    }
    ranking = {
        "job": np.array(jobs, dtype=np.int64),
        "rank": plan.score,
        "allowed": ~np.isnan(verdict.score),
        "spared": protected_by,
        "priority": seen.priority,
        "terms": _without_unknown(plan.terms),
        "forecast": {
            "source": forecasts.remaining.source,
            "total_source": forecasts.total.source,
            **_without_unknown(predicted),
        },
        "notes": [
            [job, {"rule": plan.notes[key].rule, "facts": stored_facts(plan.notes[key].facts)}]
            for job, key in zip(jobs, seen.keys, strict=True)
            if key in plan.notes
        ],
    }
    return {"id": 1, "cycle": record.snapshot.cycle, "told": codec.dumps(ranking, packed=False)}


def _without_unknown(columns: Mapping[str, Floats]) -> dict[str, Floats]:
    """The columns in which at least one job has a value."""
    return {name: column for name, column in columns.items() if not np.isnan(column).all()}


def _with_interval(name: str, forecast: Forecast) -> dict[str, Floats]:
    """Three columns of a forecast: its median, and the ends of its 90 % interval."""
    low, median, high = forecast.quantile(INTERVAL_LEVELS).T
    return {name: median, f"{name}_low": low, f"{name}_high": high}


class CycleRankings:
    """The rank of each job of a cycle and what goes with it, as `rankings_row` stored them."""

    def __init__(self, cycle: int, started: float | None, stored: Mapping[str, Any]) -> None:
        """`started`: when that cycle began, None if it has been deleted since."""
        self.started = started
        self._cycle = cycle
        self._places = {job: place for place, job in enumerate(stored["job"].tolist())}
        self._columns, self._terms, self._forecast = (
            {name: column.tolist() for name, column in columns.items()}
            for columns in ({name: stored[name] for name in _COLUMNS}, stored["terms"], stored["forecast"])
        )
        self._notes = dict(stored["notes"])

    @property
    def jobs(self) -> Collection[int]:
        """The row ids of the jobs of that cycle."""
        return self._places.keys()

    def of(self, job: int) -> Row:
        """The columns of one job; what was not known is None, or left out of `terms` and `forecast`."""
        place = self._places[job]
        return {
            "cycle": self._cycle,
            **dict.fromkeys(_COLUMNS),
            **_known_values(place, self._columns),
            "terms": _known_values(place, self._terms),
            "forecast": _known_values(place, self._forecast),
            "note": self._notes.get(job),
        }


_COLUMNS = ("rank", "allowed", "spared", "priority")


def _known_values(place: int, columns: Mapping[str, Sequence[Any]]) -> Row:
    """The values at that place, without NaN."""
    return {name: value for name, column in columns.items() if (value := column[place]) == value}


def prediction_rows(forecast: Forecast, rows: Ints, *columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """For each of these rows: low and high end of the 90 % interval, median, and the values of the columns (n,)."""
    low, median, high = forecast[rows].quantile(INTERVAL_LEVELS).T.tolist()
    return zip(low, high, median, *(column[rows].tolist() for column in columns), strict=True)


def decision_rows(record: CycleRecord) -> Iterator[tuple[JobKey, tuple[str, str, str, str, str, str]]]:
    """For each action of the plan its job, and kind, verdict, rule, veto, facts, veto_facts."""
    nothing = Reason("")
    pairs = [(action, "allowed", nothing) for action in record.verdict.actions]
    pairs += [(a, "notice" if why.facts.get("mode") == "advise" else "vetoed", why) for a, why in record.verdict.vetoes]
    for action, verdict, veto in pairs:
        facts = json.dumps(stored_facts(action.reason.facts)), json.dumps(stored_facts(veto.facts))
        yield action.job, (action.kind, verdict, action.reason.rule, veto.rule, *facts)


_OPERATION = ("id", "kind", "opened", "step", "since", "restarts", "tries", "result", "requeued")
"""The fields of an operation that are stored unchanged, in columns of the same names."""
_FACTS: TypeAdapter[Facts] = TypeAdapter(Annotated[Facts, Field(discriminator="type")])
"""The type of the column `noted`."""
_SEEN: TypeAdapter[ResourceRequest | None] = TypeAdapter(ResourceRequest | None)
"""The type of the column `seen`."""


def operation_row(operation: Operation) -> Row:
    """The row of an operation, without its job, which the ledger numbers."""
    row = {name: getattr(operation, name) for name in _OPERATION}
    return {
        **row,
        "until": operation.limit,
        "told": operation.last_status,
        "outcome": operation.outcome and operation.outcome.value,
        "rule": operation.reason.rule,
        "facts": json.dumps(stored_facts(operation.reason.facts)),
        "owed": ",".join(operation.pending_cleanup),
        "goal": json.dumps(dict(operation.goal)),
        "undo": json.dumps(dict(operation.undo)),
        "noted": _FACTS.dump_json(operation.facts).decode(),
        "seen": _SEEN.dump_json(operation.seen).decode(),
    }


def operation_from_row(row: Row) -> Operation:
    """The operation of a row that was joined with its job's key.

    Raises:
        ValueError: a column was not written by `operation_row`.
    """
    return Operation(
        **{name: row[name] for name in _OPERATION},
        job=JobKey(row["cluster"], row["job_id"], row["first_submit"]),
        reason=Reason(row["rule"], facts_from(json.loads(row["facts"]))),
        limit=row["until"],
        last_status=row["told"],
        outcome=None if row["outcome"] is None else OperationOutcome(row["outcome"]),
        pending_cleanup=tuple(filter(None, row["owed"].split(","))),
        goal=json.loads(row["goal"]),
        undo=json.loads(row["undo"]),
        facts=_FACTS.validate_json(row["noted"]),
        seen=_SEEN.validate_json(row["seen"]),
    )


def command_row(command: Command) -> Row:
    """The row of a command, without its job and its cycle."""
    return {
        "id": command.id,
        "operation": command.operation or None,
        "verb": command.verb,
        "fields": json.dumps(dict(command.fields)),
    }


def record_row(record: JobRecord, now: float) -> Row:
    """The row of a job, without its points. `now`: when it was last seen."""
    return {
        **record.facts._asdict(),
        "cluster": record.key.cluster,
        "first_submit": record.key.first_submit,
        "script_digest": record.digest,
        "in_doubt": int(record.in_doubt),
        "directives": json.dumps(None if record.directives is None else asdict(record.directives)),
        "checkpoint": nan_to_null(record.points.checkpoint),
        "checkpoint_time": nan_to_null(record.points.checkpoint_time),
        "trial": record.points.trial,
        "trials": json.dumps(record.points.trials),
        "first_iteration": nan_to_null(record.points.first),
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
        "submitted_directives": _DIRECTIVES.dump_json(record.submitted_directives).decode(),
        "changes": _CHANGES.dump_json(record.changes).decode(),
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
        directives=_DIRECTIVES.validate_python(json.loads(row["directives"])),
        digest=row["script_digest"],
        in_doubt=bool(row["in_doubt"]),
        points=replace(
            latest,
            checkpoint=null_to_nan(row["checkpoint"]),
            checkpoint_time=null_to_nan(row["checkpoint_time"]),
            trials=tuple(told),
            trial=row["trial"],
            first=null_to_nan(row["first_iteration"]),
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
        submitted_directives=_DIRECTIVES.validate_json(row["submitted_directives"]),
        changes=_CHANGES.validate_json(row["changes"]),
    )


def changes_from(found: Sequence[Row]) -> tuple[Change, ...]:
    """The changes of directives of which these are the mappings."""
    return _CHANGES.validate_python(found)


def change_row(job: int, change: Change) -> Row:
    """The row of a change of directives that no cycle has put in force yet. `job`: the row of its job."""
    return {
        "job": job,
        **{name: getattr(change, name) for name in _CHANGE},
        "given": _DIRECTIVES.dump_json(change.given).decode(),
        "taken_back": json.dumps(change.taken_back),
    }


def change_from_row(row: Row) -> Change:
    """The change of such a row."""
    given = _DIRECTIVES.validate_json(row["given"]) or NO_DIRECTIVES
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

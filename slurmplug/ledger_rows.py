"""Between the values of a cycle and the rows of the ledger."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

import numpy as np

from policies.plan import Reason
from policies.snapshot import JobKey
from predictors.arrays import Floats, Texts
from predictors.forecast import Forecast
from slurmplug import codec
from slurmplug.cluster.port import Command
from slurmplug.codec import rebuild
from slurmplug.cycle_record import CycleRecord
from slurmplug.directives import Directives
from slurmplug.operations import Operation
from slurmplug.progress import Points
from slurmplug.record import JobFacts, JobRecord, Point, joined

Row = dict[str, Any]
NO_TEXTS: Mapping[str, Texts] = {}


def null(value: float) -> float | None:
    """NaN is NULL in the ledger."""
    return None if math.isnan(value) else float(value)


def number(value: float | None) -> float:
    """NULL is NaN in memory."""
    return float("nan") if value is None else float(value)


def of_cycle(record: CycleRecord) -> Row:
    """Full inputs only where something was commanded: they are what an audit decides again."""
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
        "inputs": codec.dumps([record.snapshot, record.forecasts, record.memory]) if record.commands else None,
    }


STANDING = ("cycle", "rank", "allowed", "spared", "priority", "terms", "forecast", "note")
"""The columns of where a job stands, beside the job."""


def of_standing(record: CycleRecord) -> Iterator[tuple[Any, ...]]:
    """Where each job of the snapshot stands, in its order; by columns, as there may be 100,000 jobs."""
    jobs, plan, verdict, forecasts = record.snapshot.jobs, record.plan, record.verdict, record.forecasts
    n = len(jobs)
    spared = np.full(n, "", dtype="U16")
    for rule, mask in reversed(list(verdict.spared.items())):
        spared[mask] = rule
    told = {
        **_with_interval("total", forecasts.total),
        **_with_interval("remaining", forecasts.remaining),
        **_with_interval("final", forecasts.final),
        "reach": forecasts.final.sf(jobs.target),
        "iteration": jobs.iteration,
        "done": jobs.iteration / jobs.max_iterations,
    }
    sources = {"source": forecasts.remaining.source, "total_source": forecasts.total.source}
    notes = {key: json.dumps(asdict(reason)) for key, reason in plan.notes.items()}
    return zip(
        [record.snapshot.cycle] * n,
        plan.rank.tolist(),
        (~np.isnan(verdict.rank)).astype(int).tolist(),
        spared.tolist(),
        jobs.priority.tolist(),
        _objects(n, plan.terms),
        _objects(n, told, sources),
        map(notes.get, jobs.keys) if notes else [None] * n,
        strict=True,
    )


def _objects(n: int, numbers: Mapping[str, Floats], texts: Mapping[str, Texts] = NO_TEXTS) -> list[str]:
    """(n,) JSON objects of a text or a number from each column, those left out that are NaN."""
    members = []
    for name, column in texts.items():
        written = {text: f"{json.dumps(name)}: {json.dumps(text)}, " for text in np.unique(column).tolist()}
        members.append([written[text] for text in column.tolist()])
    for name, values in numbers.items():
        if np.isnan(values).all():
            continue
        distinct, at = np.unique(values, return_inverse=True)
        head, written_so = f"{json.dumps(name)}: ", json.dumps(distinct.tolist())[1:-1].split(", ")
        told = np.array(["" if number == "NaN" else f"{head}{number}, " for number in written_so], dtype=object)
        members.append(told[at].tolist())
    return ["{" + "".join(row)[:-2] + "}" for row in zip(*members, strict=True)] if members else ["{}"] * n


def _with_interval(name: str, forecast: Forecast) -> dict[str, Floats]:
    """Its median, and between what it lies with 90 %."""
    low, median, high = forecast.quantile([0.05, 0.5, 0.95]).T
    return {name: median, f"{name}_low": low, f"{name}_high": high}


def of_decisions(record: CycleRecord) -> Iterator[tuple[JobKey, tuple[str, str, str, str, str, str]]]:
    """kind, verdict, rule, veto, facts, veto_facts of each action of the plan."""
    nothing = Reason("")
    pairs = [(action, "allowed", nothing) for action in record.verdict.actions]
    pairs += [(a, "notice" if why.facts.get("mode") == "advise" else "vetoed", why) for a, why in record.verdict.vetoes]
    for action, verdict, veto in pairs:
        facts = json.dumps(dict(action.reason.facts)), json.dumps(dict(veto.facts))
        yield action.job, (action.kind, verdict, action.reason.rule, veto.rule, *facts)


_OPERATION = ("id", "kind", "opened", "step", "since", "restarts", "told", "tries", "result")
"""The fields of an operation that the ledger keeps as they are."""


def of_operation(operation: Operation) -> Row:
    """Without its job, which the ledger numbers."""
    row = {name: getattr(operation, name) for name in _OPERATION}
    return {
        **row,
        "until": operation.limit,
        "rule": operation.reason.rule,
        "facts": json.dumps(dict(operation.reason.facts)),
        "owed": ",".join(operation.owed),
        "goal": json.dumps(dict(operation.goal)),
        "undo": json.dumps(dict(operation.undo)),
        "noted": json.dumps(dict(operation.facts)),
        "requeued": operation.requeued,
    }


def to_operation(row: Row) -> Operation:
    return Operation(
        **{name: row[name] for name in _OPERATION},
        job=JobKey(row["cluster"], row["job_id"], row["first_submit"]),
        reason=Reason(row["rule"], json.loads(row["facts"])),
        limit=row["until"],
        owed=tuple(filter(None, row["owed"].split(","))),
        goal=json.loads(row["goal"]),
        undo=json.loads(row["undo"]),
        facts=json.loads(row["noted"]),
        requeued=row["requeued"],
    )


def of_command(command: Command) -> Row:
    return {
        "id": command.id,
        "operation": command.operation or None,
        "verb": command.verb,
        "fields": json.dumps(dict(command.fields)),
    }


def of_record(record: JobRecord, now: float) -> Row:
    return {
        **record.facts._asdict(),
        "cluster": record.key.cluster,
        "first_submit": record.key.first_submit,
        "directives": json.dumps(None if record.directives is None else asdict(record.directives)),
        "checkpoint": null(record.points.checkpoint),
        "checkpoint_time": null(record.points.checkpoint_time),
        "label": null(record.label),
        "waited_before": record.waited_before,
        "attained_before": record.attained_before,
        "ended": int(not record.facts.live),
        "listed": int(record.listed),
        "admission": record.admission,
        "last_seen": now,
    }


def of_points(points: Iterable[Point]) -> Iterator[tuple[JobKey, Row]]:
    """Of the points that are kept."""
    for point in points:
        if point.quantities is not None:
            quantities = json.dumps(_numbers(point.quantities))
            place = {"restarts": point.restarts, "iteration": point.iteration}
            yield point.key, {**place, "time": point.time, "quantities": quantities}


def to_record(row: Row, points: Iterable[Row]) -> JobRecord:
    facts = JobFacts(**{name: row[name] for name in JobFacts._fields})._replace(batch=bool(row["batch"]))
    earlier, last, told = Points(), 0, Points()
    for run, rows in groupby(points, key=lambda point: int(point["restarts"])):
        earlier, last, told = joined(earlier, told), run, _points(list(rows))
    return JobRecord(
        key=JobKey(row["cluster"], row["job_id"], row["first_submit"]),
        facts=facts,
        directives=rebuild(Directives | None, json.loads(row["directives"])),
        points=replace(told, checkpoint=number(row["checkpoint"]), checkpoint_time=number(row["checkpoint_time"])),
        points_of=last,
        earlier=earlier,
        label=number(row["label"]),
        waited_before=row["waited_before"],
        attained_before=row["attained_before"],
        listed=bool(row["listed"]),
        admission=row["admission"],
    )


def _numbers(row: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if not math.isnan(value)}


def _points(rows: Sequence[Row]) -> Points:
    """The points of one run."""
    quantities = [json.loads(row["quantities"]) for row in rows]
    return Points(
        iterations=np.array([row["iteration"] for row in rows], dtype=float),
        times=np.array([row["time"] for row in rows], dtype=float),
        quantities={
            name: np.array([each.get(name, np.nan) for each in quantities], dtype=float)
            for name in set().union(*quantities)
        },
    )

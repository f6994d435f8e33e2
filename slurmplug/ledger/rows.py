"""What a cycle decided and did as rows of the ledger, and operations back."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from policies.plan import Reason
from policies.snapshot import JobKey
from slurmplug.ledger import codec
from slurmplug.ledger.facts import facts_from, stored_facts
from slurmplug.ledger.sqlite import Row
from slurmplug.operations import Facts, Operation, OperationOutcome

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from predictors.arrays import Floats, Ints
    from predictors.forecast import Forecast
    from slurmplug.cluster.port import Command, ResourceRequest
    from slurmplug.cycle.record import CycleRecord

INTERVAL_LEVELS = (0.05, 0.5, 0.95)
"""The quantiles of a prediction that are stored: the median and the ends of the 90 % interval."""


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


@functools.cache
def _facts() -> TypeAdapter[Facts]:
    """The type of the column `noted`."""
    from pydantic import Field, TypeAdapter  # noqa: PLC0415  it takes long to load, and most reports do without

    return TypeAdapter(Annotated[Facts, Field(discriminator="type")])


@functools.cache
def _seen() -> TypeAdapter[ResourceRequest | None]:
    """The type of the column `seen`."""
    from pydantic import TypeAdapter  # noqa: PLC0415  as above

    from slurmplug.cluster.port import ResourceRequest  # noqa: PLC0415

    return TypeAdapter(ResourceRequest | None)


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
        "noted": _facts().dump_json(operation.facts).decode(),
        "seen": _seen().dump_json(operation.seen).decode(),
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
        facts=_facts().validate_json(row["noted"]),
        seen=_seen().validate_json(row["seen"]),
    )


def command_row(command: Command) -> Row:
    """The row of a command, without its job and its cycle."""
    return {
        "id": command.id,
        "operation": command.operation or None,
        "verb": command.verb,
        "fields": json.dumps(dict(command.fields)),
    }

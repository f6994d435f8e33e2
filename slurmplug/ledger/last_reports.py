"""The last value of each quantity that a job reported in its present trial, from its record or from its reports."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slurmplug.intake.job_record import JobRecord, last_not_finite
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.sqlite import Row
from slurmplug.spool.values import json_value

MOST = 256
"""How many of the last reports are searched."""
NO_REPORTS: Mapping[str, Any] = {"iteration": None, "quantities": {}, "quantities_at": {}, "not_finite": {}}


def last_reports_of(record: JobRecord) -> Row:
    """As `last_reports`, of the present trial of a job, without the ledger."""
    trial = record.points.trial
    runs = [points for points in (record.points.of_trial(trial), record.earlier.of_trial(trial)) if len(points)]
    if not runs:
        return {**NO_REPORTS}
    last: dict[str, float | str] = {}
    at: dict[str, float] = {}
    not_finite: dict[str, int] = {}
    for points in runs:
        for name, values in points.quantities.items():
            reported = np.flatnonzero(~np.isnan(values[-MOST:]))
            if name in last or not len(reported):
                continue
            row = int(reported[-1]) - min(MOST, len(values))
            last[name], at[name] = json_value(float(values[row])), float(points.iterations[row])
            if isinstance(last[name], str):
                not_finite[name] = last_not_finite(points, name)
    return {
        "iteration": float(runs[0].iterations[-1]),
        "quantities": last,
        "quantities_at": at,
        "not_finite": not_finite,
    }


def last_reports(ledger: LedgerFile, job: int, trial: int) -> Row:
    """The last `iteration` of a trial, the last value of each of its `quantities` as in JSON, the iterations of these,
    and how many of the last values in a row were `not_finite`. `job`: its row."""
    found = ledger.tuples(_LAST_REPORTS, job, trial, MOST)
    if not found:
        return {**NO_REPORTS}
    reports = json.loads(f"[{','.join([quantities for _, quantities in found])}]")
    last: dict[str, float | str] = {}
    at: dict[str, float] = {}
    for (iteration, _), reported in zip(found, reports, strict=True):
        if reported.keys() <= last.keys():
            continue
        at |= {name: iteration for name in reported if name not in last}
        last = reported | last
    texts = [name for name, value in last.items() if isinstance(value, str)]
    not_finite = {name: _last_texts([each[name] for each in reports if name in each]) for name in texts}
    return {"iteration": found[0][0], "quantities": last, "quantities_at": at, "not_finite": not_finite}


def _last_texts(values: Sequence[float | str]) -> int:
    """How many of the values, the last one first, are texts, as those are that are not finite."""
    return next((n for n, value in enumerate(values) if not isinstance(value, str)), len(values))


_LAST_REPORTS = """
SELECT iteration, quantities FROM progress WHERE job = ? AND trial = ? ORDER BY restarts DESC, iteration DESC LIMIT ?
"""

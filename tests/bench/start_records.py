"""What was told of the starts of jobs, beside when they started, and how near that came. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from predictors.arrays import Bools, Floats

Figures = Mapping[str, float]
NAN = float("nan")


class Told(NamedTuple):
    """A start that was told at a time, with the ends of its 80% interval if it has one; seconds since the epoch."""

    at: float
    start: float
    low: float | None = None
    high: float | None = None


class JobRecord(NamedTuple):
    """A job: when it was submitted and when it started, in seconds since the epoch.

    slurm: each of its estimates that squeue --start showed, in order. queue: the daemon's first forecast, `at` when the
    queue was so; queue_seen: when that was first in the ledger. estimate: that of `slurmplug estimate`, just before it
    was submitted. limit: its time limit over its run time.
    """

    submitted: float
    started: float
    has_directives: bool
    limit: float
    slurm: Sequence[Told] = ()
    queue: Told | None = None
    queue_seen: float | None = None
    estimate: Told | None = None

    @classmethod
    def of(cls, row: Sequence[object]) -> JobRecord:
        """From JSON."""
        found = cls(*row)  # type: ignore[arg-type]
        queue, estimate = (None if told is None else Told(*told) for told in (found.queue, found.estimate))
        return found._replace(slurm=[Told(*each) for each in found.slurm], queue=queue, estimate=estimate)


def at_that_time(told: Sequence[Told], at: float) -> Told | None:
    """The last of what was told by then; the first of all where nothing was."""
    by_then = [each for each in told if each.at <= at]
    return by_then[-1] if by_then else next(iter(told), None)


SOURCES: Mapping[str, str] = {
    "slurm": "`squeue --start`, its first estimate",
    "queue": "the daemon's first forecast (`queue`, `why`)",
    "estimate": "`slurmplug estimate`, just before submission",
    "slurm then": "`squeue --start` at the time of the daemon's first forecast",
    "now": "no wait",
}
"""how the table calls what was told"""


def told_by_source(record: JobRecord) -> Mapping[str, Told | None]:
    """What each source told of a job."""
    queue = record.queue
    return {
        "slurm": next(iter(record.slurm), None),
        "queue": queue,
        "estimate": record.estimate,
        "slurm then": None if queue is None else at_that_time(record.slurm, queue.at),
        "now": Told(record.submitted, record.submitted),
    }


def figures(records: Sequence[JobRecord]) -> Figures:
    """Of a run: jobs, mean wait, and of each source the share of the jobs with one, how long after submission it was
    told, the mean absolute error of these, and of the jobs of which Slurm, the daemon and `estimate` told, and how
    often its interval held."""
    started = np.array([each.started for each in records])
    submitted = np.array([each.submitted for each in records])
    by_job = [told_by_source(each) for each in records]
    told = {name: _columns([of[name] for of in by_job]) for name in SOURCES}
    common = np.all([~np.isnan(told[name][:, 1]) for name in ("slurm", "queue", "estimate")], axis=0)
    found = {
        "jobs": float(len(records)),
        "wait": float((started - submitted).mean()),
        "limit": float(np.mean([each.limit for each in records])),
        "common": float(common.mean()),
        "common wait": _mean((started - submitted)[common]),
        "queue known": _median(
            np.array([NAN if each.queue_seen is None else each.queue_seen - each.submitted for each in records])
        ),
    }
    for name, column in told.items():
        error = np.abs(column[:, 1] - started)
        inside = (column[:, 2] <= started) & (started <= column[:, 3])
        known = ~np.isnan(error)
        found |= {
            f"{name} share": float(known.mean()),
            f"{name} after": _median(column[:, 0] - submitted),
            f"{name} mae": _mean(error[known]),
            f"{name} mae of common": _mean(error[common]),
            f"{name} early": _mean((column[:, 1] < started)[common].astype(float)),
            f"{name} covers": _mean(inside[~np.isnan(column[:, 2])].astype(float)),
        }
    return found


def _columns(told: Sequence[Told | None]) -> Floats:
    """(n, 4), NaN where nothing was told."""
    rows = [(NAN,) * 4 if each is None else tuple(NAN if v is None else v for v in each) for each in told]
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _mean(values: Floats | Bools) -> float:
    return float(values.mean()) if len(values) else NAN


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else NAN


HEAD = (
    "forecast of the start",
    "jobs with one",
    "told after submission",
    "mean absolute error",
    "of the jobs with all three",
    "80% interval covers",
)


def table(runs: Sequence[Figures]) -> str:
    """A line a source, each figure as its mean over the runs and, of several runs, its 95% interval."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for name, title in SOURCES.items():
        lines.append((
            title,
            _cell(runs, f"{name} share", 100.0, "%", 0),
            "" if name in ("estimate", "now") else _cell(runs, f"{name} after", 1.0, " s"),
            _cell(runs, f"{name} mae", 1.0, " s"),
            _cell(runs, f"{name} mae of common", 1.0, " s"),
            _cell(runs, f"{name} covers", 100.0, "%", 0),
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(runs: Sequence[Figures]) -> str:
    """What the table is of, and by how much the errors differ, by run."""
    lines = [
        f"{len(runs)} runs of {runs[0]['jobs']:.0f} jobs",
        f"mean wait {_cell(runs, 'wait', 1.0, ' s')}",
        f"time limits {_cell(runs, 'limit', 1.0, '')} times the run times",
        f"jobs with all three forecasts {_cell(runs, 'common', 100.0, '%', 0)}",
        f"their mean wait {_cell(runs, 'common wait', 1.0, ' s')}",
        f"the daemon's first forecast was in the ledger {_cell(runs, 'queue known', 1.0, ' s')} after submission",
    ]
    for name, whose in (("queue", "the daemon's"), ("estimate", "slurmplug estimate's")):
        ratios = np.array([each["slurm mae of common"] / each[f"{name} mae of common"] for each in runs])
        by_run = ", ".join(f"{each:.2f}" for each in ratios)
        lines.append(f"error of squeue --start over {whose}: {interval(ratios, 2)} ({by_run})")
    return "\n".join(lines)


def as_json(runs: Sequence[Figures], first_seed: int) -> str:
    """The figures of each run with its seed, null for what is not known; times in seconds."""
    known = ({name: None if np.isnan(value) else value for name, value in each.items()} for each in runs)
    return json.dumps([{"seed": seed, **each} for seed, each in enumerate(known, first_seed)])


def interval(values: Floats, digits: int = 1) -> str:
    """The mean and, of several, half the width of its 95% interval by Student's t."""
    mean = f"{values.mean():.{digits}f}"
    if len(values) < 2:
        return mean
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def _cell(runs: Sequence[Figures], name: str, scale: float, unit: str, digits: int = 1) -> str:
    values = np.array([each[name] for each in runs]) * scale
    return "" if np.isnan(values).any() else interval(values, digits) + unit

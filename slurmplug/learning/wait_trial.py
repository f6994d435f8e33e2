"""Evaluates forecasts of waiting times on a log that keeps them: each job is predicted when it is submitted, from what
had happened by then.

"Published" is what `slurmplug estimate` would have said, by the same code: a simulation on forecast run times
(`queue_log`), a model that learns waits from features of the queue (`wait_model`), or the average of both, whichever
forecast best what had started by then, corrected by these outcomes (`start_outcomes`). Beside it stands a simulation on
requested times, which is what `squeue --start` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats, Texts
from predictors.scoring import Clock, ScoreRow, absolute_error, coverage
from predictors.trials import runtime
from slurmplug.forecasting.starts.start_outcomes import METHODS, Method, StartOutcomes, median_and_interval
from slurmplug.forecasting.starts.wait_model import Waits, earlier_forecasts, even_parts
from slurmplug.learning.dataset_files import JobLog
from slurmplug.learning.queue_log import QueueLog

MOST_JOBS = 2_000
"""jobs that are predicted, an even sample over a longer log"""
FEWEST_JOBS = 100
TRAININGS = 64
"""times that the daemon learns over the log"""
_PUBLISHED, _REQUESTED = "published", "requested times"


def trial(log: JobLog, clock: Clock) -> list[ScoreRow]:
    """Scores of what `slurmplug estimate` would have said, of each of its methods alone, and of others.

    `clock`: times the simulations, in seconds. Scores: mean absolute error in seconds, share of the waits in their 80%
    interval, share of the jobs for which the method was published, milliseconds a job. Raises ValueError where the log
    keeps too few waiting times.
    """
    queue = _queue(log, clock)
    rows = np.unique(np.linspace(0, len(queue.submit) - 1, min(MOST_JOBS, len(queue.submit))).astype(np.int64))
    wait, states = queue.wait[rows], [queue.state(row) for row in rows.tolist()]
    began = clock()
    samples, requested = queue.simulated_waits(states)
    seconds = clock() - began
    simulated = np.median(samples, axis=1)
    features = np.array([queue.features(queue.state(row)) for row in range(len(queue.submit))], dtype=np.float64)
    learnt = earlier_forecasts(Waits(features, queue.submit, queue.start), rows, TRAININGS)
    known = np.where(np.isnan(learnt), simulated, learnt)
    jobs = Jobs(samples, simulated, learnt, queue.limit[rows], queue.submit[rows], queue.start[rows])
    published = estimates(jobs)

    def row(
        name: str, predicted: Floats, covers: float = np.nan, share: float = np.nan, ms: float = np.nan
    ) -> ScoreRow:
        scores = {"mae s": absolute_error(predicted, wait), "covers 80%": covers, "published": share, "ms": ms}
        return ScoreRow("", name, len(wait), scores)

    def of(name: str, found: Estimates, share: float = np.nan) -> ScoreRow:
        middle, low, high = found.waits.T
        return row(name, middle, coverage(low, high, wait), share)

    low, high = np.quantile(samples, [0.1, 0.9], axis=1)
    return [
        of(_PUBLISHED, published),
        *(
            of(f"{method}, by outcomes", estimates(jobs, method), float((published.methods == method).mean()))
            for method in METHODS
        ),
        row("simulated", simulated, coverage(low, high, wait), ms=1e3 * seconds / len(wait)),
        row("learnt", known),
        row("average", np.expm1((np.log1p(simulated) + np.log1p(known)) / 2)),
        row(_REQUESTED, requested),
        row("no wait", np.zeros(len(wait))),
    ]


def summary(rows: Sequence[ScoreRow]) -> Mapping[str, float]:
    """Of the rows of `trial`: jobs, mae and mae_requested in seconds, coverage80 as a share."""
    by_name = {row.method: row for row in rows}
    return {
        "jobs": by_name[_PUBLISHED].items,
        "mae": by_name[_PUBLISHED].scores["mae s"],
        "mae_requested": by_name[_REQUESTED].scores["mae s"],
        "coverage80": by_name[_PUBLISHED].scores["covers 80%"],
    }


class Jobs(NamedTuple):
    """n jobs in order of submission. samples: (n, samples) of their simulated waits; simulated: (n,) the medians.
    learnt: (n,) NaN where no model was. limit: (n,). submit, start: (n,) when; all in seconds."""

    samples: Floats
    simulated: Floats
    learnt: Floats
    limit: Floats
    submit: Floats
    start: Floats


class Estimates(NamedTuple):
    """Of n jobs: (n, 3) their waits in seconds, the median and the ends of an 80% interval; (n,) by which methods."""

    waits: Floats
    methods: Texts


def estimates(jobs: Jobs, always: Method | None = None) -> Estimates:
    """As `slurmplug estimate` has them, where the daemon has learnt `TRAININGS` times at even parts of the jobs, each
    time from those that had started by then. always: that method, whether it was the best or not."""
    waits = median_and_interval(jobs.samples)
    methods = np.full(len(waits), "simulated", dtype="<U9")
    for part in even_parts(len(waits), TRAININGS):
        rows = np.flatnonzero(jobs.start[: part[0]] <= jobs.submit[part[0]])
        came = (jobs.start - jobs.submit)[rows]
        outcomes = StartOutcomes(jobs.simulated[rows], jobs.limit[rows], came, jobs.learnt[rows])
        for i in part.tolist():
            found = outcomes.corrected(jobs.simulated[[i]], jobs.learnt[[i]], float(jobs.limit[i]), always)
            methods[i] = found.method
            if found.waits.size:
                waits[i] = median_and_interval(found.waits)[0]
    return Estimates(waits, methods)


def _queue(log: JobLog, clock: Clock) -> QueueLog:
    kept = np.flatnonzero(np.isfinite(log.waits) & np.array([bool(job.get("cpus")) for job in log.jobs]))
    if len(kept) < FEWEST_JOBS:
        raise ValueError(
            f"it keeps the waiting times and the processors of {len(kept)} jobs, and at least {FEWEST_JOBS} are needed"
        )
    jobs, runtimes = [log.jobs[i] for i in kept.tolist()], np.maximum(log.runtimes[kept], 1.0)
    forecast, _ = runtime.replay("stack", jobs, runtimes, clock)
    return QueueLog(JobLog(jobs, log.runtimes[kept], log.waits[kept]), forecast)

"""Evaluates forecasts of waiting times on a log that keeps them: each job is predicted when it is submitted, from what
had happened by then.

A simulation on forecast run times (`queue_log`), one on requested times, which is what `squeue --start` does, and a
model that learns waits from features of the queue (Brown et al. 2022). What is published of these is what has had the
least error so far. Its interval is that of the waits that followed the predictions nearest to it, its level adapted
online by how often intervals missed (Gibbs and Candès 2021).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from predictors.arrays import Floats, Ints
from predictors.scoring import Clock, ScoreRow, absolute_error, coverage
from predictors.trials import runtime
from slurmplug.forecasting.start_outcomes import StartOutcomes, as_they_came
from slurmplug.learning.dataset_files import JobLog
from slurmplug.learning.queue_log import QueueLog

MOST_JOBS = 2_000
"""jobs that are predicted, an even sample over a longer log"""
FEWEST_JOBS = 100
FEWEST_KNOWN = 200
"""waits that the learnt model is first fitted on"""
FITS = 16
"""times that the learnt model is fitted, and the method chosen, over the log"""
NEAREST, LATEST = 100, 500
"""An interval is that of the waits of so many jobs whose predictions are nearest, of the latest ones."""
FEWEST_KNOWN_WAITS = 30
_OUTSIDE = 0.2
"""share of the waits that lie outside of their 80% intervals"""
_STEP = 0.03
_PUBLISHED, _SIMULATED, _REQUESTED = "published", "simulated", "requested times"


def trial(log: JobLog, clock: Clock) -> list[ScoreRow]:
    """Scores of each method: of the simulated and the learnt, of both, and of what is published of them.

    `clock`: times the simulations, in seconds. Scores: mean absolute error in seconds, share of the waits in their 80%
    interval, share of the jobs for which the method was published, milliseconds a job. Raises ValueError where the log
    keeps too few waiting times.
    """
    queue = _queue(log, clock)
    rows = np.unique(np.linspace(0, len(queue.submit) - 1, min(MOST_JOBS, len(queue.submit))).astype(np.int64))
    submit, start, wait = queue.submit[rows], queue.start[rows], queue.wait[rows]
    states = [queue.state(row) for row in rows.tolist()]
    began = clock()
    samples, requested = queue.simulated_waits(states)
    seconds = clock() - began
    simulated = np.median(samples, axis=1)
    learnt = learnt_waits(queue, rows, simulated)
    methods = {_SIMULATED: simulated, "learnt": learnt, "average": (simulated + learnt) / 2}
    chosen = _chosen(list(methods.values()), submit, start)
    published = np.choose(chosen, list(methods.values()))
    of_samples = np.quantile(samples, [0.1, 0.9], axis=1)
    inside = coverage(*intervals(published, of_samples, submit, start), wait)
    simulated_inside = coverage(of_samples[0], of_samples[1], wait)

    def row(
        name: str, predicted: Floats, covers: float = np.nan, share: float = np.nan, ms: float = np.nan
    ) -> ScoreRow:
        scores = {"mae s": absolute_error(predicted, wait), "covers 80%": covers, "published": share, "ms": ms}
        return ScoreRow("", name, len(wait), scores)

    return [
        row(_PUBLISHED, published, inside),
        *(
            row(
                name,
                each,
                share=float((chosen == i).mean()),
                covers=simulated_inside if not i else np.nan,
                ms=1e3 * seconds / len(wait) if not i else np.nan,
            )
            for i, (name, each) in enumerate(methods.items())
        ),
        row("simulated, by outcomes", *by_outcomes(simulated, queue.limit[rows], of_samples, submit, start)),
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


def intervals(predicted: Floats, first: Floats, submit: Floats, start: Floats) -> tuple[Floats, Floats]:
    """The bounds (n,) of 80% intervals of predicted waits (n,) in seconds, each from the jobs that had started when its
    job was submitted. first: (2, n) bounds while these are too few."""
    low, high = (bound.copy() for bound in first)
    logs, waits, tail = np.log1p(predicted), start - submit, _OUTSIDE / 2
    waiting: list[tuple[float, int]] = []
    known: list[int] = []
    for i in range(len(predicted)):
        while waiting and waiting[0][0] <= submit[i]:
            done = heapq.heappop(waiting)[1]
            known.append(done)
            missed = not low[done] <= waits[done] <= high[done]
            tail = float(np.clip(tail + _STEP * (_OUTSIDE - missed) / 2, 0.0, 0.5))
        if len(known) >= FEWEST_KNOWN_WAITS:
            latest = np.array(known[-LATEST:])
            near = latest[np.argsort(np.abs(logs[latest] - logs[i]), kind="stable")[:NEAREST]]
            low[i], high[i] = np.quantile(waits[near], [tail, 1 - tail])
        heapq.heappush(waiting, (float(start[i]), i))
    return low, high


def by_outcomes(simulated: Floats, limit: Floats, first: Floats, submit: Floats, start: Floats) -> tuple[Floats, float]:
    """The medians (n,) of what `slurmplug estimate` makes of simulated waits (n,) of jobs with these time limits (n,),
    all in seconds, by the outcomes of jobs that had started when a job was submitted, and the share of the waits within
    its 80% intervals. first: (2, n) bounds while outcomes are too few."""
    waits, middle, (low, high) = start - submit, simulated.copy(), first.copy()
    for i, one in enumerate(simulated.tolist()):
        known = np.flatnonzero(start[:i] <= submit[i])
        ratios = StartOutcomes(simulated[known], limit[known], waits[known]).ratios(one, float(limit[i]))
        if len(ratios):
            came = as_they_came(np.array([one]), ratios)[0]
            middle[i], low[i], high[i] = np.quantile(came, [0.5, 0.1, 0.9], method="inverted_cdf")
    return middle, coverage(low, high, waits)


def _queue(log: JobLog, clock: Clock) -> QueueLog:
    kept = np.flatnonzero(np.isfinite(log.waits) & np.array([bool(job.get("cpus")) for job in log.jobs]))
    if len(kept) < FEWEST_JOBS:
        raise ValueError(
            f"it keeps the waiting times and the processors of {len(kept)} jobs, and at least {FEWEST_JOBS} are needed"
        )
    jobs, runtimes = [log.jobs[i] for i in kept.tolist()], np.maximum(log.runtimes[kept], 1.0)
    forecast, _ = runtime.replay("stack", jobs, runtimes, clock)
    return QueueLog(JobLog(jobs, log.runtimes[kept], log.waits[kept]), forecast)


def _parts(jobs: int) -> list[Ints]:
    """The places of so many jobs in even parts, none of which is empty."""
    return [part for part in np.array_split(np.arange(jobs), FITS) if len(part)]


def learnt_waits(queue: QueueLog, rows: Ints, otherwise: Floats) -> Floats:
    """(n,) waits of these rows (n,) by a model of the features of all jobs that had started; `otherwise` (n,) while
    these are too few.

    It learns the logarithm of one second more than the wait, whose median is that of the wait: few waits are long, and
    those would decide the fit.
    """
    predicted, everyone = otherwise.copy(), np.arange(len(queue.submit))
    features = np.array([queue.features(queue.state(row)) for row in everyone.tolist()], dtype=np.float64)
    for part in _parts(len(rows)):
        first = rows[part[0]]
        known = everyone[:first][queue.start[:first] <= queue.submit[first]]
        if len(known) >= FEWEST_KNOWN:
            model = HistGradientBoostingRegressor(
                loss="absolute_error",
                max_iter=120,
                learning_rate=0.08,
                min_samples_leaf=10,
                l2_regularization=1.0,
                random_state=0,
            )
            fitted = model.fit(features[known], np.log1p(queue.wait[known])).predict(features[rows[part]])
            predicted[part] = np.maximum(np.expm1(fitted), 0.0)
    return predicted


def _chosen(methods: Sequence[Floats], submit: Floats, start: Floats) -> Ints:
    """(n,) the method with the least mean absolute error on the jobs that had started; the first without any."""
    errors, chosen = np.abs(np.array(methods) - (start - submit)), np.zeros(len(submit), dtype=np.int64)
    for part in _parts(len(submit)):
        known = np.flatnonzero(start[: part[0]] <= submit[part[0]])
        if len(known):
            chosen[part] = errors[:, known].mean(axis=1).argmin()
    return chosen

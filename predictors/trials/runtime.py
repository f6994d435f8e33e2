"""Evaluates run time forecasts online: each job is predicted at submission, from the jobs that had finished by then."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.runtime import Job, RuntimePredictor
from predictors.scoring import UPPER_BOUND, Clock, ScoreRow, absolute_error, agreement, exceedance

GROWTH = 0.1
"""share by which the history grows before "svr" is fitted again"""
FEWEST = 200
"""finished jobs before it is fitted again, at least"""
_SHORTEST = 1.0


def trial(
    jobs: Sequence[Job],
    runtimes: Floats,
    clock: Clock,
    *,
    earlier: int = 0,
    models: Sequence[Literal["stack", "svr"]] = ("stack", "svr"),
) -> list[ScoreRow]:
    """Predict each job at submission, by the models, by its time limit, and by its user's last two jobs.

    jobs: with submit and end. runtimes: (n,) seconds. Where a method has no prediction, the time limit is used, or else
    the mean of all finished jobs. clock: times the predictions. earlier: number of jobs, the first submitted, that are
    replayed but not scored. Raises ValueError without jobs to score.
    """
    if len(jobs) <= earlier:
        raise ValueError("there are no jobs to predict")
    order = np.argsort([float(job["submit"]) for job in jobs], kind="stable").tolist()
    arrived = [jobs[i] for i in order]
    actual = np.maximum(np.asarray(runtimes, dtype=np.float64)[order], _SHORTEST)
    default = _default_prediction(arrived, actual)
    table = []
    for model in models:
        forecast, seconds = replay(model, arrived, actual, clock)
        predicted = np.where(forecast.known, forecast.median, default)
        bound = np.where(forecast.known, forecast.quantile(UPPER_BOUND), default)
        scores = _scores(predicted[earlier:], bound[earlier:], actual[earlier:])
        table.append(ScoreRow("", model, len(actual) - earlier, {**scores, "ms": 1e3 * seconds / len(actual)}))
    request = np.array([_request(job) for job in arrived])
    request = np.where(np.isnan(request), default, request)
    last_two_mean = np.where(np.isnan(pair := last_two(arrived, actual)), default, pair)
    for name, simple, safe in (
        ("request", request, request),
        ("last two", last_two_mean, np.full(len(last_two_mean), np.nan)),
    ):
        scores = _scores(simple[earlier:], safe[earlier:], actual[earlier:])
        table.append(ScoreRow("", name, len(actual) - earlier, {**scores, "ms": float("nan")}))
    return table


def last_two(jobs: Sequence[Job], runtimes: Floats) -> Floats:
    """(n,) mean run time in seconds of the user's last two jobs finished at submission, NaN without any.

    The predictor of Tsafrir, Etsion and Feitelson (TPDS 2007). jobs: in order of submission. runtimes: (n,) seconds.
    """
    recent: dict[object, deque[float]] = defaultdict(lambda: deque(maxlen=2))
    result = np.full(len(jobs), np.nan)
    for rows, finished in _submission_rounds(jobs):
        for i in finished:
            recent[jobs[i].get("user")].append(float(runtimes[i]))
        for i in rows:
            if runs := recent.get(jobs[i].get("user")):
                result[i] = sum(runs) / len(runs)
    return result


def replay(
    model: Literal["stack", "svr"], jobs: Sequence[Job], runtimes: Floats, clock: Clock
) -> tuple[Forecast, float]:
    """The run time of each of n jobs as it is forecast when the job is submitted, from the jobs that had ended by then,
    and the seconds that it took, without fitting.

    jobs: in order of submission, with their end. runtimes: (n,) seconds. clock: as of `trial`.
    """
    predictor = RuntimePredictor(model)
    parts, seconds, fitted_on = [], 0.0, 0
    finished_rows: list[int] = []
    for rows, finished in _submission_rounds(jobs):
        for i in finished:
            predictor.update(jobs[i], float(runtimes[i]))
        finished_rows += finished
        if model == "svr" and len(finished_rows) - fitted_on >= max(FEWEST, GROWTH * fitted_on):
            predictor.fit([jobs[i] for i in finished_rows], runtimes[finished_rows])
            fitted_on = len(finished_rows)
        start = clock()
        forecast = predictor.predict_many([jobs[i] for i in rows])
        forecast.quantile([0.5, UPPER_BOUND])
        seconds += clock() - start
        parts.append(forecast)
    table, source = (np.concatenate([getattr(part, name) for part in parts]) for name in ("table", "source"))
    return Forecast(table, source), seconds


def _submission_rounds(jobs: Sequence[Job]) -> Iterator[tuple[list[int], list[int]]]:
    """Yields jobs submitted while none finishes, and the jobs that finished since the previous round."""
    running: list[tuple[float, int]] = []
    rows: list[int] = []
    finished: list[int] = []
    for i, job in enumerate(jobs):
        if running and running[0][0] <= float(job["submit"]):
            if rows:
                yield rows, finished
            rows, finished = [], []
            while running and running[0][0] <= float(job["submit"]):
                finished.append(heapq.heappop(running)[1])
        rows.append(i)
        heapq.heappush(running, (float(job["end"]), i))
    yield rows, finished


def _default_prediction(jobs: Sequence[Job], runtimes: Floats) -> Floats:
    """(n,) the time limit, or else the mean of the finished jobs, or else an hour, in seconds."""
    result, total, count = np.full(len(jobs), 3600.0), 0.0, 0
    for rows, finished in _submission_rounds(jobs):
        total, count = total + float(runtimes[finished].sum()), count + len(finished)
        result[rows] = total / count if count else 3600.0
    request = np.array([_request(job) for job in jobs])
    return np.where(np.isnan(request), result, request)


def _request(job: Job) -> float:
    limit = job.get("time_limit")
    return float(limit) if limit is not None and float(limit) > 0 else float("nan")


def _scores(predicted: Floats, bound: Floats, actual: Floats) -> dict[str, float]:
    return {
        "mae s": absolute_error(predicted, actual),
        "min/max": agreement(predicted, actual),
        "exceeds 0.95": float("nan") if np.isnan(bound).all() else exceedance(bound, actual),
    }

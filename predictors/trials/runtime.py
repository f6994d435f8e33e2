"""Run times online: jobs in order of submission, each predicted from those that had finished by then."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.runtime import Job, RuntimePredictor
from predictors.scoring import UPPER_BOUND, Clock, Line, absolute_error, agreement, exceedance

GROWTH = 0.1
"""by what share the history has grown when "svr" is fitted again"""
FEWEST = 200
"""finished jobs more, at least, before that"""
_SHORTEST = 1.0


def trial(
    jobs: Sequence[Job],
    runtimes: Floats,
    clock: Clock,
    *,
    earlier: int = 0,
    models: Sequence[Literal["stack", "svr"]] = ("stack", "svr"),
) -> list[Line]:
    """Predict each job when it is submitted, by the models, by its request, and by its user's last two jobs.

    jobs: with submit and end. runtimes: seconds. Where nothing is known yet, the request stands in, else the mean of
    all jobs finished. earlier: so many jobs, the first submitted, are learnt from but not scored.
    Raises ValueError without jobs to score.
    """
    if len(jobs) <= earlier:
        raise ValueError("there are no jobs to predict")
    order = np.argsort([float(job["submit"]) for job in jobs], kind="stable").tolist()
    arrived = [jobs[i] for i in order]
    actual = np.maximum(np.asarray(runtimes, dtype=np.float64)[order], _SHORTEST)
    stand_in = _stand_in(arrived, actual)
    lines = []
    for model in models:
        forecast, seconds = _online(model, arrived, actual, clock)
        predicted = np.where(forecast.known, forecast.median, stand_in)
        bound = np.where(forecast.known, forecast.quantile(UPPER_BOUND), stand_in)
        scores = _scores(predicted[earlier:], bound[earlier:], actual[earlier:])
        lines.append(Line("", model, len(actual) - earlier, {**scores, "ms": 1e3 * seconds / len(actual)}))
    request = np.array([_request(job) for job in arrived])
    request = np.where(np.isnan(request), stand_in, request)
    two = np.where(np.isnan(pair := last_two(arrived, actual)), stand_in, pair)
    for name, simple, safe in (("request", request, request), ("last two", two, np.full(len(two), np.nan))):
        scores = _scores(simple[earlier:], safe[earlier:], actual[earlier:])
        lines.append(Line("", name, len(actual) - earlier, {**scores, "ms": float("nan")}))
    return lines


def last_two(jobs: Sequence[Job], runtimes: Floats) -> Floats:
    """Mean of the user's latest two jobs that had finished by then, NaN where there was none (Tsafrir et al. 2007).

    jobs: in order of submission. runtimes: seconds.
    """
    recent: dict[object, deque[float]] = defaultdict(lambda: deque(maxlen=2))
    result = np.full(len(jobs), np.nan)
    for rows, finished in _rounds(jobs):
        for i in finished:
            recent[jobs[i].get("user")].append(float(runtimes[i]))
        for i in rows:
            if runs := recent.get(jobs[i].get("user")):
                result[i] = sum(runs) / len(runs)
    return result


def _online(
    model: Literal["stack", "svr"], jobs: Sequence[Job], runtimes: Floats, clock: Clock
) -> tuple[Forecast, float]:
    """The forecasts made at submission, and the seconds that asking for them took; learning is not counted."""
    predictor = RuntimePredictor(model)
    parts, seconds, learnt = [], 0.0, 0
    done: list[int] = []
    for rows, finished in _rounds(jobs):
        for i in finished:
            predictor.update(jobs[i], float(runtimes[i]))
        done += finished
        if model == "svr" and len(done) - learnt >= max(FEWEST, GROWTH * learnt):
            predictor.fit([jobs[i] for i in done], runtimes[done])
            learnt = len(done)
        start = clock()
        forecast = predictor.predict_many([jobs[i] for i in rows])
        forecast.quantile([0.5, UPPER_BOUND])
        seconds += clock() - start
        parts.append(forecast)
    table, source = (np.concatenate([getattr(part, name) for part in parts]) for name in ("table", "source"))
    return Forecast(table, source), seconds


def _rounds(jobs: Sequence[Job]) -> Iterator[tuple[list[int], list[int]]]:
    """Jobs that are submitted while none finishes, and those that finished before them since the round before."""
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


def _stand_in(jobs: Sequence[Job], runtimes: Floats) -> Floats:
    """The request, else the mean of what has finished, else an hour."""
    result, total, count = np.full(len(jobs), 3600.0), 0.0, 0
    for rows, finished in _rounds(jobs):
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

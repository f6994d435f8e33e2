"""Evaluates speed forecasts: step times at numbers of GPUs that were not measured, from one to three that were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats
from predictors.scoring import INTERVAL, Clock, ScoreRow, coverage, relative_error
from predictors.speed import SpeedPredictor

POINTS = (1, 2, 3)
"""numbers of measurements that a job is predicted from"""
DRAWS = 3
"""random choices of the measurements of each job"""


@dataclass(frozen=True)
class Profile:
    """Step times of a job on n placements: gpus, nodes, and step_time in seconds, each (n,); its model and GPU type."""

    model: str
    gpu_type: str
    gpus: Floats
    nodes: Floats
    step_time: Floats


def trial(profiles: Sequence[Profile], clock: Clock, seed: int = 0) -> list[ScoreRow]:
    """Fit on each job's step times at random numbers of GPUs, one placement each, and predict all others.

    A job is predicted from its own measurements alone, so that every model and GPU type is new to the predictor. Errors
    are relative to the step time; all jobs weigh the same. The baseline "nearest" predicts the step time at the nearest
    number of GPUs that was measured. Raises ValueError where no job was measured at more than three.
    """
    jobs = [each for each in profiles if len(np.unique(each.gpus)) > max(POINTS)]
    if not jobs:
        raise ValueError(f"no job was measured on more than {max(POINTS)} counts of GPUs")
    table = []
    for points in POINTS:
        rows = [
            (job, *_score_job(job, points, np.random.default_rng([seed, number, draw]), clock))
            for number, job in enumerate(jobs)
            for draw in range(DRAWS)
        ]
        models = sorted({job.model for job in jobs})
        types = sorted({job.gpu_type for job in jobs})
        parts: list[tuple[str, Bools]] = [("", np.ones(len(rows), dtype=np.bool_))]
        parts += [(f": {model}", np.array([job.model == model for job, *_ in rows])) for model in models]
        parts += [(f": {kind}", np.array([job.gpu_type == kind for job, *_ in rows])) for kind in types]
        numbers = np.array([row[1:] for row in rows])
        for name, chosen in parts:
            error, nearest, covered, ms = numbers[chosen].mean(axis=0).tolist()
            part, nothing = f"from {points}{name}", float("nan")
            scores = {"error": error, "covers 90%": covered, "ms": ms}
            table.append(ScoreRow(part, "measured speed", int(chosen.sum()), scores))
            scores = {"error": nearest, "covers 90%": nothing, "ms": nothing}
            table.append(ScoreRow(part, "nearest", int(chosen.sum()), scores))
    return table


def _score_job(
    job: Profile, points: int, random: np.random.Generator, clock: Clock
) -> tuple[float, float, float, float]:
    """Relative error, that of the baseline, coverage of the 90% interval, and milliseconds for each prediction."""
    counts = random.choice(np.unique(job.gpus), points, replace=False)
    seen = np.array([random.choice(np.flatnonzero(job.gpus == count)) for count in counts])
    new = ~np.isin(job.gpus, counts)
    start = clock()
    predictor = SpeedPredictor().fit(job.gpus[seen], job.nodes[seen], job.step_time[seen])
    forecast = predictor.predict(job.gpus[new], job.nodes[new])
    slow, median, fast = forecast.quantile([INTERVAL[0], 0.5, INTERVAL[1]]).T
    ms = 1e3 * (clock() - start) / len(slow)
    actual = job.step_time[new]
    distance = np.abs(np.log(job.gpus[new][:, None] / job.gpus[seen]))
    nearest = job.step_time[seen][distance.argmin(axis=1)]
    error = relative_error(1.0 / median, actual, actual)
    return error, relative_error(nearest, actual, actual), coverage(1.0 / fast, 1.0 / slow, actual), ms

"""Step times at counts of GPUs that were not measured, from one, two and three that were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats
from predictors.scoring import INTERVAL, Clock, Line, coverage, relative_error
from predictors.speed import SpeedPredictor

POINTS = (1, 2, 3)
DRAWS = 3
"""times that the measured counts are drawn, a job"""


@dataclass(frozen=True)
class Profile:
    """A job measured on placements: (n,) GPUs, nodes, seconds a step; what it trains and on which GPUs."""

    model: str
    gpu_type: str
    gpus: Floats
    nodes: Floats
    step_time: Floats


def trial(profiles: Sequence[Profile], clock: Clock, seed: int = 0) -> list[Line]:
    """Measure each job at random counts of GPUs, on one placement each, and predict it at all others.

    A job is predicted from its own points alone, so that every model and every type of GPU is new. Errors are relative
    to the step time; jobs count alike. "nearest": the step takes as long as at the nearest count that was measured.
    Raises ValueError where no job was measured at more than three counts.
    """
    jobs = [each for each in profiles if len(np.unique(each.gpus)) > max(POINTS)]
    if not jobs:
        raise ValueError(f"no job was measured on more than {max(POINTS)} counts of GPUs")
    lines = []
    for points in POINTS:
        rows = [
            (job, *_one(job, points, np.random.default_rng([seed, number, draw]), clock))
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
            lines.append(Line(part, "measured speed", int(chosen.sum()), scores))
            scores = {"error": nearest, "covers 90%": nothing, "ms": nothing}
            lines.append(Line(part, "nearest", int(chosen.sum()), scores))
    return lines


def _one(job: Profile, points: int, random: np.random.Generator, clock: Clock) -> tuple[float, float, float, float]:
    """Error, error of the nearest, coverage, milliseconds."""
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

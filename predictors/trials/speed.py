"""Evaluates speed forecasts: step times at numbers of GPUs that were not measured, from one to three that were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats
from predictors.scoring import INTERVAL, Clock, ScoreRow, coverage, relative_error
from predictors.speed import SpeedPredictor

POINTS = (1, 2, 3)
"""numbers of measurements that a job is predicted from"""
DRAWS = 3
"""random choices of the measurements of each job"""
KIND_JOBS, KIND_POINTS = 20, 3
"""other jobs of its kind at most, and measurements of each, that a job is predicted with"""
SCALES = 10.0
"""the factor by which the time scales of jobs of a kind differ at most: each draws its own"""
METHODS = ("measured speed", "with its kind", "nearest")


@dataclass(frozen=True)
class Profile:
    """Step times of a job on n placements: gpus, nodes, and step_time in seconds, each (n,); its model and GPU type."""

    model: str
    gpu_type: str
    gpus: Floats
    nodes: Floats
    step_time: Floats


class Measured(NamedTuple):
    """Some measurements of a job, each (k,): GPUs, nodes, step times in seconds."""

    gpus: Floats
    nodes: Floats
    step_time: Floats


def trial(profiles: Sequence[Profile], clock: Clock, seed: int = 0) -> list[ScoreRow]:
    """Fit on each job's step times at random numbers of GPUs, one placement each, and predict all others.

    "measured speed" predicts a job from its own measurements alone, so that every model and GPU type is new to the
    predictor; "with its kind" also knows a few measurements of other jobs of its model and GPU type, whose time scales
    differ. Errors are relative to the step time; all jobs weigh the same. The baseline "nearest" predicts the step time
    at the nearest number of GPUs that was measured. Raises ValueError where no job was measured at more than three.
    """
    jobs = [each for each in profiles if len(np.unique(each.gpus)) > max(POINTS)]
    if not jobs:
        raise ValueError(f"no job was measured on more than {max(POINTS)} counts of GPUs")
    table = []
    for points in POINTS:
        rows = [
            (job, _score_job(jobs, number, points, np.random.default_rng([seed, number, draw]), clock))
            for number, job in enumerate(jobs)
            for draw in range(DRAWS)
        ]
        models = sorted({job.model for job in jobs})
        types = sorted({job.gpu_type for job in jobs})
        parts: list[tuple[str, Bools]] = [("", np.ones(len(rows), dtype=np.bool_))]
        parts += [(f": {model}", np.array([job.model == model for job, _ in rows])) for model in models]
        parts += [(f": {kind}", np.array([job.gpu_type == kind for job, _ in rows])) for kind in types]
        numbers = np.array([scores for _, scores in rows])
        for name, chosen in parts:
            for method, scores in zip(METHODS, numbers[chosen].mean(axis=0).tolist(), strict=True):
                named = dict(zip(("error", "covers 90%", "ms"), scores, strict=True))
                table.append(ScoreRow(f"from {points}{name}", method, int(chosen.sum()), named))
    return table


def _score_job(
    jobs: Sequence[Profile], number: int, points: int, random: np.random.Generator, clock: Clock
) -> list[tuple[float, float, float]]:
    """Of each of METHODS: the relative error, the coverage of the 90% interval, milliseconds for each prediction."""
    job = jobs[number]
    counts = random.choice(np.unique(job.gpus), points, replace=False)
    seen = np.array([random.choice(np.flatnonzero(job.gpus == count)) for count in counts])
    new = ~np.isin(job.gpus, counts)
    own = Measured(job.gpus[seen], job.nodes[seen], job.step_time[seen])
    distance = np.abs(np.log(job.gpus[new][:, None] / job.gpus[seen]))
    nearest = relative_error(own.step_time[distance.argmin(axis=1)], job.step_time[new], job.step_time[new])
    alone = _score_prediction(job, new, [own], clock)
    return [
        alone,
        _score_prediction(job, new, [own, *_others_of_kind(jobs, number, random)], clock),
        (nearest, np.nan, np.nan),
    ]


def _others_of_kind(jobs: Sequence[Profile], number: int, random: np.random.Generator) -> Iterator[Measured]:
    """A few measurements of each of some other jobs of the same model and GPU type, each with a time scale of its
    own."""
    kind = jobs[number].model, jobs[number].gpu_type
    others = [each for i, each in enumerate(jobs) if i != number and (each.model, each.gpu_type) == kind]
    for at in random.choice(len(others), min(KIND_JOBS, len(others)), replace=False).tolist() if others else []:
        job = others[at]
        some = random.choice(len(job.gpus), min(KIND_POINTS, len(job.gpus)), replace=False)
        scale = SCALES ** random.uniform(-0.5, 0.5)
        yield Measured(job.gpus[some], job.nodes[some], job.step_time[some] * scale)


def _score_prediction(
    job: Profile, new: Bools, measured: Sequence[Measured], clock: Clock
) -> tuple[float, float, float]:
    """As `_score_job`, for the first of the jobs that were measured."""
    start = clock()
    gpus, nodes, step_time = (np.concatenate(column) for column in zip(*measured, strict=True))
    of_job = np.repeat(np.arange(len(measured)), [len(each.gpus) for each in measured])
    forecast = SpeedPredictor().fit(gpus, nodes, step_time, of_job).predict(job.gpus[new], job.nodes[new])
    slow, median, fast = forecast.quantile([INTERVAL[0], 0.5, INTERVAL[1]]).T
    ms = 1e3 * (clock() - start) / len(slow)
    actual = job.step_time[new]
    return relative_error(1.0 / median, actual, actual), coverage(1.0 / fast, 1.0 / slow, actual), ms

"""Evaluates forecasts of speed on a type of GPU on which a kind of job was not seen, from its speed on another type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from predictors.arrays import Floats
from predictors.gpu_type_ratio import LogRatio, expected_log_ratio, mean_of_jobs
from predictors.scoring import INTERVAL, ScoreRow, coverage, relative_error

METHODS = ("as on the other type", "by other kinds", "by its kind, too")


class TypedStep(NamedTuple):
    """The seconds an iteration of a job takes on a number of GPUs of one type; jobs of a kind train alike."""

    kind: str
    job: str
    gpus: int
    gpu_type: str
    step_time: float


class _Step(NamedTuple):
    """Two step times of a job on as many GPUs of two types, as logarithms."""

    kind: str
    job: str
    types: tuple[str, str]
    before: float
    after: float


def trial(steps: Sequence[TypedStep]) -> list[ScoreRow]:
    """Predict each step time from that of the same job on as many GPUs of each other type, one kind left out at a time.

    "as on the other type" takes both types for one; "by other kinds" knows how the others' step times compare on the
    two types, one ratio for each; "by its kind, too" also the ratio of the kind's other jobs, where it has any. All
    kinds weigh the same. Raises ValueError where no job was measured on two types.
    """
    pairs = list(_pairs(steps))
    if not pairs:
        raise ValueError("no job was measured on as many GPUs of two types")
    rows = [(pair, _scores(pair, pairs)) for pair in pairs]
    parts = ["", *(f"{before} to {after}" for before, after in sorted({pair.types for pair in pairs}))]
    table = []
    for part in parts:
        chosen = [(pair.kind, scores) for pair, scores in rows if part in ("", " to ".join(pair.types))]
        for number, method in enumerate(METHODS):
            by_kind: dict[str, list[tuple[float, float]]] = {}
            for kind, scores in chosen:
                by_kind.setdefault(kind, []).append(scores[number])
            mean = np.mean([np.mean(each, axis=0) for each in by_kind.values()], axis=0)
            named = dict(zip(("error", "covers 90%"), mean.tolist(), strict=True))
            table.append(ScoreRow(part, method, len(chosen), named))
    return table


def _pairs(steps: Sequence[TypedStep]) -> Iterator[_Step]:
    by_job: dict[tuple[str, str, int], dict[str, float]] = {}
    for step in steps:
        by_job.setdefault((step.kind, step.job, step.gpus), {})[step.gpu_type] = float(np.log(step.step_time))
    for (kind, job, _), times in by_job.items():
        for before, after in permutations(sorted(times), 2):
            yield _Step(kind, job, (before, after), times[before], times[after])


def _scores(pair: _Step, pairs: Sequence[_Step]) -> list[tuple[float, float]]:
    """Of each of METHODS: the relative error, and whether the 90% interval covers the step time."""
    ratios: dict[str, list[float]] = {}
    for each in pairs:
        if each.types == pair.types and (each.kind, each.job) != (pair.kind, pair.job):
            ratios.setdefault(each.kind, []).append(each.after - each.before)
    own = ratios.pop(pair.kind, None)
    others = [mean_of_jobs(values) for values in ratios.values()]
    of_kind = mean_of_jobs(own) if own else None
    actual = np.exp([pair.after])
    pooled = relative_error(np.exp([pair.before]), actual, actual), float("nan")
    return [pooled, *(_score(pair, expected_log_ratio(known, others), actual) for known in (None, of_kind))]


def _score(pair: _Step, ratio: LogRatio, actual: Floats) -> tuple[float, float]:
    predicted = pair.before + ratio.mean
    spread = ratio.variance**0.5 * ndtri(INTERVAL[1])
    low, high = np.exp([predicted - spread]), np.exp([predicted + spread])
    return relative_error(np.exp([predicted]), actual, actual), coverage(low, high, actual)

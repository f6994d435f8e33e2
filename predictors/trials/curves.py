"""Evaluates learning curve forecasts: the last value of a run predicted from a first part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.scoring import Clock, ScoreRow, distribution_scores, point_scores

FEWEST_OBSERVED = 5
"""points of a run that are observed at least"""
FOLDS = 5
_POWERS = np.geomspace(0.05, 3.0, 60)


@dataclass(frozen=True)
class FinishedCurve:
    """A finished run: its curve (n,), higher is better; its group; and what was known of it at its start."""

    values: Floats
    group: str = ""
    meta: Meta = field(default=None)

    def observed(self, share: float) -> Floats:
        """The first `share` of the curve, at least `FEWEST_OBSERVED` points."""
        return self.values[: max(FEWEST_OBSERVED, round(share * len(self.values)))]


def trial(
    runs: Sequence[FinishedCurve],
    share: float,
    clock: Clock,
    history: Sequence[FinishedCurve] | None = None,
    seed: int = 0,
) -> list[ScoreRow]:
    """Predict each run's last value from its first `share`: with a history, without one, and for unseen groups.

    The predictor is fitted on `history`, or else by cross-validation on the other four of five folds; for an unseen
    group, on all other groups. clock: times the predictions. Raises ValueError unless two runs are longer than what is
    observed of them.
    """
    tested = [run for run in runs if len(run.observed(share)) < len(run.values)]
    if len(tested) < 2:
        raise ValueError(f"there are fewer than two curves of more than {FEWEST_OBSERVED} points")
    if history is None:
        order = np.random.default_rng(seed).permutation(len(tested))
        rounds = [(_without(tested, fold), fold) for fold in np.array_split(order, min(FOLDS, len(tested)))]
    else:
        rounds = [(list(history), np.arange(len(tested)))]
    table = [
        *_score_methods("with history", tested, rounds, share, clock),
        *_score_methods("cold", tested, [([], np.arange(len(tested)))], share, clock),
    ]
    groups = np.array([run.group for run in tested])
    names = np.unique(groups)
    if history is None and len(names) > 1:
        unseen = [np.flatnonzero(groups == name) for name in names]
        rounds = [(_without(tested, rows), rows) for rows in unseen]
        table += _score_methods("unseen group", tested, rounds, share, clock)
        for name, one in zip(names, rounds, strict=True):
            table += _score_methods(f"unseen: {name}", tested, [one], share, clock)[:2]
    return table


def last_value(observed: Floats) -> float:
    """Baseline: the last observed value."""
    return float(observed[-1])


def power_law(observed: Floats, at: int) -> float:
    """Baseline: c - a x^-b with a >= 0, fitted by least squares, at iteration `at`; a constant where it cannot rise."""
    x = np.arange(1.0, len(observed) + 1)
    basis = x ** -_POWERS[:, None]
    centred = basis - basis.mean(axis=1, keepdims=True)
    slope = np.minimum(centred @ (observed - observed.mean()) / (centred**2).sum(axis=1), 0.0)
    offset = observed.mean() - slope * basis.mean(axis=1)
    errors = ((slope[:, None] * basis + offset[:, None] - observed) ** 2).sum(axis=1)
    best = int(np.argmin(errors))
    return float(offset[best] + slope[best] * at ** -_POWERS[best])


def _score_methods(
    part: str,
    runs: Sequence[FinishedCurve],
    rounds: Sequence[tuple[list[FinishedCurve], Ints]],
    share: float,
    clock: Clock,
) -> list[ScoreRow]:
    """One row for each method. rounds: pairs of a history and the indices of the runs that are predicted with it."""
    order = np.concatenate([rows for _, rows in rounds])
    actual = np.array([runs[i].values[-1] for i in order.tolist()])
    forecasts: dict[str, list[Forecast]] = {"learning curve": [], "last value": [], "power law": []}
    points: dict[str, list[Floats]] = {name: [] for name in forecasts}
    seconds = 0.0
    for history, rows in rounds:
        tested_runs = [runs[i] for i in rows.tolist()]
        predictor = LearningCurvePredictor().fit([run.values for run in history], [run.meta for run in history])
        observed, ends = [run.observed(share) for run in tested_runs], [len(run.values) for run in tested_runs]
        predictor.predict(observed[0], ends[0], tested_runs[0].meta)  # one-time preparation is not timed
        start = clock()
        forecast = predictor.predict_many(observed, ends, [run.meta for run in tested_runs])
        forecast.quantile([0.05, 0.5, 0.95])
        seconds += clock() - start
        forecasts["learning curve"].append(forecast)
        points["learning curve"].append(forecast.median)
        for name, predicted in _baselines(tested_runs, share):
            points[name].append(predicted)
            forecasts[name].append(_with_errors(predicted, name, _errors(history, share, name)))
    table = []
    for name, parts in forecasts.items():
        whole = Forecast(np.concatenate([p.table for p in parts]), np.concatenate([p.source for p in parts]))
        certain = bool(np.all(whole.table[:, 0] == whole.table[:, -1]))
        point = point_scores(np.concatenate(points[name]), actual)
        scores = point if certain else {**distribution_scores(whole, actual), "mae": point["mae"]}
        timed = {"ms": 1e3 * seconds / len(order) if name == "learning curve" else float("nan")}
        table.append(ScoreRow(part, name, len(order), {**scores, **timed}))
    return table


def _baselines(runs: Sequence[FinishedCurve], share: float) -> Iterator[tuple[str, Floats]]:
    yield "last value", np.array([last_value(run.observed(share)) for run in runs])
    yield "power law", np.array([power_law(run.observed(share), len(run.values)) for run in runs])


def _errors(history: Sequence[FinishedCurve], share: float, name: str) -> Floats:
    """(k,) errors of the baseline on the history, in the units of the curves."""
    usable = [run for run in history if len(run.observed(share)) < len(run.values)]
    if not usable:
        return np.zeros(0)
    return np.array([run.values[-1] for run in usable]) - dict(_baselines(usable, share))[name]


def _with_errors(predicted: Floats, name: str, errors_on_history: Floats) -> Forecast:
    """The baseline's prediction plus the errors it had on the history; a point mass without any."""
    if not len(errors_on_history):
        return Forecast.certain(predicted, name)
    levels = LEVELS[1:-1]
    return Forecast.quantiles(levels, predicted[:, None] + np.quantile(errors_on_history, levels), name)


def _without(runs: Sequence[FinishedCurve], rows: Ints) -> list[FinishedCurve]:
    excluded = set(rows.tolist())
    return [run for i, run in enumerate(runs) if i not in excluded]

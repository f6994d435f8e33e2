"""Learning curves: the last value predicted from a first part of the curve (algorithms 1.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.scoring import Clock, Line, distribution_scores, point_scores

FEWEST_OBSERVED = 5
FOLDS = 5
_POWERS = np.geomspace(0.05, 3.0, 60)


@dataclass(frozen=True)
class Run:
    """A finished curve (n,), higher is better; the group it is of, and what was known of it at its start."""

    values: Floats
    group: str = ""
    meta: Meta = field(default=None)

    def observed(self, share: float) -> Floats:
        """The first `share` of the curve, not fewer than `FEWEST_OBSERVED` points."""
        return self.values[: max(FEWEST_OBSERVED, round(share * len(self.values)))]


def trial(
    runs: Sequence[Run], share: float, clock: Clock, history: Sequence[Run] | None = None, seed: int = 0
) -> list[Line]:
    """Predict each run's last value from its first `share`: with a history, without one, and of unseen groups.

    The history is `history`; without it, the runs of the other four of five folds. A group unseen is left out whole.
    Raises ValueError where no run is longer than what is observed of it.
    """
    tested = [run for run in runs if len(run.observed(share)) < len(run.values)]
    if len(tested) < 2:
        raise ValueError(f"there are fewer than two curves of more than {FEWEST_OBSERVED} points")
    if history is None:
        order = np.random.default_rng(seed).permutation(len(tested))
        rounds = [(_without(tested, fold), fold) for fold in np.array_split(order, min(FOLDS, len(tested)))]
    else:
        rounds = [(list(history), np.arange(len(tested)))]
    lines = [
        *_lines("with history", tested, rounds, share, clock),
        *_lines("cold", tested, [([], np.arange(len(tested)))], share, clock),
    ]
    groups = np.array([run.group for run in tested])
    names = np.unique(groups)
    if history is None and len(names) > 1:
        unseen = [np.flatnonzero(groups == name) for name in names]
        rounds = [(_without(tested, rows), rows) for rows in unseen]
        lines += _lines("unseen group", tested, rounds, share, clock)
        for name, one in zip(names, rounds, strict=True):
            lines += _lines(f"unseen: {name}", tested, [one], share, clock)[:2]
    return lines


def last_value(observed: Floats) -> float:
    """What has been reached stays."""
    return float(observed[-1])


def power_law(observed: Floats, at: int) -> float:
    """c - a x^-b with a >= 0, by least squares, at iteration `at`; no less than the last value where it cannot rise."""
    x = np.arange(1.0, len(observed) + 1)
    basis = x ** -_POWERS[:, None]
    centred = basis - basis.mean(axis=1, keepdims=True)
    slope = np.minimum(centred @ (observed - observed.mean()) / (centred**2).sum(axis=1), 0.0)
    level = observed.mean() - slope * basis.mean(axis=1)
    errors = ((slope[:, None] * basis + level[:, None] - observed) ** 2).sum(axis=1)
    best = int(np.argmin(errors))
    return float(level[best] + slope[best] * at ** -_POWERS[best])


def _lines(
    part: str, runs: Sequence[Run], rounds: Sequence[tuple[list[Run], Ints]], share: float, clock: Clock
) -> list[Line]:
    """One line a method; each round is a history and the rows of the runs that it predicts."""
    order = np.concatenate([rows for _, rows in rounds])
    actual = np.array([runs[i].values[-1] for i in order.tolist()])
    forecasts: dict[str, list[Forecast]] = {"learning curve": [], "last value": [], "power law": []}
    points: dict[str, list[Floats]] = {name: [] for name in forecasts}
    seconds = 0.0
    for history, rows in rounds:
        asked = [runs[i] for i in rows.tolist()]
        predictor = LearningCurvePredictor().fit([run.values for run in history], [run.meta for run in history])
        observed, ends = [run.observed(share) for run in asked], [len(run.values) for run in asked]
        predictor.predict(observed[0], ends[0], asked[0].meta)  # what it prepares once is not timed
        start = clock()
        forecast = predictor.predict_many(observed, ends, [run.meta for run in asked])
        forecast.quantile([0.05, 0.5, 0.95])
        seconds += clock() - start
        forecasts["learning curve"].append(forecast)
        points["learning curve"].append(forecast.median)
        for name, predicted in _simple(asked, share):
            points[name].append(predicted)
            forecasts[name].append(_spread(predicted, name, _misses(history, share, name)))
    lines = []
    for name, parts in forecasts.items():
        whole = Forecast(np.concatenate([p.table for p in parts]), np.concatenate([p.source for p in parts]))
        certain = bool(np.all(whole.table[:, 0] == whole.table[:, -1]))
        told = point_scores(np.concatenate(points[name]), actual)
        scores = told if certain else {**distribution_scores(whole, actual), "mae": told["mae"]}
        timed = {"ms": 1e3 * seconds / len(order) if name == "learning curve" else float("nan")}
        lines.append(Line(part, name, len(order), {**scores, **timed}))
    return lines


def _simple(runs: Sequence[Run], share: float) -> Iterator[tuple[str, Floats]]:
    yield "last value", np.array([last_value(run.observed(share)) for run in runs])
    yield "power law", np.array([power_law(run.observed(share), len(run.values)) for run in runs])


def _misses(history: Sequence[Run], share: float, name: str) -> Floats:
    """By how much the method was off on the history."""
    usable = [run for run in history if len(run.observed(share)) < len(run.values)]
    if not usable:
        return np.zeros(0)
    return np.array([run.values[-1] for run in usable]) - dict(_simple(usable, share))[name]


def _spread(predicted: Floats, name: str, misses: Floats) -> Forecast:
    """The prediction, off as it was on the history; certain of itself where there was none. It is scored as it is."""
    if not len(misses):
        return Forecast.certain(predicted, name)
    levels = LEVELS[1:-1]
    return Forecast.quantiles(levels, predicted[:, None] + np.quantile(misses, levels), name)


def _without(runs: Sequence[Run], rows: Ints) -> list[Run]:
    out = set(rows.tolist())
    return [run for i, run in enumerate(runs) if i not in out]

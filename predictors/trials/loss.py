"""Evaluates loss forecasts by kind of algorithm, as SLAQ does (SoCC 2017, section 4.1 and Table 1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from predictors.arrays import Floats
from predictors.loss import LossFamily, LossPredictor
from predictors.scoring import INTERVAL, Clock, ScoreRow, coverage, mean_row, relative_error

AHEAD = (1, 5, 10)
"""iterations ahead, as in SLAQ's figure 6"""
CONVEX = frozenset({"LogReg", "SVM", "SVMPoly", "LinReg", "KMeans", "LDA", "GBTReg"})
"""SLAQ's algorithms with convex losses, by the names of its Table 1"""
_FIRST = 10
"""points seen before the first prediction"""
_MOST_CUTS = 25


LAST_VALUE, LAST_CHANGE = "last value", "last change"
"""Simple methods: the loss stays as it is, or changes on by as much as in the last iteration (SLAQ's strawman)."""


def trial(curves: Mapping[str, Sequence[Floats]], clock: Clock, ahead: int = max(AHEAD)) -> list[ScoreRow]:
    """Predict losses `ahead` iterations after up to 25 points of each curve, evenly spaced from the tenth on.

    curves: by kind, each (k,). Errors are relative to the actual loss, and to the range of the curve; forecasts also
    have the coverage of their 90% interval. In means, all kinds weigh the same, and within a kind all curves. Raises
    ValueError where no curve is long enough.
    """
    usable = {kind: [c for c in some if len(c) >= _FIRST + ahead] for kind, some in curves.items()}
    usable = {kind: some for kind, some in sorted(usable.items()) if some}
    if not usable:
        raise ValueError(f"there is no loss curve of at least {_FIRST + ahead} points")
    methods: dict[str, list[ScoreRow]] = defaultdict(list)
    for family in get_args(LossFamily):
        predictor = LossPredictor(family)
        predictor.predict(next(iter(usable.values()))[0][:_FIRST], ahead)  # one-time preparation is not timed
        for kind, some in usable.items():
            methods[family].append(_score(kind, family, some, ahead, predictor=predictor, clock=clock))
    for kind, some in usable.items():
        for method in (LAST_VALUE, LAST_CHANGE):
            methods[method].append(_score(kind, method, some, ahead, predictor=None, clock=clock))
    table = []
    for method_rows in methods.values():
        if convex := [row for row in method_rows if row.part in CONVEX]:
            table.append(mean_row(convex, "convex kinds"))
        # Losses of some kinds end near zero, where an error relative to the loss is meaningless.
        whole = mean_row(method_rows, "all kinds")
        table += [replace(whole, scores={**whole.scores, "of the value": float("nan")}), *method_rows]
    return table


def _score(
    kind: str, method: str, curves: Sequence[Floats], ahead: int, *, predictor: LossPredictor | None, clock: Clock
) -> ScoreRow:
    by_value, by_range, covers, seconds, count = [], [], [], 0.0, 0
    for curve in curves:
        last = len(curve) - ahead
        cuts = np.unique(np.linspace(_FIRST, last, min(_MOST_CUTS, last - _FIRST + 1)).astype(int))
        actual = curve[cuts - 1 + ahead]
        if predictor is None:
            change = curve[cuts - 1] - curve[cuts - 2] if method == LAST_CHANGE else 0.0
            predicted = curve[cuts - 1] + ahead * change
        else:
            start = clock()
            forecast = predictor.predict_many([curve[:n] for n in cuts.tolist()], ahead)
            predicted = forecast.median
            seconds += clock() - start
            low, high = forecast.quantile(INTERVAL).T
            covers.append(coverage(low, high, actual))
        by_value.append(relative_error(predicted, actual, actual))
        by_range.append(relative_error(predicted, actual, float(np.ptp(curve))))
        count += len(cuts)
    ms = 1e3 * seconds / count if predictor else float("nan")
    scores = {"of the value": _mean(by_value), "of the range": _mean(by_range), "covers 90%": _mean(covers), "ms": ms}
    return ScoreRow(kind, method, count, scores)


def _mean(errors: Sequence[float]) -> float:
    """Mean over the curves whose error is defined, NaN without any."""
    defined = [error for error in errors if not np.isnan(error)]
    return float(np.mean(defined)) if defined else float("nan")

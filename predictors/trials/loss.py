"""Losses some iterations ahead, by kind of algorithm (SLAQ, SoCC 2017, section 4.1 and its Table 1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from predictors.arrays import Floats
from predictors.loss import LossFamily, LossPredictor
from predictors.scoring import Clock, Line, mean_line, relative_error

AHEAD = 10
CONVEX = frozenset({"LogReg", "SVM", "SVMPoly", "LinReg", "KMeans", "LDA", "GBTReg"})
_FIRST = 10
"""points seen before a curve is predicted: as many as are looked ahead"""
_MOST_CUTS = 25


def trial(curves: Mapping[str, Sequence[Floats]], clock: Clock, ahead: int = AHEAD) -> list[Line]:
    """Predict losses `ahead` iterations after up to 25 points of each curve, evenly spread from the tenth on.

    curves: by kind. Errors are relative to the value that came, and to the curve's range. Kinds count alike in the
    means, and curves alike in a kind.
    Raises ValueError where no curve is long enough.
    """
    usable = {kind: [c for c in some if len(c) >= _FIRST + ahead] for kind, some in curves.items()}
    usable = {kind: some for kind, some in sorted(usable.items()) if some}
    if not usable:
        raise ValueError(f"there is no loss curve of at least {_FIRST + ahead} points")
    methods: dict[str, list[Line]] = defaultdict(list)
    for family in get_args(LossFamily):
        predictor = LossPredictor(family)
        predictor.predict(next(iter(usable.values()))[0][:_FIRST], ahead)  # what it prepares once is not timed
        for kind, some in usable.items():
            methods[family].append(_line(kind, family, some, ahead, predictor=predictor, clock=clock))
    for kind, some in usable.items():
        methods["last value"].append(_line(kind, "last value", some, ahead, predictor=None, clock=clock))
    lines = []
    for of_method in methods.values():
        if convex := [line for line in of_method if line.part in CONVEX]:
            lines.append(mean_line(convex, "convex kinds"))
        # Losses of some kinds end near zero, where an error relative to the value says nothing.
        whole = mean_line(of_method, "all kinds")
        lines += [replace(whole, scores={**whole.scores, "of the value": float("nan")}), *of_method]
    return lines


def _line(
    kind: str, method: str, curves: Sequence[Floats], ahead: int, *, predictor: LossPredictor | None, clock: Clock
) -> Line:
    by_value, by_range, seconds, count = [], [], 0.0, 0
    for curve in curves:
        last = len(curve) - ahead
        cuts = np.unique(np.linspace(_FIRST, last, min(_MOST_CUTS, last - _FIRST + 1)).astype(int))
        if predictor is None:
            predicted = curve[cuts - 1]
        else:
            start = clock()
            forecast = predictor.predict_many([curve[:n] for n in cuts.tolist()], ahead)
            predicted = forecast.median
            seconds += clock() - start
        actual = curve[cuts - 1 + ahead]
        by_value.append(relative_error(predicted, actual, actual))
        by_range.append(relative_error(predicted, actual, float(np.ptp(curve))))
        count += len(cuts)
    ms = 1e3 * seconds / count if predictor else float("nan")
    scores = {"of the value": _mean(by_value), "of the range": _mean(by_range), "ms": ms}
    return Line(kind, method, count, scores)


def _mean(errors: Sequence[float]) -> float:
    """Over the curves whose error can be told."""
    told = [error for error in errors if not np.isnan(error)]
    return float(np.mean(told)) if told else float("nan")

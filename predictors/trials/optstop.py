"""Evaluates OptStop (MLFS 3.5, after Domhan, Springenberg, Hutter 2015): early stopping of the runs of a search.

A run is stopped once P(its last value >= the best so far) is below a threshold, which is calibrated on past runs: see
`safe_threshold`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.scoring import Clock, ScoreRow
from predictors.trials.curves import FEWEST_OBSERVED, FinishedCurve

ORDERS = 30
"""random orders in which the runs of a search are replayed"""
FEWEST_RUNS = 20
"""runs that a search needs"""
RISK = 0.05
"""accepted probability of stopping the best run"""
_FOLDS = 3
_SEARCH_SIZE = 20
"""runs of a simulated past search"""
_SEARCHES = 200
_REDUCTION_FACTOR = 3
_STARTUP = 5


@dataclass(frozen=True)
class WatchedRun:
    """A run (n,), and the forecast of its last value at each epoch from the `FEWEST_OBSERVED`th to the last but one."""

    values: Floats
    forecast: Forecast

    def probability_of_reaching(self, best: float) -> Floats:
        """(epochs,) P(last value >= best) at each epoch that was watched."""
        return self.forecast.sf(best)


Rule: TypeAlias = Callable[[Sequence[WatchedRun], Ints], Iterator[int]]
"""Maps runs and their order to the number of epochs after which each is stopped, in that order."""


def searches(
    runs: Sequence[FinishedCurve], history: Sequence[FinishedCurve] | None = None, seed: int = 0
) -> list[tuple[str, list[FinishedCurve], list[FinishedCurve]]]:
    """Splits runs into searches, one for each group: (name, runs to replay, history to fit on).

    Without a history, each half of a group is replayed in turn, with all other runs as its history. Groups with fewer
    than `FEWEST_RUNS` runs to replay are skipped. Raises ValueError where none is left.
    """
    found: list[tuple[str, list[FinishedCurve], list[FinishedCurve]]] = []
    for name in sorted({run.group for run in runs}):
        rows = [i for i, run in enumerate(runs) if run.group == name]
        if history is not None:
            found.append((name, [runs[i] for i in rows], list(history)))
            continue
        order = np.random.default_rng(seed).permutation(rows).tolist()
        for half, rest in (("a", order[::2]), ("b", order[1::2])):
            others = [run for i, run in enumerate(runs) if i not in set(rest)]
            found.append((f"{name}, half {half}", [runs[i] for i in rest], others))
    found = [each for each in found if len(each[1]) >= FEWEST_RUNS]
    if not found:
        raise ValueError(f"no group has {FEWEST_RUNS} runs to replay")
    return found


def trial(
    runs: Sequence[FinishedCurve],
    history: Sequence[FinishedCurve],
    clock: Clock,
    *,
    orders: int = ORDERS,
    risk: float = RISK,
    seed: int = 0,
) -> list[ScoreRow]:
    """Replay the runs in random orders under OptStop, the median rule, successive halving, and with none stopped.

    runs: of one search, so that their last values are comparable. history: finished runs on which the predictor is
    fitted and the threshold calibrated. risk: accepted probability of stopping the best run. Scores: share of all
    epochs used; regret, in hundredths of the unit of the values; share of orders in which the best run was found.
    Raises ValueError for fewer than two runs longer than `FEWEST_OBSERVED` epochs.
    """
    watched_runs = [run for run in runs if len(run.values) > FEWEST_OBSERVED]
    if len(watched_runs) < 2:
        raise ValueError(f"a search is of at least two curves of more than {FEWEST_OBSERVED} points")
    past = [run for run in history if len(run.values) > FEWEST_OBSERVED]
    threshold = safe_threshold(past, risk, {run.group for run in watched_runs}, seed)
    predictor = LearningCurvePredictor(seed).fit([run.values for run in past], [run.meta for run in past])
    start = clock()
    watched = watch(watched_runs, predictor)
    ms = 1e3 * (clock() - start) / sum(len(each.forecast) for each in watched)
    rules: dict[str, Rule] = {
        "optstop": lambda each, order: optstop(each, order, threshold),
        "median rule": median_rule,
        "successive halving": successive_halving,
        "none": lambda each, order: (len(each[i].values) for i in order.tolist()),
    }
    random = np.random.default_rng(seed)
    permutations = [random.permutation(len(watched)) for _ in range(orders)]
    undefined = float("nan")
    table = []
    for name, rule in rules.items():
        outcomes = np.array([_outcome(watched, order, rule) for order in permutations])
        used, regret, found = outcomes.mean(axis=0).tolist()
        own = {"threshold": threshold, "ms": ms} if name == "optstop" else {"threshold": undefined, "ms": undefined}
        table.append(
            ScoreRow("", name, len(watched), {"epochs used": used, "regret": 100 * regret, "best found": found, **own})
        )
    return table


def safe_threshold(history: Sequence[FinishedCurve], risk: float, groups: Collection[str] = (), seed: int = 0) -> float:
    """The threshold below which P(last value >= best so far) of the best run falls with probability `risk`; 0 for
    never.

    The best run of a search ends at y, at least the best so far, so its P is never below the minimum of P(Y >= y) over
    its epochs. That minimum is measured on simulated past searches, each of `_SEARCH_SIZE` random runs of a group,
    forecast by a predictor that was not fitted on them. The threshold is its `risk` quantile over the runs that ended
    best in one of them (split conformal prediction, Vovk, Gammerman, Shafer 2005, section 4.2). Each such run counts
    once, as there are few and the same ones end best repeatedly. Only `groups` are used where the history has enough of
    their runs, as other groups have other curves.
    """
    random = np.random.default_rng(seed)
    lowest = np.empty(len(history))
    for fold in np.array_split(random.permutation(len(history)), _FOLDS):
        held_out = set(fold.tolist())
        rest = [run for i, run in enumerate(history) if i not in held_out]
        predictor = LearningCurvePredictor(seed).fit([run.values for run in rest], [run.meta for run in rest])
        tested = watch([history[i] for i in fold.tolist()], predictor)
        lowest[fold] = [float(each.probability_of_reaching(float(each.values[-1])).min()) for each in tested]
    ends = np.array([run.values[-1] for run in history])
    group = np.array([run.group for run in history], dtype=np.str_)
    names, counts = np.unique(group, return_counts=True)
    searched = [name for name, count in zip(names.tolist(), counts, strict=True) if count >= _SEARCH_SIZE]
    bests: set[int] = set()
    for name in [name for name in searched if name in groups] or searched:
        rows = np.flatnonzero(group == name)
        for _ in range(_SEARCHES):
            search = random.choice(rows, _SEARCH_SIZE, replace=False)
            bests.add(int(search[ends[search].argmax()]))
    return float(np.quantile(lowest[sorted(bests)], risk, method="lower")) if bests else 0.0


def watch(runs: Sequence[FinishedCurve], predictor: LearningCurvePredictor) -> list[WatchedRun]:
    """The runs with the forecasts of their last value, epoch by epoch."""
    pairs = [(run, n) for run in runs for n in range(FEWEST_OBSERVED, len(run.values))]
    if not pairs:
        return []
    forecast = predictor.predict_many(
        [run.values[:n] for run, n in pairs], [len(run.values) for run, _ in pairs], [run.meta for run, _ in pairs]
    )
    ends = np.cumsum([len(run.values) - FEWEST_OBSERVED for run in runs]).tolist()
    return [
        WatchedRun(run.values, forecast[start:end]) for run, start, end in zip(runs, [0, *ends[:-1]], ends, strict=True)
    ]


def optstop(watched: Sequence[WatchedRun], order: Ints, threshold: float) -> Iterator[int]:
    """Yields epochs used: a run is stopped once P(its last value >= the best so far) is below the threshold."""
    best = -np.inf
    for i in order.tolist():
        below_threshold = np.flatnonzero(watched[i].probability_of_reaching(best) < threshold)
        if len(below_threshold):
            yield FEWEST_OBSERVED + int(below_threshold[0])
        else:
            best = max(best, float(watched[i].values[-1]))
            yield len(watched[i].values)


def median_rule(watched: Sequence[WatchedRun], order: Ints) -> Iterator[int]:
    """Yields epochs used: a run is stopped when its best value is below the median of the finished runs' values then.

    The median stopping rule (Golovin et al. 2017, section 3.2).
    """
    finished: list[Floats] = []
    for i in order.tolist():
        values = watched[i].values
        used = len(values)
        if len(finished) >= _STARTUP:
            for n in range(FEWEST_OBSERVED, len(values)):
                reached = [other[n - 1] for other in finished if len(other) >= n]
                if reached and values[:n].max() < np.median(reached):
                    used = n
                    break
        if used == len(values):
            finished.append(values)
        yield used


def successive_halving(watched: Sequence[WatchedRun], order: Ints) -> Iterator[int]:
    """Yields epochs used: a run is stopped at a ninth or a third of its epochs unless it is in the best third so far.

    Asynchronous successive halving (Li et al., MLSys 2020, algorithm 2), in order of arrival.
    """
    rungs: list[list[float]] = [[], []]
    for i in order.tolist():
        values = watched[i].values
        used = len(values)
        for rung, seen in enumerate(rungs):
            n = max(1, len(values) // _REDUCTION_FACTOR ** (len(rungs) - rung))
            seen.append(float(values[n - 1]))
            if sum(other > values[n - 1] for other in seen) >= max(1, len(seen) // _REDUCTION_FACTOR):
                used = n
                break
        yield used


def _outcome(watched: Sequence[WatchedRun], order: Ints, rule: Rule) -> tuple[float, float, float]:
    """Share of all epochs used, regret, and whether the best run was found."""
    used = np.array(list(rule(watched, order)))
    lengths = np.array([len(watched[i].values) for i in order.tolist()])
    ends = np.array([watched[i].values[-1] for i in order.tolist()])
    found = ends[used == lengths].max(initial=-np.inf)
    return float(used.sum() / lengths.sum()), float(ends.max() - found), float(found == ends.max())

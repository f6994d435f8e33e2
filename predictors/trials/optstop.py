"""OptStop (MLFS 3.5, after Domhan, Springenberg, Hutter 2015): many runs one after another, the hopeless ones stopped.

A run is stopped once P(its last value >= the best found so far) is below a threshold. The threshold is not chosen but
read from a history: see `safe_threshold`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.scoring import Clock, Line
from predictors.trials.curves import FEWEST_OBSERVED, Run

ORDERS = 30
FEWEST_RUNS = 20
RISK = 0.05
"""the probability with which the best run may be stopped"""
_FOLDS = 3
_SEARCH = 20
"""runs of a past search"""
_SEARCHES = 200
_ETA = 3
_STARTUP = 5


@dataclass(frozen=True)
class Watched:
    """A run and what was forecast of its last value at each epoch from the `FEWEST_OBSERVED`th to the last but one."""

    values: Floats
    forecast: Forecast

    def unlikely(self, best: float) -> Floats:
        """(epochs watched,) P(the last value >= best)."""
        return self.forecast.sf(best)


Rule: TypeAlias = Callable[[Sequence[Watched], Ints], Iterator[int]]
"""Given runs and their order, after how many epochs each is stopped, in that order."""


def searches(
    runs: Sequence[Run], history: Sequence[Run] | None = None, seed: int = 0
) -> list[tuple[str, list[Run], list[Run]]]:
    """The searches among the runs, by group: its name, the runs to replay, and the history to learn from.

    Without a history, half of each group is replayed, and all other runs are the history; then the other half is.
    Groups with fewer than `FEWEST_RUNS` runs to replay are no search. Raises ValueError where there is none.
    """
    found: list[tuple[str, list[Run], list[Run]]] = []
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
    runs: Sequence[Run],
    history: Sequence[Run],
    clock: Clock,
    *,
    orders: int = ORDERS,
    risk: float = RISK,
    seed: int = 0,
) -> list[Line]:
    """Replay the runs in random orders under OptStop, the median rule, successive halving, and nothing.

    `runs` are of one search: their last values are compared. `history`: finished runs, from which the predictor and
    the threshold are learnt. Scores: the share of all epochs that was used; the regret, in hundredths of the values'
    unit; the share of orders in which the best run was found.
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
    nothing = float("nan")
    lines = []
    for name, rule in rules.items():
        outcomes = np.array([_outcome(watched, order, rule) for order in permutations])
        used, regret, found = outcomes.mean(axis=0).tolist()
        own = {"threshold": threshold, "ms": ms} if name == "optstop" else {"threshold": nothing, "ms": nothing}
        lines.append(
            Line("", name, len(watched), {"epochs used": used, "regret": 100 * regret, "best found": found, **own})
        )
    return lines


def safe_threshold(history: Sequence[Run], risk: float, groups: Collection[str] = (), seed: int = 0) -> float:
    """Below which P(last value >= best so far) the best run of a search falls with a probability of `risk`; 0: none.

    The best run of a search ends at y, at least the best so far, so its P is never below the least that P(Y >= y) came
    to while it was watched. That least is measured on past searches: `_SEARCH` random runs of a group of the history at
    a time, watched by a predictor that did not learn from them. The threshold is the `risk` quantile of it over the
    runs that ended best in one of them (split conformal prediction, Vovk, Gammerman, Shafer 2005, section 4.2), each
    counted once: they are few, and the same ones end best again and again.
    It is read from `groups` where the history has enough runs of them: curves of other kinds are other curves.
    """
    random = np.random.default_rng(seed)
    lowest = np.empty(len(history))
    for fold in np.array_split(random.permutation(len(history)), _FOLDS):
        out = set(fold.tolist())
        rest = [run for i, run in enumerate(history) if i not in out]
        predictor = LearningCurvePredictor(seed).fit([run.values for run in rest], [run.meta for run in rest])
        tested = watch([history[i] for i in fold.tolist()], predictor)
        lowest[fold] = [float(each.unlikely(float(each.values[-1])).min()) for each in tested]
    ends = np.array([run.values[-1] for run in history])
    group = np.array([run.group for run in history], dtype=np.str_)
    names, counts = np.unique(group, return_counts=True)
    searched = [name for name, count in zip(names.tolist(), counts, strict=True) if count >= _SEARCH]
    bests: set[int] = set()
    for name in [name for name in searched if name in groups] or searched:
        rows = np.flatnonzero(group == name)
        for _ in range(_SEARCHES):
            search = random.choice(rows, _SEARCH, replace=False)
            bests.add(int(search[ends[search].argmax()]))
    return float(np.quantile(lowest[sorted(bests)], risk, method="lower")) if bests else 0.0


def watch(runs: Sequence[Run], predictor: LearningCurvePredictor) -> list[Watched]:
    """The runs with their forecasts, epoch by epoch."""
    pairs = [(run, n) for run in runs for n in range(FEWEST_OBSERVED, len(run.values))]
    if not pairs:
        return []
    forecast = predictor.predict_many(
        [run.values[:n] for run, n in pairs], [len(run.values) for run, _ in pairs], [run.meta for run, _ in pairs]
    )
    ends = np.cumsum([len(run.values) - FEWEST_OBSERVED for run in runs]).tolist()
    return [
        Watched(run.values, forecast[start:end]) for run, start, end in zip(runs, [0, *ends[:-1]], ends, strict=True)
    ]


def optstop(watched: Sequence[Watched], order: Ints, threshold: float) -> Iterator[int]:
    """Stop a run once it is as good as certain that it will not end best."""
    best = -np.inf
    for i in order.tolist():
        hopeless = np.flatnonzero(watched[i].unlikely(best) < threshold)
        if len(hopeless):
            yield FEWEST_OBSERVED + int(hopeless[0])
        else:
            best = max(best, float(watched[i].values[-1]))
            yield len(watched[i].values)


def median_rule(watched: Sequence[Watched], order: Ints) -> Iterator[int]:
    """Stop a run whose best is below the median of what the finished ones had then (Golovin et al. 2017, 3.2)."""
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


def successive_halving(watched: Sequence[Watched], order: Ints) -> Iterator[int]:
    """Stop a run that at a ninth or a third of its epochs is not in the best third of those that came so far.

    Asynchronous successive halving (Li et al., MLSys 2020, algorithm 2) in order of arrival.
    """
    rungs: list[list[float]] = [[], []]
    for i in order.tolist():
        values = watched[i].values
        used = len(values)
        for rung, seen in enumerate(rungs):
            n = max(1, len(values) // _ETA ** (len(rungs) - rung))
            seen.append(float(values[n - 1]))
            if sum(other > values[n - 1] for other in seen) >= max(1, len(seen) // _ETA):
                used = n
                break
        yield used


def _outcome(watched: Sequence[Watched], order: Ints, rule: Rule) -> tuple[float, float, float]:
    """Share of the epochs used, regret, whether a best run was found."""
    used = np.array(list(rule(watched, order)))
    lengths = np.array([len(watched[i].values) for i in order.tolist()])
    ends = np.array([watched[i].values[-1] for i in order.tolist()])
    found = ends[used == lengths].max(initial=-np.inf)
    return float(used.sum() / lengths.sum()), float(ends.max() - found), float(found == ends.max())

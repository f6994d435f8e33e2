"""Replays finished runs under the rules by which MLF-C stops jobs: how many they stop, and how many wrongly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.mlfs import divergence, stop_rules
from policies.mlfs.curve_shape import CurveShape, falls
from policies.mlfs.load_control import LoadControlSettings
from policies.snapshot import Curves
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.scoring import ScoreRow
from predictors.trials import optstop
from predictors.trials.curves import FEWEST_OBSERVED, FinishedCurve

EXPLODES_BY = 1.5
"""A loss that is made to diverge grows by this factor with each report, from the middle of its curve on."""
_AS_BUILT = LoadControlSettings()
_AS_IN_PAPER = replace(_AS_BUILT, spend_error=False)


@dataclass(frozen=True)
class _Replay:
    """A run (n,) and the target of its search, as seen after each epoch from the `FEWEST_OBSERVED`th to the last but
    one: each column (epochs,)."""

    values: Floats
    target: float
    forecast: Forecast
    prefixes: Curves
    shape: CurveShape

    @property
    def epochs(self) -> Ints:
        return np.arange(FEWEST_OBSERVED, len(self.values))

    def misses(self, settings: LoadControlSettings) -> Bools:
        p_reach = np.where(self.shape.best >= self.target, 1.0, self.forecast.sf(self.target))
        return stop_rules.misses(p_reach, self.epochs / len(self.values), self.shape, settings)

    def at_maximum(self, *, with_falls: bool) -> Bools:
        maximum = self.forecast.clip(lower=self.shape.best).mean
        tolerance = _AS_BUILT.epsilon * np.abs(self.shape.best)
        rows = np.arange(len(self.epochs))
        falling = falls(self.prefixes, rows, self.shape) if with_falls else np.zeros(len(rows), dtype=bool)
        return stop_rules.at_maximum(maximum, tolerance, falling, self.shape)


def accuracy_trial(runs: Sequence[FinishedCurve]) -> list[ScoreRow]:
    """Replay the runs of each search under the rules of a target that is out of reach, and of no better value.

    The target of a search is the median of what its runs reach at the end, so that half of them meet it. A stop for a
    target out of reach is wrong if the last value meets it; one as no better value is likely, if the run exceeds the
    best value so far by more than epsilon. Scores: share of the runs stopped, share of all runs stopped wrongly,
    share of all epochs used. Raises ValueError where no search has enough runs.
    """
    replays = list(_replays(runs))

    def row(
        part: str, method: str, stops: Callable[[_Replay], Bools], wrong: Callable[[_Replay, int], bool]
    ) -> ScoreRow:
        return _scored(part, method, replays, stops, wrong)

    return [
        row("out of reach", "error spent", lambda run: run.misses(_AS_BUILT), _meets),
        row("out of reach", "as in the paper", lambda run: run.misses(_AS_IN_PAPER), _meets),
        row("no better value", "forecast", lambda run: run.at_maximum(with_falls=False), _improves),
        row("no better value", "forecast or fall", lambda run: run.at_maximum(with_falls=True), _improves),
    ]


def loss_trial(curves: Mapping[str, Sequence[Floats]]) -> list[ScoreRow]:
    """Replay curves of losses under the rule of divergence, as they are and made to explode from their middle on.

    Scores: share of the curves that are stopped; reports from the middle to the stop, in the median.
    """
    losses = [curve for some in curves.values() for curve in some]
    table = []
    for method, change in (("as reported", lambda curve: curve), ("made to explode", _exploding)):
        stops = [_first(_diverged(change(curve))) for curve in losses]
        after = [stop - len(curve) // 2 for stop, curve in zip(stops, losses, strict=True) if stop is not None]
        late = float(np.median(after)) if after and change is _exploding else float("nan")
        scores = {"stopped": len(after) / len(losses), "reports": late}
        table.append(ScoreRow("diverged", method, len(losses), scores))
    return table


def _replays(runs: Sequence[FinishedCurve]) -> Iterator[_Replay]:
    for _, tested, history in optstop.searches(runs):
        past = [run for run in history if len(run.values) > FEWEST_OBSERVED]
        predictor = LearningCurvePredictor().fit([run.values for run in past], [run.meta for run in past])
        target = float(np.median([run.values[-1] for run in tested]))
        for run in optstop.watch([run for run in tested if len(run.values) > FEWEST_OBSERVED], predictor):
            prefixes = _prefixes(run.values, np.arange(FEWEST_OBSERVED, len(run.values)))
            shape = CurveShape.of(prefixes, np.arange(len(run.values) - FEWEST_OBSERVED))
            yield _Replay(run.values, target, run.forecast, prefixes, shape)


def _scored(
    part: str,
    method: str,
    replays: Sequence[_Replay],
    stops: Callable[[_Replay], Bools],
    wrong: Callable[[_Replay, int], bool],
) -> ScoreRow:
    stopped = wrongly = used = 0
    for run in replays:
        first = _first(stops(run))
        epochs = len(run.values) if first is None else FEWEST_OBSERVED + first
        stopped += first is not None
        wrongly += first is not None and wrong(run, epochs)
        used += epochs
    scores = {
        "stopped": stopped / len(replays),
        "wrongly": wrongly / len(replays),
        "epochs used": used / sum(len(run.values) for run in replays),
    }
    return ScoreRow(part, method, len(replays), scores)


def _meets(run: _Replay, epochs: int) -> bool:  # noqa: ARG001 the end alone decides
    return bool(run.values[-1] >= run.target)


def _improves(run: _Replay, epochs: int) -> bool:
    best = float(run.values[:epochs].max())
    return bool(run.values.max() > best + _AS_BUILT.epsilon * abs(best))


def _diverged(losses: Floats) -> Bools:
    """(n,) whether the curve (n,) is stopped for divergence after each report."""
    prefixes = _prefixes(losses, np.arange(1, len(losses) + 1))
    return divergence.beyond_its_past(prefixes, np.arange(len(losses)), _AS_BUILT)[0]


def _exploding(losses: Floats) -> Floats:
    middle = len(losses) // 2
    growth = EXPLODES_BY ** np.arange(1.0, len(losses) - middle + 1)
    return np.append(losses[:middle], np.abs(losses[max(middle - 1, 0)]) * growth)


def _first(stops: Bools) -> int | None:
    return int(np.argmax(stops)) if stops.any() else None


def _prefixes(values: Floats, lengths: Ints) -> Curves:
    """The first points of a curve (n,): one row for each of the lengths."""
    starts = np.append(0, np.cumsum(lengths)).astype(np.int64)
    at = np.concatenate([np.arange(length) for length in lengths.tolist()]).astype(np.int64)
    return Curves(np.add(at, 1.0, dtype=np.float64), values[at], starts)

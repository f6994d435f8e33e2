"""Losses and accuracies by iteration, and final accuracies, of jobs that report them.

Made from a snapshot alone, by the same code live and in a simulation; the `CachePolicy` says how often.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from policies.snapshot import Curves, Jobs
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import LEVELS, Fan, Forecast
from predictors.influence import may_teach
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.loss import LossPredictor
from slurmplug.forecasting.forecast_cache import EVERY_CHANGE, CachePolicies, CurveForecasts, ForecastCache

LARGEST_BELIEVABLE = 1e15
"""Seconds and values from here on are no measurements; what is computed from them may overflow."""
AHEAD = (1, 3, 10, 30, 100)
"""Points ahead at which a loss is forecast."""
STEPS = 6
"""Places between now and the end at which an accuracy is forecast."""


class LossSource(Protocol):
    """Where forecasts of losses come from."""

    @property
    def version(self) -> str:
        """What made the forecasts, for the record."""
        ...

    def ahead(self, jobs: Jobs, rows: Ints, curves: Sequence[Floats], x: Floats) -> Forecast:
        """Forecast the losses of these rows (r,) at the iterations x (r, len(AHEAD)): r * len(AHEAD) rows, row by row.

        curves: the losses so far of each row, at even steps; x is `AHEAD` such steps after the last.
        """
        ...


class PredictedLosses:
    """Losses forecast by the loss predictor."""

    def __init__(self, predictor: LossPredictor | None = None) -> None:
        self._predictor = predictor or LossPredictor()

    version: ClassVar[str] = LossPredictor.version

    def ahead(self, jobs: Jobs, rows: Ints, curves: Sequence[Floats], x: Floats) -> Forecast:  # noqa: ARG002 the curves suffice
        """As `LossSource` says."""
        steps = np.tile(np.array(AHEAD, dtype=float), len(rows))
        return self._predictor.predict_many([curve for curve in curves for _ in AHEAD], steps)


class CurveFans:
    """The final accuracies, accuracy fans and loss fans of the jobs in a snapshot."""

    def __init__(
        self,
        curves: LearningCurvePredictor,
        losses: LossSource,
        caches: CachePolicies = EVERY_CHANGE,
        taught_by: Collection[str] | None = None,
    ) -> None:
        """taught_by: the users on whose runs `curves` was fitted, which decides whose jobs it forecasts; other users'
        are forecast without a history. None: it forecasts all jobs."""
        self._curves, self._losses, self._taught_by = curves, losses, taught_by
        self._untaught = LearningCurvePredictor()
        self._final_cache = ForecastCache(1, caches.final)
        self._accuracy_cache = ForecastCache(1 + STEPS, caches.accuracy)
        self._loss_cache = ForecastCache(1 + len(AHEAD), caches.loss)

    def losses(self, jobs: Jobs) -> Fan:
        """By iteration: the last report, and forecasts up to a hundred reports ahead."""
        rows = with_points(jobs.losses)
        inputs = _inputs(jobs, jobs.losses, rows)
        return self._loss_cache.fan(jobs.keys, rows, inputs, lambda due: self._losses_ahead(jobs, rows[due]))

    def accuracies(self, jobs: Jobs) -> Fan:
        """By iteration: the last report, and forecasts at even steps from there to the job's last iteration.

        Of the quantity that its target names, in jobs that state how many iterations they run.
        """
        return self._of_accuracies(self._accuracy_cache, jobs, self._accuracies_ahead)

    def finals(self, jobs: Jobs) -> Forecast:
        """The target's quantity at the last iteration, of the same jobs."""
        fan = self._of_accuracies(self._final_cache, jobs, self._finals_ahead)
        known = np.flatnonzero(fan.known)
        at = fan.index[known]
        return Forecast.assemble(len(jobs), [(known, Forecast(fan.table[at, 0], fan.source[at]))])

    def _of_accuracies(self, cache: ForecastCache, jobs: Jobs, make: Callable[[Jobs, Ints], CurveForecasts]) -> Fan:
        rows = with_points(jobs.accuracies)
        rows = rows[jobs.max_iterations[rows] > 0]

        def content(position: int) -> Hashable:
            row = int(rows[position])
            iterations, values = jobs.accuracies.row(row)
            known = self._curves.metadata.encode([_meta(jobs, row)]).tobytes()
            taught = self._is_taught(jobs, row)
            return iterations.tobytes(), values.tobytes(), float(jobs.max_iterations[row]), known, taught

        inputs = _inputs(jobs, jobs.accuracies, rows)
        return cache.fan(jobs.keys, rows, inputs, lambda due: make(jobs, rows[due]), content)

    def _losses_ahead(self, jobs: Jobs, rows: Ints) -> CurveForecasts:
        curves, x = [], []
        for row in rows.tolist():
            iterations, values = jobs.losses.row(row)
            curves.append(resample_evenly(iterations, values, float(iterations[-1]))[0])
            x.append(iterations[-1] * (1.0 + np.array([0, *AHEAD]) / len(curves[-1])))
        places = np.array(x)
        ahead = self._losses.ahead(jobs, rows, curves, places[:, 1:])
        return _from_now(places, [curve[-1] for curve in curves], ahead)

    def _accuracies_ahead(self, jobs: Jobs, rows: Ints) -> CurveForecasts:
        lasts = jobs.accuracies.iterations[jobs.accuracies.starts[rows + 1] - 1]
        ends = np.minimum(jobs.max_iterations[rows], LARGEST_BELIEVABLE)
        going = ends > lasts
        x = np.linspace(lasts, np.where(going, ends, 2.0 * lasts), STEPS + 1, axis=1)
        curves, ats, metas, now = [], [], [], []
        for row, at, goes in zip(rows.tolist(), x, going.tolist(), strict=True):
            curve, _ = resample_evenly(*jobs.accuracies.row(row), float(at[-1]))
            now.append(curve[-1])
            if goes:
                step = float(at[0]) / len(curve)
                curves += [curve] * STEPS
                ats += [max(round(min(there / step, LARGEST_BELIEVABLE)), len(curve) + 1) for there in at[1:].tolist()]
                metas += [_meta(jobs, row)] * STEPS
        done = Forecast.certain(np.repeat(now, STEPS), "last report")
        taught = np.repeat([self._is_taught(jobs, row) for row in rows[going].tolist()], STEPS)
        ahead = [(np.flatnonzero(np.repeat(going, STEPS)), self._predicted(curves, ats, metas, taught))]
        return _from_now(x, now, Forecast.assemble(len(done), [(np.arange(len(done)), done), *ahead]))

    def _finals_ahead(self, jobs: Jobs, rows: Ints) -> CurveForecasts:
        ends = jobs.max_iterations[rows]
        curves = [
            resample_evenly(*jobs.accuracies.row(row), end)
            for row, end in zip(rows.tolist(), ends.tolist(), strict=True)
        ]
        going = np.flatnonzero([at > len(curve) for curve, at in curves])
        done = Forecast.certain([curve[-1] for curve, _ in curves], "last report")
        parts = [(np.arange(len(rows)), done)]
        if len(going):
            ahead, ats = zip(*(curves[i] for i in going.tolist()), strict=True)
            metas = [_meta(jobs, row) for row in rows[going].tolist()]
            taught = np.array([self._is_taught(jobs, row) for row in rows[going].tolist()])
            parts.append((going, self._predicted(ahead, ats, metas, taught)))
        final = Forecast.assemble(len(rows), parts)
        return CurveForecasts(ends[:, None], final.table[:, None, :], final.source)

    def _is_taught(self, jobs: Jobs, row: int) -> bool:
        """Whether the job is forecast by the runs of the past, rather than without."""
        return self._taught_by is None or may_teach(self._taught_by, str(jobs.user[row]))

    def _predicted(
        self, curves: Sequence[Floats], ats: Sequence[int], metas: Sequence[Meta], taught: Bools
    ) -> Forecast:
        """The values of c curves at these points (c,); taught (c,): those that are forecast by the runs of the past."""
        if taught.all():
            return self._curves.predict_many(curves, ats, metas)
        parts = []
        for predictor, chosen in ((self._curves, np.flatnonzero(taught)), (self._untaught, np.flatnonzero(~taught))):
            if len(chosen):
                at = chosen.tolist()
                some = predictor.predict_many([curves[i] for i in at], [ats[i] for i in at], [metas[i] for i in at])
                parts.append((chosen, some))
        return Forecast.assemble(len(curves), parts)


def resample_evenly(iterations: Floats, values: Floats, at: float) -> tuple[Floats, int]:
    """Resample a curve at even steps, as predictors count points, while a job may report only now and then.

    Returns the curve, with as many points after iteration 0 and the last one unchanged, and the number of the point at
    iteration `at`. The last iteration must not be 0.
    """
    after = iterations > 0
    points = int(after.sum())
    step = float(iterations[-1]) / points
    curve = np.interp(np.arange(1, points + 1) * step, iterations[after], values[after])
    return curve, round(min(at / step, LARGEST_BELIEVABLE))


def curve_metadata(kind: str, name: str) -> Meta:
    """What is known of a job at its start, in training as in use: its type and its name."""
    return {key: str(text) for key, text in (("type", kind), ("name", name)) if text}


def with_points(curves: Curves) -> Ints:
    """The rows whose curve has a point after iteration 0, and only values that can be."""
    rows = np.flatnonzero(curves.lengths() > 0)
    lasts = curves.iterations[curves.starts[rows + 1] - 1]
    rows = rows[(lasts > 1.0 / LARGEST_BELIEVABLE) & (lasts < LARGEST_BELIEVABLE)]
    impossible = ~(np.abs(curves.values) < LARGEST_BELIEVABLE)
    if not impossible.any():
        return rows
    so_far = np.append(0, np.cumsum(impossible))
    possible: Ints = rows[so_far[curves.starts[rows + 1]] == so_far[curves.starts[rows]]]
    return possible


def _meta(jobs: Jobs, row: int) -> Meta:
    return curve_metadata(str(jobs.kind[row]), str(jobs.name[row]))


def _inputs(jobs: Jobs, curves: Curves, rows: Ints) -> Floats:
    """(r, 4) what the fans of these rows depend on: points, the last one, and where the job ends."""
    lasts = curves.starts[rows + 1] - 1
    ends = np.nan_to_num(jobs.max_iterations[rows], nan=-1.0)
    return np.column_stack([curves.lengths()[rows], curves.iterations[lasts], curves.values[lasts], ends])


def _from_now(x: Floats, last: Sequence[float], ahead: Forecast) -> CurveForecasts:
    """Fans that begin with the last report at x[:, 0], and go on with these forecasts, row by row."""
    now = Forecast.certain(last, "last report").table[:, None, :]
    table = np.concatenate([now, ahead.table.reshape(len(x), -1, len(LEVELS))], axis=1)
    return CurveForecasts(x, table, ahead.source.reshape(len(x), -1)[:, 0])

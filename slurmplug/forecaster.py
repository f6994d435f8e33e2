"""What will be: the predictors asked about the jobs of a snapshot.

A job that reports its iterations is forecast from them, one that does not from the runs before it; the source of
each number says which.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecast, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimePredictor

PACE_SPREAD = 0.10
"""Standard deviation of the logarithm of the remaining time, of a job whose pace is known."""
FIRST_PACES_SPREAD = 0.5
"""What a first pair of reports adds to it, shrinking with the square root of their number."""


class _Asked:
    """Forecasts that were asked for in the cycle before, so that each is asked for once."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._batch = Forecast.unknown(0)

    def each(self, keys: Sequence[Hashable], ask: Callable[[Ints], Forecast]) -> Forecast:
        """The forecasts of these keys; `ask` is given the positions of those that are new, if there are any."""
        at = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        old, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        parts = [(old, self._batch[at[old]])] + ([(new, ask(new))] if len(new) else [])
        self._batch = Forecast.assemble(len(keys), parts)
        self._rows = {key: row for row, key in enumerate(keys)}
        return self._batch


class Forecaster:
    """The predictors in use; `use` changes them between two cycles."""

    def __init__(self) -> None:
        self.use(RuntimePredictor(), LearningCurvePredictor())

    def use(self, runtime: RuntimePredictor, curves: LearningCurvePredictor) -> None:
        """Forecast with these from now on."""
        self._runtime, self._curves = runtime, curves
        self._totals, self._finals = _Asked(), _Asked()

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        total = remaining = final = Forecast.unknown(n)
        if needs & {"total", "remaining"}:
            total, remaining = self._times(jobs, snapshot.now)
        if "final" in needs:
            final = self._accuracies(jobs)
        unknown = Fan.unknown(n)
        models: dict[Need, str] = {"total": self._runtime.version, "final": self._curves.version}
        return Forecasts(total, remaining, final, unknown, unknown, unknown, models)

    def _times(self, jobs: Jobs, now: float) -> tuple[Forecast, Forecast]:
        elapsed = np.nan_to_num(now - jobs.started)
        submitted = self._totals.each(
            jobs.keys, lambda rows: self._runtime.predict_many([_as_submitted(jobs, row) for row in rows.tolist()])
        )
        left = (jobs.max_iterations - jobs.iteration) * jobs.iteration_time
        paced = np.flatnonzero((jobs.iteration > 0) & (jobs.iteration_time > 0) & (left > 0))
        spread = PACE_SPREAD + FIRST_PACES_SPREAD / np.sqrt(np.maximum(jobs.iteration[paced], 1.0))
        by_pace = Forecast.lognormal(left[paced], spread, "progress")
        told = np.flatnonzero(submitted.known)
        remaining = Forecast.assemble(len(jobs), [(told, submitted[told].beyond(elapsed[told])), (paced, by_pace)])
        total = Forecast.assemble(len(jobs), [(told, submitted[told]), (paced, _later(by_pace, elapsed[paced]))])
        return total, remaining

    def _accuracies(self, jobs: Jobs) -> Forecast:
        """The target's quantity at the last iteration, of jobs that told it and how long they go on."""
        lengths = jobs.accuracies.lengths()
        rows = np.flatnonzero((lengths > 0) & (jobs.max_iterations > 0)).tolist()
        keys = [(jobs.keys[row], int(lengths[row])) for row in rows]
        asked = self._finals.each(
            keys,
            lambda new: self._finals_of(
                [even(*jobs.accuracies.row(rows[i]), float(jobs.max_iterations[rows[i]])) for i in new.tolist()]
            ),
        )
        return Forecast.assemble(len(jobs), [(np.array(rows, dtype=np.int64), asked)])

    def _finals_of(self, curves: Sequence[tuple[Floats, int]]) -> Forecast:
        over = np.array([at <= len(curve) for curve, at in curves], dtype=bool)
        last = Forecast.certain(
            [curve[-1] for (curve, _), done in zip(curves, over, strict=True) if done], "last report"
        )
        going = [pair for pair, done in zip(curves, over, strict=True) if not done]
        ahead = (
            self._curves.predict_many([curve for curve, _ in going], [at for _, at in going])
            if going
            else Forecast.unknown(0)
        )
        return Forecast.assemble(len(curves), [(np.flatnonzero(over), last), (np.flatnonzero(~over), ahead)])


def even(iterations: Floats, values: Floats, at: float) -> tuple[Floats, int]:
    """A curve of points one step apart, the first at the first step, and the point that iteration `at` then is.

    A job may report every tenth iteration, or now and then: predictors count points.
    """
    step = float(np.median(np.diff(iterations, prepend=0.0)))
    points = max(1, round(float(iterations[-1]) / step))
    return np.interp(np.arange(1, points + 1) * step, iterations, values), round(at / step)


def _later(forecast: Forecast, seconds: Floats) -> Forecast:
    return Forecast(forecast.table + seconds[:, None], forecast.source)


def _as_submitted(jobs: Jobs, row: int) -> Mapping[str, Any]:
    cpus, memory = jobs.demand[row, 1:].tolist()
    told = {
        "user": str(jobs.user[row]),
        "account": str(jobs.account[row]),
        "partition": str(jobs.partition[row]),
        "qos": str(jobs.qos[row]),
        "type": str(jobs.kind[row]),
        "name": str(jobs.name[row]),
        "exe": str(jobs.name[row]),
        "gpus": int(jobs.gpus[row]),
        "cpus": cpus,
        "mem": memory,
        "time_limit": float(jobs.time_limit[row]),
        "submit": float(jobs.submitted[row]),
        "max_iterations": float(jobs.max_iterations[row]),
    }
    return {name: value for name, value in told.items() if value == value and value != ""}

"""What will be: the predictors asked about the jobs of a snapshot.

A job that reports its iterations is forecast from them, one that does not from the runs before it; the source of
each number says which.
"""

from collections.abc import Callable, Hashable, Sequence, Set

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecast, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.loss import LossPredictor
from predictors.runtime import Job, RuntimeModel, RuntimePredictor
from predictors.speed import SpeedPredictor
from slurmplug.forecasting.curve_fans import BEYOND_BELIEF, CurveFans, described, even
from slurmplug.forecasting.speed_fans import SeenSpeeds, SpeedFans

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
        if len(new):
            self._batch = Forecast.assemble(len(keys), [(old, self._batch[at[old]]), (new, ask(new))])
        else:
            self._batch = self._batch[at]
        self._rows = {key: row for row, key in enumerate(keys)}
        return self._batch


class Forecaster:
    """The predictors in use; `use` changes them between two cycles."""

    def __init__(self, runtime: RuntimeModel = "stack") -> None:
        self.use(RuntimePredictor(runtime), LearningCurvePredictor())

    def use(self, runtime: RuntimePredictor, curves: LearningCurvePredictor, speeds: SeenSpeeds | None = None) -> None:
        """Forecast with these from now on."""
        self._runtime, self._curves, self._losses = runtime, curves, LossPredictor()
        self._totals, self._finals = _Asked(), _Asked()
        self._fans, self._speeds = CurveFans(curves, self._losses), SpeedFans(speeds or SeenSpeeds())

    def get_ready(self, needs: Set[Need] = frozenset({"final"})) -> None:
        """Make now what the first forecast would have to wait for, the longest for losses, if they are needed."""
        if needs & {"final", "accuracy"}:
            self._curves.predict(np.linspace(0.1, 0.5, 5), 10)
        if "loss" in needs:
            self._losses.predict(np.linspace(0.5, 0.1, 5), 10)

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        total = remaining = final = Forecast.unknown(n)
        accuracy = loss = speed = Fan.unknown(n)
        if needs & {"total", "remaining", "speed"}:
            total, remaining = self._times(jobs, snapshot.now)
        if "final" in needs:
            final = self._accuracies(jobs)
        if "accuracy" in needs:
            accuracy = self._fans.accuracies(jobs)
        if "loss" in needs:
            loss = self._fans.losses(jobs)
        if "speed" in needs:
            speed = self._speeds.speeds(snapshot, total)
        models: dict[Need, str] = {
            "total": self._runtime.version,
            "final": self._curves.version,
            "loss": self._losses.version,
            "speed": SpeedPredictor.version,
        }
        return Forecasts(total, remaining, final, accuracy, loss, speed, models)

    def _times(self, jobs: Jobs, now: float) -> tuple[Forecast, Forecast]:
        elapsed = np.nan_to_num(np.maximum(now - jobs.started, 0.0))
        given = (np.nan_to_num(column, nan=-1.0).tolist() for column in (jobs.time_limit, jobs.max_iterations))
        submitted = self._totals.each(
            list(zip(jobs.keys, jobs.kind.tolist(), jobs.gpus.tolist(), *given, strict=True)),
            lambda rows: self._runtime.predict_many([_as_submitted(jobs, row) for row in rows.tolist()]),
        )
        left = (jobs.max_iterations - jobs.iteration) * jobs.iteration_time
        paced = np.flatnonzero((jobs.iteration > 0) & (jobs.iteration_time > 0) & (left > 0) & (left < BEYOND_BELIEF))
        spread = PACE_SPREAD + FIRST_PACES_SPREAD / np.sqrt(np.maximum(jobs.iteration[paced], 1.0))
        by_pace = Forecast.lognormal(left[paced], spread, "progress")
        told = np.arange(len(jobs)), submitted
        begun = np.flatnonzero(submitted.known & (elapsed > 0))
        going = begun, submitted[begun].beyond(elapsed[begun])
        remaining = Forecast.assemble(len(jobs), [told, going, (paced, by_pace)])
        total = Forecast.assemble(len(jobs), [told, (paced, _later(by_pace, elapsed[paced]))])
        return total, remaining

    def _accuracies(self, jobs: Jobs) -> Forecast:
        """The target's quantity at the last iteration, of jobs that told it and how long they go on."""
        curves, most = jobs.accuracies, jobs.max_iterations
        lasts = curves.starts[1:] - 1
        begun = (curves.lengths() > 0) & (most > 0)
        begun[begun] = curves.iterations[lasts[begun]] > 0
        rows = np.flatnonzero(begun)
        told = (column.tolist() for column in (curves.lengths()[rows], curves.values[lasts[rows]], most[rows]))
        asked = self._finals.each(
            list(zip((jobs.keys[row] for row in rows), *told, strict=True)),
            lambda new: self._finals_of(
                [even(*curves.row(row), float(most[row])) for row in rows[new].tolist()],
                [described(str(jobs.kind[row]), str(jobs.name[row])) for row in rows[new].tolist()],
            ),
        )
        return Forecast.assemble(len(jobs), [(rows, asked)])

    def _finals_of(self, curves: Sequence[tuple[Floats, int]], metas: Sequence[Meta]) -> Forecast:
        believed = np.array([np.abs(curve).max() < BEYOND_BELIEF for curve, _ in curves], dtype=bool)
        over = np.array([at <= len(curve) for curve, at in curves], dtype=bool)
        done, going = np.flatnonzero(believed & over), np.flatnonzero(believed & ~over)
        parts = [(done, Forecast.certain([curves[row][0][-1] for row in done.tolist()], "last report"))]
        if len(going):
            ahead, ats = zip(*(curves[row] for row in going.tolist()), strict=True)
            parts.append((going, self._curves.predict_many(ahead, ats, [metas[row] for row in going.tolist()])))
        return Forecast.assemble(len(curves), parts)


def _later(forecast: Forecast, seconds: Floats) -> Forecast:
    return Forecast(forecast.table + seconds[:, None], forecast.source)


def known_at_submit(
    *, user: str, account: str, partition: str, qos: str, kind: str, name: str, gpus: float, cpus: float, memory: float,
    time_limit: float | None, submit: float,
) -> Job:  # fmt: skip
    """What a run time is forecast from, the same in training; a job that names no type is of its name's."""
    return {
        "user": user, "account": account, "partition": partition, "qos": qos, "type": kind, "exe": name, "name": name,
        "gpus": gpus, "cpus": cpus, "mem": memory, "time_limit": time_limit, "submit": submit,
    }  # fmt: skip


def _as_submitted(jobs: Jobs, row: int) -> Job:
    limit, (gpus, cpus, memory) = float(jobs.time_limit[row]), jobs.demand[row].tolist()
    return known_at_submit(
        user=str(jobs.user[row]),
        account=str(jobs.account[row]),
        partition=str(jobs.partition[row]),
        qos=str(jobs.qos[row]),
        kind=str(jobs.kind[row]),
        name=str(jobs.name[row]),
        gpus=gpus,
        cpus=cpus,
        memory=memory,
        time_limit=None if np.isnan(limit) else limit,
        submit=float(jobs.submitted[row]),
    )

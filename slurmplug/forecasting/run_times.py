"""Run times of the jobs in a snapshot: from the runs before them, and from their own pace once they report it."""

from collections.abc import Callable, Hashable, Sequence, Set
from typing import Protocol

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Forecast, Need
from predictors.runtime import Job, RuntimePredictor
from slurmplug.forecasting.curve_fans import LARGEST_BELIEVABLE

OUTLIVED = 0.95
"""A job that runs for longer than this quantile of its forecast has outlived it."""
PACE_SPREAD = 0.10
"""Standard deviation of the logarithm of the remaining time, of a job whose pace is known."""
FIRST_PACES_SPREAD = 0.5
"""What a first pair of reports adds to it, shrinking with the square root of their number."""


class RunTimes(Protocol):
    """Where forecasts of run times come from."""

    @property
    def version(self) -> str:
        """What made the forecasts, for the record."""
        ...

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> tuple[Forecast, Forecast]:
        """The total and the remaining seconds of each job, (n,) both; what is not in `needs` may be unknown."""
        ...


class HistoryRunTimes:
    """Run times by the pace of a job that reports its iterations; of other jobs by the runs before it."""

    def __init__(self, predictor: RuntimePredictor) -> None:
        self._predictor = predictor
        self._submitted = _LatestForecasts()

    @property
    def version(self) -> str:
        """The run-time predictor's."""
        return self._predictor.version

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> tuple[Forecast, Forecast]:  # noqa: ARG002 one needs the other
        """The total and the remaining seconds; both are made whatever is needed."""
        jobs = snapshot.jobs
        elapsed = np.nan_to_num(np.maximum(snapshot.now - jobs.started, 0.0))
        stated = (np.nan_to_num(column, nan=-1.0).tolist() for column in (jobs.time_limit, jobs.max_iterations))
        submitted = self._submitted.of(
            list(zip(jobs.keys, jobs.kind.tolist(), jobs.gpus.tolist(), *stated, strict=True)),
            lambda rows: self._at_submission([_as_submitted(jobs, row) for row in rows.tolist()]),
        )
        left = (jobs.max_iterations - jobs.iteration) * jobs.iteration_time
        believable = (left > 0) & (left < LARGEST_BELIEVABLE)
        paced = np.flatnonzero((jobs.iteration > 0) & (jobs.iteration_time > 0) & believable)
        outlived = self._outlived(jobs, submitted, elapsed)
        spread = PACE_SPREAD + FIRST_PACES_SPREAD / np.sqrt(np.maximum(jobs.iteration[paced], 1.0))
        by_pace = Forecast.lognormal(left[paced], spread, "progress")
        every = np.arange(len(jobs)), submitted
        begun = np.flatnonzero(submitted.known & (elapsed > 0))
        running = begun, submitted[begun].beyond(elapsed[begun])
        longer = outlived[0], _later(outlived[1], elapsed[outlived[0]])
        remaining = Forecast.assemble(len(jobs), [every, running, outlived, (paced, by_pace)])
        total = Forecast.assemble(len(jobs), [every, longer, (paced, _later(by_pace, elapsed[paced]))])
        return total, remaining

    def _at_submission(self, jobs: Sequence[Job]) -> Forecast:
        """The run times of jobs by the runs before them, in so far as these are evidence of it."""
        forecast = self._predictor.predict_many(jobs)
        by_limit = forecast.source == "time limit"
        return forecast.clip(lower=np.where(by_limit, np.nan, self._predictor.least(jobs)))

    @staticmethod
    def _outlived(jobs: Jobs, submitted: Forecast, elapsed: Floats) -> tuple[Ints, Forecast]:
        """The rows of jobs that have run for longer than their forecast by earlier runs allowed, in this run or those
        before it, and what remains of them: those runs were not like them.

        Evenly up to the time limit, or without one up to as long again as they have run.
        """
        ran = np.where(jobs.gpus > 0, jobs.attained / np.maximum(jobs.gpus, 1), elapsed)
        by_runs = submitted.known & (submitted.source != "time limit")
        rows = np.flatnonzero(by_runs & (ran > submitted.quantile(OUTLIVED)))
        left = jobs.time_limit[rows] - elapsed[rows]
        most = np.where(np.isnan(left), ran[rows], np.maximum(left, 0.0))
        return rows, Forecast(most[:, None] * LEVELS, np.full(len(rows), "outlived"))


class _LatestForecasts:
    """The forecasts of the cycle before, so that each is made once."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, int] = {}
        self._forecasts = Forecast.unknown(0)

    def of(self, keys: Sequence[Hashable], make: Callable[[Ints], Forecast]) -> Forecast:
        """The forecasts of these keys (n,); `make` is given the positions of the new ones, where there are any."""
        at = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        old, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        if len(new):
            self._forecasts = Forecast.assemble(len(keys), [(old, self._forecasts[at[old]]), (new, make(new))])
        else:
            self._forecasts = self._forecasts[at]
        self._rows = {key: row for row, key in enumerate(keys)}
        return self._forecasts


def _later(forecast: Forecast, seconds: Floats) -> Forecast:
    return Forecast(forecast.table + seconds[:, None], forecast.source)


def known_at_submit(
    *, user: str, account: str, partition: str, qos: str, kind: str, name: str, gpus: float, cpus: float, memory: float,
    time_limit: float | None, submit: float,
) -> Job:  # fmt: skip
    """The inputs of a run time forecast, in training as in use."""
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

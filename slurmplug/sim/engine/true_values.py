"""Run times and losses of simulated jobs: the truth, times each job's error.

A run-time predictor needs the site's history, which a workload does not have. Its error is therefore a part of the
simulated world: the workload's `runtime_noise`, drawn once for each job and seed. A workload may give losses to come in
the same way, by `loss_noise`. Run times are of the iterations that the user states: the whole at the job's mean speed,
what is left at its present one.
"""

from collections.abc import Sequence, Set
from typing import ClassVar

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecast, Need
from slurmplug.forecasting.curve_fans import AHEAD, PredictedLosses
from slurmplug.forecasting.run_times import RunTimeForecasts
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.sim.engine.engine import Engine

SOURCE = "simulated"


class TrueRunTimes:
    """The time that a job takes on the GPUs that it requests or has, where nothing slows it, times its error."""

    version: ClassVar[str] = SOURCE

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, jobs = engine, engine.table.jobs
        noise = np.array([job.runtime_noise for job in jobs])
        self._stated = np.array([job.stated for job in jobs], dtype=np.float64)
        self._at_least = (self._stated < engine.iterations) * 1.0
        drawn = np.random.default_rng([seed, 1]).standard_normal(len(jobs))
        most = max(int(engine.nodes.capacity[:, 0].max()), 1)
        rate = [engine.speed(j, max(1, job.gpus), max(1, -(-job.gpus // most))) for j, job in enumerate(jobs)]
        self._rate = np.array(rate) * [job.type_speed([job.gpu_type]) for job in jobs]
        self._error = np.exp(noise * drawn)
        sigmas, self._unit = np.unique(noise, return_inverse=True)
        self._units = _units(sigmas)
        self._keys: tuple[JobKey, ...] = ()
        self._training: Ints = np.zeros(0, dtype=np.int64)
        self._total = Forecast.unknown(0)

    def whole(self, training: Ints) -> Floats:
        """(n,) the seconds that these trainings (n,) take on the GPUs that they request, without error."""
        return np.asarray(self._stated[training] / self._rate[training])

    def forecast(self, snapshot: Snapshot, needs: Set[Need], paces: KindPaces) -> RunTimeForecasts:  # noqa: ARG002
        """The total time on the GPUs that it requests, and the time left on those that it has."""
        if snapshot.jobs.keys is not self._keys:
            self._keys = snapshot.jobs.keys
            self._training = trainings(self._engine, self._keys)
            self._total = self._with_error(self.whole(self._training))
        remaining = self._remaining() if "remaining" in needs else Forecast.unknown(len(self._keys))
        return RunTimeForecasts(self._total, remaining, self._total)

    def _remaining(self) -> Forecast:
        engine, training = self._engine, self._training
        rate = engine.rate[training]
        at_rate = np.where(rate > 0, rate, self._rate[training])
        left = np.maximum(self._stated[training] - engine.progress(training), self._at_least[training]) / at_rate
        left += np.maximum(np.where(rate > 0, engine.anchor[training] - engine.now, 0.0), 0.0)
        return self._with_error(left)

    def _with_error(self, seconds: Floats) -> Forecast:
        return self._units[self._unit[self._training]].times(seconds * self._error[self._training])


class TrueLosses(PredictedLosses):
    """The loss of the workload's curve with an error, of jobs with a `loss_noise`; of others the predicted one."""

    def __init__(self, engine: Engine, seed: int) -> None:
        super().__init__()
        self._engine = engine
        self._drawn = np.random.default_rng([seed, 2]).standard_normal(len(engine.table.jobs))
        self._noise = np.array([job.loss_noise for job in engine.table.jobs])

    def ahead(self, jobs: Jobs, rows: Ints, curves: Sequence[Floats], x: Floats) -> Forecast:
        """The fall of the loss from its last report is the true one times the job's error."""
        training = trainings(self._engine, [jobs.keys[row] for row in rows.tolist()])
        noisy = self._noise[training] > 0
        predicted, known = np.flatnonzero(~noisy), np.flatnonzero(noisy)
        parts = []
        if len(predicted):
            by_predictor = super().ahead(jobs, rows[predicted], [curves[i] for i in predicted.tolist()], x[predicted])
            parts.append((_each(predicted), by_predictor))
        if len(known):
            now = np.array([curves[i][-1] for i in known.tolist()])[:, None]
            truth = np.stack([self._truth(int(training[i]), x[i]) for i in known.tolist()])
            error = np.exp(self._noise * self._drawn)[training[known], None]
            parts.append((_each(known), Forecast.certain((now + (truth - now) * error).ravel(), SOURCE)))
        return Forecast.assemble(len(rows) * len(AHEAD), parts)

    def _truth(self, training: int, x: Floats) -> Floats:
        job = self._engine.table.jobs[training]
        return np.interp(x, job.curve_at, job.losses)


def trainings(engine: Engine, keys: Sequence[JobKey]) -> Ints:
    """(n,) the training that each of these jobs belongs to."""
    return engine.table.training[[key.job_id - 1 for key in keys]]


def _each(rows: Ints) -> Ints:
    """The places of these rows where each has one for every step ahead."""
    return np.asarray((rows[:, None] * len(AHEAD) + np.arange(len(AHEAD))).ravel())


def _units(sigmas: Floats) -> Forecast:
    """Lognormal of median 1, by the standard deviations of the logarithm (m,), of which some may be 0."""
    noisy = np.flatnonzero(sigmas > 0)
    certain = Forecast.certain(np.ones(len(sigmas)), SOURCE)
    drawn = Forecast.lognormal(np.ones(len(noisy)), sigmas[noisy], SOURCE)
    return Forecast.assemble(len(sigmas), [(np.arange(len(sigmas)), certain), (noisy, drawn)])

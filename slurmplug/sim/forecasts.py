"""What is foretold of simulated jobs: run times by the truth with an error, all else by the predictors, as live.

A run-time predictor needs the site's history, which a workload does not have; its error is the workload's
`runtime_noise`, drawn once a job. What a job has reported is there, so its curves are continued by the predictors that
the daemon uses, and its speed by those placements on which jobs of its kind have been seen.
"""

from collections.abc import Callable, Hashable, Sequence, Set

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecast, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.speed import SpeedPredictor
from slurmplug.forecaster import even
from slurmplug.sim.engine import RUNNING, Engine

FRESH = 1.1
"""A curve is continued anew when it is longer by this factor than when it was last."""
AHEAD = (1, 3, 10, 30, 100)
"""Points ahead at which a loss is forecast"""
STEPS = 6
"""places between now and the end at which an accuracy is forecast"""


class SimForecaster:
    """Forecasts for the engine's live rows, which are the snapshot's."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, jobs = engine, engine.table.jobs
        noise = np.array([job.runtime_noise for job in jobs])
        drawn = np.random.default_rng([seed, 1]).standard_normal(len(jobs))
        most = max(engine.nodes.gpus, default=1) or 1
        rate = [engine.speed(j, max(1, job.gpus), max(1, -(-job.gpus // most))) for j, job in enumerate(jobs)]
        self._rate = np.array(rate)
        self._error = np.exp(noise * drawn)
        self._units = {sigma: _unit(sigma) for sigma in np.unique(noise).tolist()}
        self._unit = np.searchsorted(np.array(sorted(self._units)), noise)
        self._unit_table = np.stack([self._units[sigma] for sigma in sorted(self._units)] or [_unit(0.0)])
        self._loss_error = np.random.default_rng([seed, 2]).standard_normal(len(jobs))
        self._curves, self._losses = LearningCurvePredictor(), LossPredictor("sublinear")
        self._kept: dict[tuple[str, int], tuple[int, Forecast | tuple[Floats, Forecast]]] = {}
        self._seen: dict[Hashable, dict[tuple[int, int], float]] = {}
        self._seen_at = -1
        self._speeds: dict[tuple[Hashable, int, int], tuple[int, Forecast]] = {}

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        n = len(snapshot.jobs)
        if not needs or not n:
            return Forecasts.unknown(n)
        training = self._engine.table.training[[key.job_id - 1 for key in snapshot.jobs.keys]]
        total = remaining = final = Forecast.unknown(n)
        accuracy = loss = speed = Fan.unknown(n)
        if needs & {"total", "remaining"}:
            total, remaining = self._times(training)
        if "final" in needs:
            final = self._finals(snapshot.jobs, training)
        if "accuracy" in needs:
            accuracy = self._accuracies(snapshot.jobs, training)
        if "loss" in needs:
            loss = self._reductions(snapshot.jobs, training)
        if "speed" in needs:
            speed = self._by_gpus(snapshot.jobs, training)
        return Forecasts(total, remaining, final, accuracy, loss, speed)

    # --- run times --------------------------------------------------------------------------------------------------

    def _times(self, training: Ints) -> tuple[Forecast, Forecast]:
        """The true time at what it asks for, and what is left at what it has, each times the job's error."""
        engine = self._engine
        iterations = engine.iterations[training]
        rate = np.where(engine.rate[training] > 0, engine.rate[training], self._rate[training])
        left = np.maximum(iterations - engine.progress()[training], 0.0) / rate
        left += np.maximum(np.where(engine.rate[training] > 0, engine.anchor[training] - engine.now, 0.0), 0.0)
        unit = self._unit_table[self._unit[training]]
        error, source = self._error[training], np.full(len(training), "simulated")
        whole = iterations / self._rate[training]
        return (
            Forecast((whole * error)[:, None] * unit, source),
            Forecast((left * error)[:, None] * unit, source),
        )

    # --- curves -----------------------------------------------------------------------------------------------------

    def _finals(self, jobs: Jobs, training: Ints) -> Forecast:
        """The target's quantity at the last iteration, as the daemon forecasts it."""
        rows = _reporting(jobs.accuracies.lengths(), jobs)

        def ask(new: Sequence[int]) -> Sequence[Forecast]:
            curves, ats = zip(*(even(*jobs.accuracies.row(r), float(jobs.max_iterations[r])) for r in new), strict=True)
            over = [at <= len(curve) for curve, at in zip(curves, ats, strict=True)]
            ahead = [i for i, done in enumerate(over) if not done]
            told = (
                self._curves.predict_many([curves[i] for i in ahead], [ats[i] for i in ahead])
                if ahead
                else Forecast.unknown(0)
            )
            place = {i: at for at, i in enumerate(ahead)}
            return [
                told[place[i]] if i in place else Forecast.certain([curves[i][-1]], "last report")
                for i in range(len(new))
            ]

        found = self._kept_or("final", rows, jobs.accuracies.lengths(), training, ask)
        return Forecast.assemble(len(jobs), [([row], each) for row, each in zip(rows, found, strict=True)])

    def _accuracies(self, jobs: Jobs, training: Ints) -> Fan:
        """By iteration: the last report, and forecasts at even steps from there to the end."""
        rows = _reporting(jobs.accuracies.lengths(), jobs)

        def ask(new: Sequence[int]) -> Sequence[tuple[Floats, Forecast]]:
            return [self._fan(*jobs.accuracies.row(row), float(jobs.max_iterations[row])) for row in new]

        return _fan(len(jobs), rows, self._kept_or("accuracy", rows, jobs.accuracies.lengths(), training, ask))

    def _fan(self, iterations: Floats, values: Floats, last: float) -> tuple[Floats, Forecast]:
        x = np.linspace(iterations[-1], max(last, iterations[-1] + 1.0), STEPS + 1)
        curve, _ = even(iterations, values, last)
        ats = [even(iterations, values, float(at))[1] for at in x[1:]]
        told = self._curves.predict_many([curve] * STEPS, [max(at, len(curve) + 1) for at in ats])
        return x, Forecast.assemble(
            STEPS + 1, [([0], Forecast.certain([values[-1]], "last report")), (range(1, STEPS + 1), told)]
        )

    def _reductions(self, jobs: Jobs, training: Ints) -> Fan:
        """The loss by iteration: by SLAQ's predictor, or the truth with the workload's error where it names one."""
        rows = _reporting(jobs.losses.lengths(), jobs)

        def ask(new: Sequence[int]) -> Sequence[tuple[Floats, Forecast]]:
            return [self._loss_ahead(int(training[row]), *jobs.losses.row(row)) for row in new]

        return _fan(len(jobs), rows, self._kept_or("loss", rows, jobs.losses.lengths(), training, ask, fresh=1.0))

    def _loss_ahead(self, training: int, iterations: Floats, values: Floats) -> tuple[Floats, Forecast]:
        job = self._engine.table.jobs[training]
        last, now = float(iterations[-1]), float(values[-1])
        curve, _ = even(iterations, values, last)
        step = last / len(curve)
        x = last + step * np.array([0, *AHEAD], dtype=np.float64)
        if job.loss_noise:
            truth = np.interp(x, job.curve_at, job.losses)
            told = now + (truth - now) * np.exp(job.loss_noise * self._loss_error[training])
            return x, Forecast.certain(told, "simulated")
        ahead = self._losses.predict_many([curve] * len(AHEAD), AHEAD)
        return x, Forecast.assemble(len(x), [([0], Forecast.certain([now], "last report")), (range(1, len(x)), ahead)])

    def _kept_or(
        self,
        what: str,
        rows: Sequence[int],
        lengths: Ints,
        training: Ints,
        ask: "Callable[[Sequence[int]], Sequence[Forecast | tuple[Floats, Forecast]]]",
        fresh: float = FRESH,
    ) -> list:
        """What was forecast of each row's training when its curve was about as long, or what `ask` answers now."""
        new = []
        for row in rows:
            kept = self._kept.get((what, int(training[row])))
            if kept is None or not kept[0] <= lengths[row] < max(kept[0] + 1, kept[0] * fresh):
                new.append(row)
        if new:
            for row, told in zip(new, ask(new), strict=True):
                self._kept[what, int(training[row])] = int(lengths[row]), told
        return [self._kept[what, int(training[row])][1] for row in rows]

    # --- speed ------------------------------------------------------------------------------------------------------

    def _by_gpus(self, jobs: Jobs, training: Ints) -> Fan:
        """Iterations a second by GPUs on as few nodes as hold them, from the placements that its kind was seen on."""
        engine = self._engine
        self._look()
        a_node = max(engine.nodes.gpus, default=1) or 1
        rows, told = [], []
        for row, j in enumerate(training.tolist()):
            name = _kind(engine, j)
            seen = self._seen.get(name)
            if seen:
                most = max(int(jobs.gpus_max[row]), 2)
                key = (name, most, len(seen))
                if key not in self._speeds:
                    gpus = np.unique(np.rint(np.geomspace(1, most, 12))).astype(np.float64)
                    placed, rates = np.array(list(seen)), np.array(list(seen.values()))
                    predictor = SpeedPredictor().fit(placed[:, 0], placed[:, 1], 1.0 / rates)
                    self._speeds[key] = len(seen), (gpus, predictor.predict(gpus, np.ceil(gpus / a_node)))
                rows.append(row)
                told.append(self._speeds[key][1])
        return _fan(len(jobs), rows, told)

    def _look(self) -> None:
        """Note on what each kind trains now, and how fast."""
        engine = self._engine
        if self._seen_at == engine.changes:
            return
        self._seen_at = engine.changes
        for row in engine.holds:
            j = int(engine.table.training[row])
            if engine.rate[j] > 0 and engine.state[row] == RUNNING:
                placed = engine.placement(j)
                self._seen.setdefault(_kind(engine, j), {}).setdefault(placed, float(engine.rate[j]))


def _kind(engine: Engine, training: int) -> Hashable:
    """Jobs of one kind train alike; one without a kind is like itself alone."""
    return engine.table.jobs[training].kind or training


def _reporting(lengths: Ints, jobs: Jobs) -> list[int]:
    """The rows that have told points of a curve, and how long they go on."""
    return np.flatnonzero((lengths > 0) & (jobs.max_iterations > 0)).tolist()


def _fan(n: int, rows: Sequence[int], told: Sequence[tuple[Floats, Forecast]]) -> Fan:
    """One fan of all; rows known at fewer points have their last repeated just beyond it."""
    if not rows:
        return Fan.unknown(n)
    width = max(len(x) for x, _ in told)
    xs = np.stack([np.concatenate([x, x[-1] + np.arange(1, width - len(x) + 1)]) for x, _ in told])
    columns = [
        Forecast.assemble(len(told), [([i], each[min(c, len(each) - 1)]) for i, (_, each) in enumerate(told)])
        for c in range(width)
    ]
    return Fan.of(n, rows, xs, columns)


def _unit(sigma: float) -> Floats:
    """The table of a lognormal of median 1."""
    return (Forecast.lognormal([1.0], [sigma], "") if sigma > 0 else Forecast.certain([1.0], "")).table[0]

"""What is foretold of simulated jobs: run times by the truth with an error, all else by the predictors, as live.

A run-time predictor needs the site's history, which a workload does not have; its error is the workload's
`runtime_noise`, drawn once a job. What a job has reported is there, so its curves are continued by the predictors that
the daemon uses, and its speed by those placements on which jobs of its kind have been seen.
"""

from collections.abc import Callable, Hashable, Sequence, Set
from typing import TypeAlias

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Fan, Forecast, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.speed import SpeedPredictor
from slurmplug.forecasting.curve_fans import even
from slurmplug.sim.engine.engine import RUNNING, Engine

FRESH = 1.1
"""A curve is continued anew when it is longer by this factor than when it was last."""
AHEAD = (1, 3, 10, 30, 100)
"""Points ahead at which a loss is forecast"""
EVERY = 64
"""GPUs up to which a speed is forecast for each number"""
STEPS = 6
"""places between now and the end at which an accuracy is forecast"""


_Told: TypeAlias = tuple[Floats, Forecast]
"""Places on an axis, and a forecast at each."""


class _Kept:
    """What was forecast of each training when its curve was about as long as it is now."""

    def __init__(self, trainings: int, fresh: float) -> None:
        """fresh: by what factor a curve is longer that is forecast anew."""
        self._fresh = fresh
        self._length = np.full(trainings, -1)
        self._told: dict[int, _Told] = {}

    def due(self, owners: Ints, lengths: Ints) -> Ints:
        """Which of these trainings, whose curves are so long, are to be forecast now."""
        kept = self._length[owners]
        new = np.flatnonzero((lengths < kept) | (lengths >= np.maximum(kept + 1, kept * self._fresh)))
        self._length[owners[new]] = lengths[new]
        return new

    def each(self, owners: Ints, lengths: Ints, ask: Callable[[list[int]], Sequence[_Told]]) -> list[_Told]:
        """The forecasts of these trainings; `ask` is given the places of those that are new."""
        new = self.due(owners, lengths)
        if len(new):
            self._told |= zip(owners[new].tolist(), ask(new.tolist()), strict=True)
        return [self._told[owner] for owner in owners.tolist()]


class _Ends:
    """The last values of curves: where they are whole the last one, else what the predictor makes of them.

    Trainings may share a curve, so what was made of its beginning once is kept.
    """

    def __init__(self, trainings: int, curves: LearningCurvePredictor) -> None:
        self._curves = curves
        self._table = np.full((trainings, len(LEVELS)), np.nan)
        self._source = np.full(trainings, "", dtype="U32")
        self._made: dict[tuple[bytes, bytes, float], Forecast] = {}

    def note(self, owners: Ints, told: Sequence[tuple[Floats, Floats, float]]) -> None:
        """These trainings have told these values at these iterations, of so many."""
        keys = [(iterations.tobytes(), values.tobytes(), last) for iterations, values, last in told]
        new = {key: even(*curve) for key, curve in zip(keys, told, strict=True) if key not in self._made}
        ahead = {key: (curve, at) for key, (curve, at) in new.items() if at > len(curve)}
        for key, (curve, _) in new.items():
            self._made[key] = Forecast.certain([curve[-1]], "last report")
        if ahead:
            predicted = self._curves.predict_many(*zip(*ahead.values(), strict=True))
            self._made |= {key: predicted[place] for place, key in enumerate(ahead)}
        for owner, key in zip(owners.tolist(), keys, strict=True):
            self._table[owner], self._source[owner] = self._made[key].table[0], self._made[key].source[0]

    def of(self, n: int, rows: Ints, owners: Ints) -> Forecast:
        """n rows, of which these are those of these trainings; the rest is unknown."""
        table, source = np.full((n, len(LEVELS)), np.nan), np.full(n, "", dtype=self._source.dtype)
        table[rows], source[rows] = self._table[owners], self._source[owners]
        return Forecast(table, source)


class SimForecaster:
    """Forecasts for the engine's live rows, which are the snapshot's."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine, jobs = engine, engine.table.jobs
        noise = np.array([job.runtime_noise for job in jobs])
        drawn = np.random.default_rng([seed, 1]).standard_normal(len(jobs))
        most = max(int(engine.nodes.capacity[:, 0].max()), 1)
        rate = [engine.speed(j, max(1, job.gpus), max(1, -(-job.gpus // most))) for j, job in enumerate(jobs)]
        self._rate = np.array(rate)
        self._error = np.exp(noise * drawn)
        sigmas, self._unit = np.unique(noise, return_inverse=True)
        self._units = _units(sigmas)
        self._unknown = Forecasts.unknown(0)
        self._keys: tuple[JobKey, ...] = ()
        self._training: Ints = np.zeros(0, dtype=np.int64)
        self._loss_error = np.random.default_rng([seed, 2]).standard_normal(len(jobs))
        self._curves, self._losses = LearningCurvePredictor(), LossPredictor("sublinear")
        self._final, self._accuracy, self._loss = (_Kept(len(jobs), fresh) for fresh in (FRESH, FRESH, 1.0))
        self._ends = _Ends(len(jobs), self._curves)
        self._seen: dict[Hashable, dict[tuple[int, int], float]] = {}
        self._seen_at = -1
        self._rates: dict[int, float] = {}
        self._speeds: dict[Hashable, tuple[int, _Told]] = {}
        self._by_kind: tuple[list[tuple[Hashable, int]], Fan] = [], Fan.unknown(0)
        """of which kinds, by how many placements, and their speeds"""
        self._by_count: tuple[list[int], Fan] = [], self._by_kind[1]
        """the rows' kinds, and their speeds"""

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        n = len(snapshot.jobs)
        if len(self._unknown.total) != n:
            self._unknown = Forecasts.unknown(n)
        if not needs or not n:
            return self._unknown
        if snapshot.jobs.keys is not self._keys:
            self._keys = snapshot.jobs.keys
            self._training = self._engine.table.training[[key.job_id - 1 for key in self._keys]]
        training = self._training
        total = remaining = final = self._unknown.total
        accuracy = loss = speed = self._unknown.speed
        if "total" in needs:
            total = self._total(training)
        if "remaining" in needs:
            remaining = self._remaining(training)
        if "final" in needs:
            final = self._finals(snapshot.jobs, training)
        if "accuracy" in needs:
            accuracy = self._accuracies(snapshot.jobs, training)
        if "loss" in needs:
            loss = self._reductions(snapshot.jobs, training)
        if "speed" in needs:
            speed = self._by_gpus(training)
        return Forecasts(total, remaining, final, accuracy, loss, speed)

    # --- run times --------------------------------------------------------------------------------------------------

    def _total(self, training: Ints) -> Forecast:
        """The true time at what it asks for."""
        return self._with_error(training, self._engine.iterations[training] / self._rate[training])

    def _remaining(self, training: Ints) -> Forecast:
        """What is left of the true time at what it has."""
        engine, rate = self._engine, self._engine.rate[training]
        going = np.where(rate > 0, rate, self._rate[training])
        left = np.maximum(engine.iterations[training] - engine.progress(training), 0.0) / going
        left += np.maximum(np.where(rate > 0, engine.anchor[training] - engine.now, 0.0), 0.0)
        return self._with_error(training, left)

    def _with_error(self, training: Ints, seconds: Floats) -> Forecast:
        """So many seconds (n,), times each job's error."""
        return self._units[self._unit[training]].times(seconds * self._error[training])

    # --- curves -----------------------------------------------------------------------------------------------------

    def _finals(self, jobs: Jobs, training: Ints) -> Forecast:
        """The target's quantity at the last iteration, as the daemon forecasts it."""
        lengths = jobs.accuracies.lengths()
        rows = _reporting(lengths, jobs)
        owners = training[rows]
        new = self._final.due(owners, lengths[rows])
        told = [(*jobs.accuracies.row(row), float(jobs.max_iterations[row])) for row in rows[new].tolist()]
        self._ends.note(owners[new], told)
        return self._ends.of(len(jobs), rows, owners)

    def _accuracies(self, jobs: Jobs, training: Ints) -> Fan:
        """By iteration: the last report, and forecasts at even steps from there to the end."""
        lengths = jobs.accuracies.lengths()
        rows = _reporting(lengths, jobs)

        def ask(new: list[int]) -> list[_Told]:
            lasts = jobs.max_iterations[rows[new]].tolist()
            return self._ahead([(*jobs.accuracies.row(row), last) for row, last in zip(rows[new], lasts, strict=True)])

        return _fan(len(jobs), rows, self._accuracy.each(training[rows], lengths[rows], ask))

    def _ahead(self, reported: Sequence[tuple[Floats, Floats, float]]) -> list[_Told]:
        """The fans of trainings that have reported values at iterations, of so many."""
        told, curves, ats = [], [], []
        for iterations, values, last in reported:
            x = np.linspace(iterations[-1], max(last, iterations[-1] + 1.0), STEPS + 1)
            curve, _ = even(iterations, values, last)
            curves += [curve] * STEPS
            ats += [max(even(iterations, values, float(at))[1], len(curve) + 1) for at in x[1:]]
            told.append((x, float(values[-1])))
        ahead = self._curves.predict_many(curves, ats)
        starts = range(0, len(ahead), STEPS)
        return [(x, _after(now, ahead[at : at + STEPS])) for (x, now), at in zip(told, starts, strict=True)]

    def _reductions(self, jobs: Jobs, training: Ints) -> Fan:
        """The loss by iteration: by SLAQ's predictor, or the truth with the workload's error where it names one."""
        lengths = jobs.losses.lengths()
        rows = _reporting(lengths, jobs)

        def ask(new: list[int]) -> list[_Told]:
            return [self._loss_ahead(int(training[row]), *jobs.losses.row(row)) for row in rows[new].tolist()]

        return _fan(len(jobs), rows, self._loss.each(training[rows], lengths[rows], ask))

    def _loss_ahead(self, training: int, iterations: Floats, values: Floats) -> _Told:
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
        return x, _after(now, ahead)

    # --- speed ------------------------------------------------------------------------------------------------------

    def _by_gpus(self, training: Ints) -> Fan:
        """Iterations a second by GPUs on as few nodes as hold them, from the placements that its kind was seen on."""
        self._look()
        place: dict[Hashable, int] = {}
        names = [_kind(self._engine, j) for j in training.tolist()]
        index = [place.setdefault(name, len(place)) if name in self._seen else -1 for name in names]
        speeds = {name: self._speed_of(name) for name in place}
        lengths = [(name, length) for name, (length, _) in speeds.items()]
        if lengths != self._by_kind[0]:
            self._by_kind = lengths, _fan(len(speeds), range(len(speeds)), [told for _, told in speeds.values()])
            self._by_count = [], self._by_kind[1]
        if index != self._by_count[0]:
            kinds = self._by_kind[1]
            self._by_count = index, Fan(np.array(index), kinds.x, kinds.table, kinds.source)
        return self._by_count[1]

    def _speed_of(self, name: Hashable) -> tuple[int, _Told]:
        """Of a kind the number of placements gone by, and its speed by GPUs; forecast anew as a curve is."""
        seen, kept = self._seen[name], self._speeds.get(name)
        if kept is None or not kept[0] <= len(seen) < max(kept[0] + 1, kept[0] * FRESH):
            capacity = self._engine.nodes.capacity[:, 0]
            gpus = _counts(int(capacity.sum()))
            placed, rates = np.array(list(seen)), np.array(list(seen.values()))
            predictor = SpeedPredictor().fit(placed[:, 0], placed[:, 1], 1.0 / rates)
            nodes = np.ceil(gpus / max(int(capacity.max()), 1))
            kept = self._speeds[name] = len(seen), (gpus, predictor.predict(gpus, nodes))
        return kept

    def _look(self) -> None:
        """Note on what each kind trains now, and how fast."""
        engine = self._engine
        if self._seen_at == engine.changes:
            return
        self._seen_at = engine.changes
        for row in engine.holds:
            j = int(engine.table.training[row])
            rate = float(engine.rate[j])
            if rate > 0 and self._rates.get(j) != rate and engine.state[row] == RUNNING:
                self._rates[j] = rate
                self._seen.setdefault(_kind(engine, j), {}).setdefault(engine.placement(j), rate)


def _kind(engine: Engine, training: int) -> Hashable:
    """Jobs of one kind train alike; one without a kind is like itself alone."""
    return engine.table.jobs[training].kind or training


def _reporting(lengths: Ints, jobs: Jobs) -> Ints:
    """The rows that have told points of a curve, and how long they go on."""
    return np.flatnonzero((lengths > 0) & (jobs.max_iterations > 0))


def _after(last: float, ahead: Forecast) -> Forecast:
    """What was reported last, and the forecasts behind it."""
    behind = np.arange(1, len(ahead) + 1)
    return Forecast.assemble(len(ahead) + 1, [([0], Forecast.certain([last], "last report")), (behind, ahead)])


def _fan(n: int, rows: Ints | Sequence[int], told: Sequence[_Told]) -> Fan:
    """One fan of all; rows known at fewer points have their last repeated just beyond it."""
    if not told:
        return Fan.unknown(n)
    width = max(len(x) for x, _ in told)
    xs = np.stack([np.concatenate([x, x[-1] + np.arange(1, width - len(x) + 1)]) for x, _ in told])
    index = np.full(n, -1)
    index[np.asarray(rows)] = np.arange(len(told))
    tables = [each.table[np.minimum(np.arange(width), len(each) - 1)] for _, each in told]
    return Fan(index, xs, np.stack(tables), np.array([each.source[0] for _, each in told]))


def _counts(most: int) -> Floats:
    """Numbers of GPUs at which a speed is forecast: all up to `EVERY`, then fewer and fewer."""
    whole = np.arange(1.0, max(min(most, EVERY), 2) + 1)
    return np.union1d(whole, np.rint(np.geomspace(EVERY, most, 8))) if most > EVERY else whole


def _units(sigmas: Floats) -> Forecast:
    """Lognormal of median 1, by the standard deviations of the logarithm (m,), of which some may be 0."""
    noisy = np.flatnonzero(sigmas > 0)
    certain = Forecast.certain(np.ones(len(sigmas)), "simulated")
    drawn = Forecast.lognormal(np.ones(len(noisy)), sigmas[noisy], "simulated")
    return Forecast.assemble(len(sigmas), [(np.arange(len(sigmas)), certain), (noisy, drawn)])

"""A simulation forecasts as the daemon does: by the same code, from the snapshot alone, but for the run times."""

from typing import Any

import numpy as np
import pytest

from policies.baselines.fifo import FIFO
from policies.mlfs.mlfs import MLFS
from policies.mlfs.with_early_stopping import WithEarlyStopping
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import LEVELS, NEEDS, Fan, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from slurmplug.forecasting.forecast_cache import EVERY_CHANGE, CachePolicies
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.speeds.kind_paces import grid
from slurmplug.sim.adapters.forecaster import SimForecaster, once_grown
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.engine.true_values import SOURCE, TrueRunTimes
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from tests.sim_jobs import First, job, simulation, speed

CURVE_AT = np.arange(1.0, 101)
FALLING, RISING = 1 / CURVE_AT + 0.1, 1 - 0.9 / np.sqrt(CURVE_AT)
SPEED = speed((1, 1, 0.2), (4, 1, 0.6), (8, 2, 0.8))


class Watched(First):
    """First come, first served; it records its snapshots and forecasts."""

    needs: frozenset[Need] = NEEDS

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Snapshot, Forecasts]] = []

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        self.seen.append((snapshot, forecasts))
        return super().decide(snapshot, forecasts, memory)


def training(number: int, **fields: Any) -> Any:
    """One of several jobs that report both curves; at times its kind, or its end, is unlike the others'."""
    shape = 1.0 + 0.1 * number
    given = {
        "name": f"run{number}", "submit": 20.0 * number, "speed": SPEED, "kind": ("mlp", "cnn", "")[number % 3],
        "gpus": 1 + number % 3, "gpus_min": 1, "gpus_max": 8, "iterations": 60 + number, "curve_at": CURVE_AT,
        "losses": FALLING * shape, "accuracies": RISING / shape,
    }  # fmt: skip
    return job(**{**given, **fields})


def run_of(*jobs: Any) -> Any:
    """A simulation of these, and its policy."""
    policy = Watched()
    return simulation(*jobs, policy=policy, interval=20.0), policy


def same_fan(some: Fan, others: Fan, rows: Any = None) -> None:
    """Bit for bit, in these rows."""
    rows = np.arange(len(some)) if rows is None else rows
    assert (some.index[rows] >= 0).tolist() == (others.index[rows] >= 0).tolist()
    rows = rows[some.index[rows] >= 0]
    if not len(rows):
        return
    at, other = some.index[rows], others.index[rows]
    assert some.source[at].tolist() == others.source[other].tolist()
    assert np.array_equal(some.x[at], others.x[other])
    assert np.array_equal(some.table[at], others.table[other])


@pytest.fixture(scope="module")
def watched() -> list[tuple[Snapshot, Forecasts, Forecasts, Forecasts]]:
    """Of each cycle of a run the snapshot, and the forecasts of three forecasters: the daemon's, the daemon's with true
    run times, and the simulation's with the daemon's cache policy."""
    simulated, policy = run_of(*(training(number) for number in range(7)))
    live, true = Forecaster(), Forecaster(TrueRunTimes(simulated.engine, 0))
    made = SimForecaster(simulated.engine, 0, EVERY_CHANGE)
    found: list[tuple[Snapshot, Forecasts, Forecasts, Forecasts]] = []

    class Both:
        def forecast(self, snapshot: Snapshot, needs: Any) -> Forecasts:
            simulation = made.forecast(snapshot, needs)
            found.append((snapshot, live.forecast(snapshot, needs), true.forecast(snapshot, needs), simulation))
            return simulation

    simulated.scheduler.forecaster = Both()
    simulated.run()
    assert len(policy.seen) == len(found) > 20
    return found


class TestTheDaemonsForecasterAndTheSimulations:
    def test_agree_on_curves_bit_for_bit(self, watched: Any) -> None:
        assert any(made.final.known.sum() > 3 for _, _, _, made in watched)
        for _, live, _, made in watched:
            assert np.array_equal(live.final.table, made.final.table, equal_nan=True)
            assert live.final.source.tolist() == made.final.source.tolist()
            same_fan(live.accuracy, made.accuracy)
            same_fan(live.loss, made.loss)

    def test_agree_on_speeds_given_the_same_run_times(self, watched: Any) -> None:
        sources = set()
        for _, _, true, made in watched:
            same_fan(true.speed, made.speed)
            sources |= set(made.speed.source.tolist())
        assert sources == {"measured speed", "run time and scaling"}

    def test_agree_on_speeds_that_were_measured(self, watched: Any) -> None:
        measured = 0
        for _, live, _, made in watched:
            rows = np.flatnonzero(live.speed.known)
            rows = rows[live.speed.source[live.speed.index[rows]] == "measured speed"]
            measured += len(rows)
            same_fan(live.speed, made.speed, rows)
        assert measured > 20

    def test_name_the_same_models_but_for_run_times(self, watched: Any) -> None:
        _, live, _, made = watched[-1]
        assert live.models == {**made.models, "total": live.models["total"]}


def test_a_simulation_remakes_a_final_accuracy_only_of_a_curve_a_tenth_longer_and_knows_the_same_jobs() -> None:
    simulated, policy = run_of(*(training(number) for number in range(3)))
    every = SimForecaster(simulated.engine, 0, EVERY_CHANGE)
    simulated.run()
    tables = set()
    for snapshot, made in policy.seen:
        fresh = every.forecast(snapshot, {"final", "accuracy", "loss"})
        assert made.final.known.tolist() == fresh.final.known.tolist()
        assert made.accuracy.known.tolist() == fresh.accuracy.known.tolist()
        same_fan(made.loss, fresh.loss)
        tables |= {row.tobytes() for row in made.final.table[made.final.known]}
    assert 3 < len(tables) < 120


def test_simulations_that_share_forecasts_run_as_each_alone_and_forecast_no_curve_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = tuple(training(number) for number in range(4))
    settings = SimulationSettings("2x4", 10.0, stopping=True)
    made: list[int] = []
    predict = LearningCurvePredictor.predict_many

    def counted(self: LearningCurvePredictor, curves: Any, ats: Any, metas: Any = None) -> Any:
        made.append(len(curves))
        return predict(self, curves, ats, metas)

    monkeypatch.setattr(LearningCurvePredictor, "predict_many", counted)

    def run(policy: Policy, caches: CachePolicies | None) -> tuple[Any, int]:
        made.clear()
        finished = Simulation(Workload("test", jobs), policy, settings, caches).run().finished
        return [(each.ended, each.stopped, each.gpu_seconds) for each in finished], sum(made)

    alone, needed = run(MLFS(), None)
    caches = once_grown()
    run(WithEarlyStopping(FIFO()), caches)
    shared, added = run(MLFS(), caches)
    assert shared == alone
    assert added < needed
    assert run(MLFS(), caches) == (alone, 0)


class TestWhatHadDrifted:
    def test_losses_are_by_the_daemons_predictor(self) -> None:
        simulated, policy = run_of(training(0))
        simulated.run()
        sources = {source for _, made in policy.seen for source in made.loss.source.tolist()}
        assert sources == {"loss changes"}

    def test_speeds_are_at_the_daemons_counts_of_gpus(self) -> None:
        simulated, policy = run_of(training(0, gpus_max=7))
        simulated.run()
        grids = {tuple(x) for _, made in policy.seen for x in made.speed.x.tolist()}
        assert grids == {tuple(grid(7))}

    def test_the_curve_predictor_is_given_the_type_and_the_name_of_the_job(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        metas: list[Any] = []
        predict_many = LearningCurvePredictor.predict_many

        def noted(self: Any, curves: Any, ats: Any, given: Any = None) -> Any:
            metas.extend(given)
            return predict_many(self, curves, ats, given)

        monkeypatch.setattr(LearningCurvePredictor, "predict_many", noted)
        run_of(training(0))[0].run()
        assert metas
        assert all(meta == {"type": "mlp", "name": "run0"} for meta in metas)

    def test_the_speeds_of_unlike_jobs_of_one_kind_are_not_mixed(self) -> None:
        """One trains at 1 iteration a second on 4 GPUs, the other at a tenth of that: both are forecast so."""
        fast, slow = speed((1, 1, 0.4), (4, 1, 1.0)), speed((1, 1, 0.04), (4, 1, 0.1))
        alike = {"kind": "mlp", "gpus": 4, "gpus_max": 4, "submit": 0.0, "iterations": 300}
        simulated, policy = run_of(training(0, speed=fast, **alike), training(1, speed=slow, **alike))
        simulated.run()
        both = [
            made.speed.at([0, 1], 4).median
            for snapshot, made in policy.seen
            if len(snapshot.jobs) == 2 and (snapshot.jobs.iteration_time > 0).all()
        ]
        assert both
        assert np.array(both) == pytest.approx(np.tile([1.0, 0.1], (len(both), 1)), rel=0.1)


class TestTrueValues:
    def test_a_run_time_is_the_true_one_times_one_error_a_job(self) -> None:
        simulated, policy = run_of(training(0, runtime_noise=0.5), training(1))
        simulated.run()
        totals = {key: made.total.median[row] for s, made in policy.seen for row, key in enumerate(s.jobs.keys)}
        each = {key: made.total.median[row] for s, made in policy.seen[::-1] for row, key in enumerate(s.jobs.keys)}
        assert totals == each
        errors = np.array(list(totals.values())) / [300.0, 61 / SPEED.at(2, 1)]
        assert errors[1] == pytest.approx(1.0)
        assert errors[0] != pytest.approx(1.0, rel=0.01)
        assert {source for _, made in policy.seen for source in made.remaining.source.tolist()} == {SOURCE}

    def test_run_times_are_of_the_iterations_that_the_user_states(self) -> None:
        simulated, policy = run_of(training(0, stated_iterations=30), training(1))
        iterations = simulated.workload.jobs[0].iterations
        simulated.run()
        first = [(s, made) for s, made in policy.seen if s.jobs.keys[0].job_id == 1]
        assert {float(s.jobs.max_iterations[0]) for s, _ in first} == {30.0}
        assert {float(made.total.median[0]) for _, made in first} == {300.0 * 30 / iterations}
        beyond = [made.remaining.median[0] for s, made in first if s.jobs.iteration[0] > 30]
        assert beyond
        assert beyond == pytest.approx([300.0 / iterations] * len(beyond))  # its last iteration, again and again

    def test_a_loss_with_a_noise_falls_as_the_true_one_times_one_error(self) -> None:
        simulated, policy = run_of(training(0, loss_noise=0.5), training(1))
        simulated.run()
        ratios = []
        for snapshot, made in policy.seen:
            for row, key in enumerate(snapshot.jobs.keys):
                if key.job_id == 1 and made.loss.known[row]:
                    place = made.loss.index[row]
                    x, table = made.loss.x[place], made.loss.table[place]
                    truth = np.interp(x, CURVE_AT, FALLING)
                    ratios += ((table[1:, 0] - table[0, 0]) / (truth[1:] - truth[0])).tolist()
                    assert np.ptp(table, axis=1).tolist() == [0.0] * len(x)
        assert ratios
        assert ratios == pytest.approx([ratios[0]] * len(ratios))
        assert ratios[0] != pytest.approx(1.0, rel=0.01)
        assert {source for _, made in policy.seen for source in made.loss.source.tolist()} == {"loss changes", SOURCE}


def test_a_policy_that_needs_nothing_gets_one_and_the_same_nothing() -> None:
    simulated, policy = run_of(training(0, losses=FALLING))
    policy.needs = frozenset()
    simulated.run()
    assert len({id(made.total.table) for s, made in policy.seen if len(s.jobs)}) == 1
    assert policy.seen[0][1].speed.table.shape[2] == len(LEVELS)

"""Run times are forecast from what is known at submit, by the best source that knows something."""

import numpy as np
import pytest

from predictors.runtime import Job, RuntimePredictor
from predictors.runtime.support_vector import FEWEST


def _history(n: int = 120, seed: int = 3) -> tuple[list[dict[str, object]], list[float]]:
    """Jobs whose run time is known: base of the type / GPUs, with 5% noise."""
    rng = np.random.default_rng(seed)
    base = {"resnet": 8000.0, "bert": 40_000.0}
    jobs, runtimes = [], []
    for _ in range(n):
        kind = str(rng.choice(list(base)))
        gpus = int(2 ** rng.integers(0, 4))
        jobs.append({"type": kind, "gpus": gpus, "user": str(rng.choice(["ann", "bob"])), "time_limit": 86_400})
        runtimes.append(base[kind] / gpus * float(np.exp(0.05 * rng.standard_normal())))
    return jobs, runtimes


@pytest.fixture(scope="module")
def fitted() -> RuntimePredictor:
    return RuntimePredictor("svr").fit(*_history())


def test_the_model_of_a_type_learns_how_run_time_depends_on_gpus(fitted: RuntimePredictor) -> None:
    forecast = fitted.predict_many(
        [{"type": "resnet", "gpus": 2}, {"type": "resnet", "gpus": 8}, {"type": "bert", "gpus": 4}]
    )

    assert list(forecast.source) == ["svr"] * 3
    np.testing.assert_allclose(forecast.median, [4000.0, 1000.0, 10_000.0], rtol=0.2)


def test_svr_learns_from_what_users_declare_of_the_work() -> None:
    random = np.random.default_rng(0)
    rows, operation = random.integers(100, 2000, 200), random.choice(["sort", "count"], 200)
    seconds = np.where(operation == "sort", (rows / 100.0) ** 2, rows / 20.0)
    jobs: list[Job] = [
        {"type": "text", "user": "ann", "work": f"operation:{how},rows:{many}"}
        for how, many in zip(operation.tolist(), rows.tolist(), strict=True)
    ]
    fitted = RuntimePredictor("svr").fit(jobs[:150], seconds[:150])
    for predictor in (fitted, RuntimePredictor.from_state(fitted.state())):
        error = np.abs(np.log(predictor.predict_many(jobs[150:]).median / seconds[150:]))
        assert np.median(error) < 0.1
    odd: list[Job] = [{"type": "text", "work": work} for work in ("", "rows:many", "rows:5", "classes:3,operation:7")]
    assert fitted.predict_many(odd).known.all()


def test_its_spread_covers_the_errors_it_makes(fitted: RuntimePredictor) -> None:
    jobs, runtimes = _history(400, seed=9)
    forecast = fitted.predict_many(jobs)

    inside = (forecast.sf(runtimes) > 0.05) & (forecast.sf(runtimes) < 0.95)

    assert 0.8 <= inside.mean() <= 0.98


def test_no_forecast_passes_the_time_limit(fitted: RuntimePredictor) -> None:
    forecast = fitted.predict_many([{"type": "bert", "gpus": 1, "time_limit": 3600}, {"user": "ann", "time_limit": 60}])

    assert list(forecast.quantile(1.0)) == [3600.0, 60.0]


def test_a_type_without_a_model_falls_back_to_its_users_own_history(fitted: RuntimePredictor) -> None:
    for _ in range(10):
        fitted.update({"user": "cleo", "type": "rare"}, 500.0)

    forecast = fitted.predict({"user": "cleo", "type": "rare"})

    assert forecast.source[0] == "user history"
    assert forecast.median[0] == pytest.approx(500.0)
    assert forecast.quantile(0.95)[0] > 700.0


def test_an_unknown_user_gets_the_time_limit_and_without_one_nothing_is_known() -> None:
    forecast = RuntimePredictor().predict_many([{"user": "new", "time_limit": 7200}, {"user": "new"}, {}])

    assert list(forecast.source) == ["time limit", "", ""]
    assert forecast.quantile(1.0)[0] == 7200.0
    assert 0.0 < forecast.median[0] < 7200.0
    assert np.isnan(forecast.median[1:]).all()


def test_a_type_of_few_jobs_gets_no_model() -> None:
    jobs, runtimes = _history(FEWEST - 1)

    assert set(RuntimePredictor("svr").fit([{**job, "type": "same"} for job in jobs], runtimes).models_) == set()


def test_a_model_comes_back_from_plain_values_with_the_same_forecasts(fitted: RuntimePredictor) -> None:
    jobs, _ = _history(20, seed=5)

    back = RuntimePredictor.from_state(fitted.state())

    np.testing.assert_allclose(back.predict_many(jobs).table, fitted.predict_many(jobs).table)


def test_a_model_of_another_version_is_refused(fitted: RuntimePredictor) -> None:
    with pytest.raises(ValueError, match="fit it again"):
        RuntimePredictor.from_state({**fitted.state(), "version": "runtime-0"})


def test_the_same_seed_gives_the_same_model() -> None:
    jobs, runtimes = _history(60)
    one, two = (RuntimePredictor("svr", seed=4).fit(jobs, runtimes).predict_many(jobs) for _ in range(2))

    np.testing.assert_array_equal(one.table, two.table)


@pytest.mark.parametrize("runtimes", [[float("nan")], [-1.0], [float("inf")], [1.0, 2.0]])
def test_run_times_that_are_none_are_refused(runtimes: list[float]) -> None:
    with pytest.raises(ValueError, match="run time"):
        RuntimePredictor().fit([{"user": "ann"}], runtimes)


def test_a_number_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="gpus"):
        RuntimePredictor().predict({"gpus": "many"})


def test_hostile_and_missing_values_only_cost_knowledge(fitted: RuntimePredictor) -> None:
    jobs: list[Job] = [
        {"type": "resnet", "gpus": float("inf"), "mem": -5, "partition": "x" * 10_000, "time_limit": float("nan")},
        {"type": "resnet", "user": None, "nodes": None, "time_limit": 0},
    ]

    forecast = fitted.predict_many(jobs)

    assert forecast.known.all()
    assert np.isfinite(forecast.median).all()


def test_no_jobs_are_a_forecast_of_no_rows(fitted: RuntimePredictor) -> None:
    assert len(fitted.predict_many([])) == 0
    assert len(RuntimePredictor().fit([], []).predict_many([])) == 0


def _log(n: int = 600, seed: int = 5) -> tuple[list[dict[str, object]], list[float]]:
    """Users who each run one program for about as long as the time before, and ask for far more."""
    rng = np.random.default_rng(seed)
    typical = {f"user{i}": float(np.exp(rng.uniform(4.0, 9.0))) for i in range(12)}
    jobs, runtimes = [], []
    for i in range(n):
        user = str(rng.choice(list(typical)))
        runtimes.append(typical[user] * float(np.exp(0.2 * rng.standard_normal())))
        jobs.append({"user": user, "cpus": 8, "name": f"train-{i}", "time_limit": 86_400, "submit": 20_000.0 * i})
    return jobs, runtimes


@pytest.fixture(scope="module")
def stack() -> RuntimePredictor:
    return RuntimePredictor().fit(*_log())


def test_the_stack_learns_what_like_jobs_took(stack: RuntimePredictor) -> None:
    jobs, runtimes = _log()

    forecast = stack.predict_many(jobs[-100:])
    off = np.abs(np.log(forecast.median / np.array(runtimes[-100:])))

    assert set(forecast.source) == {"stack"}
    assert np.median(off) < 0.3


def test_a_change_in_a_users_jobs_is_followed_before_the_forest_is_grown_anew(stack: RuntimePredictor) -> None:
    follower = RuntimePredictor.from_state(stack.state())
    job = {"user": "user0", "cpus": 8, "name": "train-9", "time_limit": 86_400}
    before = follower.predict(job).median[0]

    for _ in range(12):
        follower.update(job, before * 20.0)

    assert follower.predict(job).median[0] > 2.0 * before


def test_the_upper_bound_widens_until_it_is_passed_as_often_as_it_says() -> None:
    """After the forest was grown, run times vary more than it ever saw."""
    rng = np.random.default_rng(8)
    jobs, runtimes = _log()
    predictor = RuntimePredictor().fit(jobs, runtimes)
    passed = []

    for job, runtime in zip(*_log(400, seed=5), strict=True):
        longer = runtime * float(np.exp(0.5 * rng.standard_normal()))
        passed.append(longer > predictor.predict(job).quantile(0.95)[0])
        predictor.update(job, longer)

    assert np.mean(passed[:100]) > np.mean(passed[-200:])
    assert np.mean(passed[-200:]) < 0.12


def test_the_history_makes_the_forest_grow_without_a_fit() -> None:
    predictor = RuntimePredictor()
    for job, runtime in zip(*_log(120), strict=True):
        predictor.update(job, runtime)

    assert predictor.predict(_log(1)[0][0]).source[0] == "stack"


def test_jobs_that_end_a_little_past_their_limit_are_expected_to() -> None:
    rng = np.random.default_rng(2)
    jobs = [{"user": "ann", "time_limit": 3600, "submit": 5000.0 * i} for i in range(200)]
    predictor = RuntimePredictor().fit(jobs, list(3600.0 + rng.uniform(5.0, 50.0, 200)))

    assert 3600.0 < predictor.predict(jobs[0]).quantile(0.95)[0] < 3660.0


def test_a_forecast_sees_only_jobs_that_had_ended_at_submit() -> None:
    """The second of two jobs submitted together cannot know how long the first will take."""
    jobs, runtimes = _log(100)
    twins = [{**jobs[0], "user": "new", "submit": 3e6}, {**jobs[0], "user": "new", "submit": 3e6}]
    predictor = RuntimePredictor().fit([*jobs, *twins], [*runtimes, 77.0, 77.0])

    np.testing.assert_array_equal(predictor.stack_.x[-1], predictor.stack_.x[-2])


def test_the_keys_of_a_state_are_those_of_models_in_ledgers(fitted: RuntimePredictor, stack: RuntimePredictor) -> None:
    """Of version runtime-6: a ledger keeps them, whatever the attributes are called."""
    own = "version model seed types users recent recent_counts".split()
    svr = "sizes kinds middle scale places_partition places_qos places_user "
    svr += "support dual intercept kernel gamma cost residuals"
    plain, forest = "stretch overrun clock x y limits".split(), "roots feature threshold below leaf".split()
    stacked = {f"evidence/{name}" for name in ("programs", "counts", "took")}
    stacked |= {f"stack/{name}" for name in plain} | {f"stack/history/{name}" for name in ("keys", "counts", "runs")}

    states = fitted.state(), stack.state()

    assert set(states[0]) == {
        *own,
        *stacked,
        *(f"model/{i}/{name}" for i in range(len(fitted.models_)) for name in svr.split()),
    }
    assert set(states[1]) == {*own, *stacked, *(f"stack/forest/{name}" for name in forest)}


def test_the_stack_comes_back_from_plain_values_and_goes_on_learning(stack: RuntimePredictor) -> None:
    jobs, runtimes = _log(30, seed=6)
    one, two = RuntimePredictor.from_state(stack.state()), RuntimePredictor.from_state(stack.state())
    for job, runtime in zip(jobs, runtimes, strict=True):
        one.update(job, runtime)
        two.update(job, runtime)

    np.testing.assert_array_equal(one.predict_many(jobs).table, two.predict_many(jobs).table)
    np.testing.assert_array_equal(
        RuntimePredictor.from_state(stack.state()).predict_many(jobs).table, stack.predict_many(jobs).table
    )


def test_odd_jobs_are_forecast_by_the_stack_too(stack: RuntimePredictor) -> None:
    forecast = stack.predict_many([{}, {"user": "nobody", "gpus": float("inf"), "mem": -3, "submit": float("nan")}])

    assert np.isfinite(forecast.median).all()


def test_no_such_model_is_refused() -> None:
    with pytest.raises(ValueError, match="stack or svr"):
        RuntimePredictor("oracle")  # type: ignore[arg-type]

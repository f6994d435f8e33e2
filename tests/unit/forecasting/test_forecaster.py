"""What will be: each number from the best that is known of the job, made once, and believed within reason."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.mlfs.mlfs import MLFS
from policies.snapshot import Curves, JobKey, Snapshot
from predictors.forecast import NEEDS, Forecast, Forecasts, Need
from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimePredictor
from slurmplug.forecasting.curve_fans import resample_evenly
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.intake.intake import Intake
from slurmplug.spool.report_lines import MAX_ITERATION
from tests.builders import CLUSTER, NOW, jobs, nodes, snapshot
from tests.fake_cluster import job_row, reading, report


class CountsRuns(RuntimePredictor):
    """Records the jobs that it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def predict_many(self, jobs: Any) -> Forecast:
        self.calls += jobs
        return super().predict_many(jobs)


class CountsCurves(LearningCurvePredictor):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def predict_many(self, curves: Any, ats: Any, metas: Any = None) -> Forecast:
        self.calls += list(zip(map(len, curves), ats, strict=True))
        return super().predict_many(curves, ats, metas)


NUMBERS_NEEDED: frozenset[Need] = frozenset({"total", "remaining", "final"})


class Desk:
    """A forecaster whose predictors record what they are called with."""

    def __init__(self) -> None:
        self.forecaster, self.runs, self.curves = Forecaster(), CountsRuns(), CountsCurves()
        self.forecaster.use(self.runs, self.curves)

    def forecast(self, now: float = NOW, **columns: Any) -> Forecasts:
        n = len(columns.get("keys", [0]))
        return self.forecaster.forecast(snapshot(jobs(n, **columns), nodes(1), now=now), NUMBERS_NEEDED)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_empty_queue_has_no_forecasts(desk: Desk) -> None:
    result = desk.forecast(keys=())
    assert (len(result.total), len(result.remaining), len(result.final)) == (0, 0, 0)
    assert (desk.runs.calls, desk.curves.calls) == ([], [])


def test_what_is_not_needed_is_unknown_and_not_predicted(desk: Desk) -> None:
    seen = snapshot(jobs(1, time_limit=60.0, max_iterations=90, accuracies=[[0.1, 0.2]]), nodes(1))
    result = desk.forecaster.forecast(seen, frozenset())
    assert not (result.total.known | result.remaining.known | result.final.known).any()
    assert (desk.runs.calls, desk.curves.calls) == ([], [])


def test_a_job_without_reports_remains_what_its_run_time_leaves(desk: Desk) -> None:
    result = desk.forecast(NOW + 1800.0, time_limit=3600.0, state="running", started=NOW)
    assert (result.total.source.tolist(), result.remaining.source.tolist()) == (["time limit"], ["time limit"])
    assert result.remaining.median[0] == pytest.approx(900.0)
    assert result.remaining.quantile(1.0)[0] == 1800.0


def test_a_job_that_reports_remains_what_its_pace_leaves(desk: Desk) -> None:
    columns: dict[str, Any] = {"state": "running", "started": NOW, "iteration": 40, "iteration_time": 5.0}
    result = desk.forecast(NOW + 200.0, max_iterations=90, time_limit=3600.0, attained=200.0, **columns)
    assert result.remaining.source.tolist() == ["progress"]
    assert result.remaining.median[0] == pytest.approx(250.0)
    assert result.total.median[0] == pytest.approx(450.0)


def test_reports_count_by_the_share_of_the_forecast_gpu_time_attained(desk: Desk) -> None:
    """A tenth of the 1800 s is the trial; before its end the rest of what was forecast at submission counts."""
    claims: dict[str, Any] = {"state": "running", "started": NOW, "iteration": 99, "iteration_time": 0.1, "gpus": 2}
    known = {"max_iterations": 100, "time_limit": 3600.0}
    remaining = [
        desk.forecast(NOW + ran, attained=2 * ran, **claims, **known).remaining.median[0] for ran in (0.0, 90.0, 180.0)
    ]
    rest = RuntimePredictor().predict({"time_limit": 3600.0}).beyond(90.0).median[0]
    assert remaining == pytest.approx([1800.0, 0.5 * rest, 0.1], rel=1e-3)


RESIZED: dict[str, Any] = {
    "iteration": 50, "iteration_time": 36.0, "max_iterations": 100, "time_limit": 7200.0, "attained": 4 * 1800.0,
}  # fmt: skip
"""Half of a job of an hour on 4 GPUs, which is what is expected of its time limit."""


def resized(desk: Desk, gpus: int, **columns: Any) -> Forecast:
    """What remains of it once it waits for its next run, or runs again and has not reported."""
    desk.forecast(NOW + 1800.0, state="running", started=NOW, gpus=4, **RESIZED)
    return desk.forecast(NOW + 1900.0, gpus=gpus, **RESIZED | columns).remaining


@pytest.mark.parametrize("columns", [{}, {"state": "running", "started": NOW + 1890.0, "iteration_time": np.nan}])
def test_an_honest_job_that_is_resized_loses_nothing(desk: Desk, columns: dict[str, Any]) -> None:
    same, more, fewer = (resized(desk, gpus, **columns).median[0] for gpus in (4, 8, 2))
    assert same == pytest.approx(1800.0)
    assert 900.0 < more < 1800.0 < fewer < 3600.0


def test_a_job_that_is_resized_again_goes_by_what_it_showed_on_as_many_gpus() -> None:
    """It takes 36 s an iteration on 4 GPUs and hardly less on 8, whatever other jobs gain by more GPUs."""
    forecaster = Forecaster()

    def remaining(after: float, gpus: int, **columns: Any) -> float:
        running = "state" in columns
        on = np.array([[0, node, 4] for node in range(gpus // 4 if running else 0)], dtype=np.int64).reshape(-1, 3)
        of_jobs = jobs(gpus=gpus, gpus_max=8, **RESIZED | {"time_limit": 4000.0} | columns)
        seen = snapshot(of_jobs, nodes(2), now=NOW + after, runs_on=on)
        return float(forecaster.forecast(seen, NUMBERS_NEEDED).remaining.median[0])

    runs: dict[str, Any] = {"state": "running", "started": NOW}
    remaining(1800.0, 4, **runs)
    remaining(1900.0, 8, **runs, iteration_time=35.0)
    assert remaining(2000.0, 4, iteration_time=np.nan) == pytest.approx(50 * 36.0, rel=0.02)
    assert remaining(2000.0, 8, iteration_time=np.nan) == pytest.approx(50 * 35.0, rel=0.02)


@pytest.mark.parametrize(("after", "source"), [("v100", "progress"), ("", "progress"), ("k80", "time limit")])
def test_a_pace_holds_for_the_next_run_on_the_same_type_of_gpu(desk: Desk, after: str, source: str) -> None:
    desk.forecast(NOW + 1800.0, state="running", started=NOW, gpus=4, gpu_type="v100", **RESIZED)
    remaining = desk.forecast(NOW + 1900.0, gpus=4, gpu_type=after, **RESIZED).remaining
    assert remaining.source.tolist() == [source]


def test_a_job_that_is_resized_goes_on_by_its_own_pace_once_it_reports(desk: Desk) -> None:
    now_runs = {"state": "running", "started": NOW + 1850.0, "iteration": 55, "iteration_time": 20.0}
    assert resized(desk, 8, **now_runs).median[0] == pytest.approx(45 * 20.0)


def test_a_pace_from_an_earlier_run_at_most_halves_what_was_forecast(desk: Desk) -> None:
    remaining = resized(desk, 4, iteration=99).median[0]
    assert remaining == pytest.approx(0.5 * RuntimePredictor().predict({"time_limit": 7200.0}).beyond(1800.0).median[0])


def test_the_pace_of_a_run_that_was_not_seen_does_not_count(desk: Desk) -> None:
    assert desk.forecast(**RESIZED).remaining.source.tolist() == ["time limit"]


@pytest.mark.parametrize(
    "columns",
    [
        {"max_iterations": np.nan},
        {"iteration": 90},
        {"iteration_time": 0},
        {"iteration_time": np.nan},
        {"iteration": 0},
    ],
)
def test_a_job_without_a_pace_or_an_end_is_not_forecast_by_it(desk: Desk, columns: dict[str, Any]) -> None:
    given: dict[str, Any] = {"max_iterations": 90, "iteration": 40, "iteration_time": 2.0, "time_limit": 60.0}
    result = desk.forecast(**given | columns)
    assert result.remaining.source.tolist() == ["time limit"]


def test_a_job_of_which_nothing_is_known_is_unknown(desk: Desk) -> None:
    assert not desk.forecast().remaining.known.any()


def test_a_start_ahead_of_the_clock_adds_nothing(desk: Desk) -> None:
    result = desk.forecast(NOW, time_limit=60.0, state="running", started=NOW + 1e4)
    assert result.remaining.quantile(1.0)[0] == 60.0


def short_runs(desk: Desk) -> None:
    """Thirty runs of five seconds of ada's jobs named train."""
    known = {"user": "ada", "account": "lab", "partition": "gpu", "qos": "normal", "exe": "train", "name": "train"}
    submitted = [NOW - 9e4 + 60 * i for i in range(30)]
    runs = [{**known, "gpus": 1, "time_limit": 36_000.0, "submit": at, "end": at + 5.0} for at in submitted]
    desk.runs.fit(runs, [5.0] * 30)


def test_runs_of_some_seconds_make_no_long_job_short(desk: Desk) -> None:
    short_runs(desk)
    result = desk.forecast(time_limit=36_000.0)
    assert result.total.source.tolist() == ["user history"]
    assert result.total.median[0] > 0.15 * 36_000.0


def test_a_job_that_outlives_its_forecast_is_forecast_by_its_limit(desk: Desk) -> None:
    short_runs(desk)
    columns: dict[str, Any] = {"state": "running", "started": NOW, "time_limit": 36_000.0}
    result = desk.forecast(NOW + 18_000.0, attained=18_000.0, **columns)
    assert result.remaining.source.tolist() == ["outlived"]
    assert result.remaining.median[0] == pytest.approx(9_000.0)
    assert result.total.median[0] == pytest.approx(27_000.0)


def test_a_job_that_outlived_its_forecast_before_a_requeue_is_forecast_by_its_limit(desk: Desk) -> None:
    short_runs(desk)
    result = desk.forecast(time_limit=36_000.0, attained=20_000.0, restarts=1)
    assert result.remaining.source.tolist() == ["outlived"]
    assert result.remaining.median[0] == pytest.approx(18_000.0)


def test_one_without_a_limit_is_then_expected_to_run_as_long_again_at_most(desk: Desk) -> None:
    short_runs(desk)
    result = desk.forecast(NOW + 50_000.0, state="running", started=NOW, attained=50_000.0)
    assert result.remaining.quantile(1.0)[0] == pytest.approx(50_000.0)


def keys(*job_ids: int) -> tuple[JobKey, ...]:
    return tuple(JobKey(CLUSTER, job_id, int(NOW)) for job_id in job_ids)


def test_a_run_time_is_predicted_once_a_job_whatever_rows_come_and_go(desk: Desk) -> None:
    limits = {1: 60.0, 2: 120.0, 3: 180.0}
    for rows in ((1, 2), (2, 1), (3, 2), (2,)):
        result = desk.forecast(keys=keys(*rows), time_limit=[limits[row] for row in rows])
        assert result.total.median.tolist() == [limits[row] / 2 for row in rows]
    assert [job["time_limit"] for job in desk.runs.calls] == [60.0, 120.0, 180.0]


def test_a_run_time_is_predicted_again_when_its_inputs_changed(desk: Desk) -> None:
    inputs: list[dict[str, Any]] = [
        {}, {}, {"kind": "resnet"}, {"time_limit": 30.0}, {"max_iterations": 90}, {"gpus": 4},
    ]  # fmt: skip
    for changed in inputs:
        desk.forecast(**{"time_limit": 60.0, **changed})
    assert len(desk.runs.calls) == 5
    assert desk.runs.calls[1]["type"] == "resnet"


def test_new_predictors_predict_anew(desk: Desk) -> None:
    desk.forecast(time_limit=60.0)
    desk.forecaster.use(desk.runs, desk.curves)
    desk.forecast(time_limit=60.0)
    assert len(desk.runs.calls) == 2


def test_a_final_value_is_predicted_at_each_new_point_only(desk: Desk) -> None:
    for curve in ([0.1], [0.1, 0.2], [0.1, 0.2], [0.1, 0.3]):
        result = desk.forecast(max_iterations=90, accuracies=[curve])
        assert result.final.known.all()
    assert desk.curves.calls == [(1, 90), (2, 90), (2, 90)]
    assert result.models["final"] == desk.curves.version


def test_a_job_that_is_at_its_end_ends_at_its_last_value(desk: Desk) -> None:
    result = desk.forecast(max_iterations=3, accuracies=[[0.1, 0.2, 0.3]])
    assert (result.final.median.tolist(), result.final.source.tolist()) == ([0.3], ["last report"])
    assert desk.curves.calls == []


def test_curves_belong_to_their_jobs(desk: Desk) -> None:
    curves = [[], [0.5, 0.6], [0.1, 0.2, 0.3], [0.9]]
    result = desk.forecast(keys=keys(1, 2, 3, 4), max_iterations=[90, np.nan, 3, 90], accuracies=curves)
    assert result.final.known.tolist() == [False, False, True, True]
    assert result.final.median[2] == 0.3


def test_a_final_value_uses_what_is_known_of_the_job_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    metas: list[Any] = []
    curves = LearningCurvePredictor()
    predict_many = curves.predict_many

    def noted(rows: Any, ats: Any, meta: Any = None) -> Forecast:
        metas.extend(meta)
        return predict_many(rows, ats, meta)

    monkeypatch.setattr(curves, "predict_many", noted)
    forecaster = Forecaster()
    forecaster.use(RuntimePredictor(), curves)
    known = jobs(2, kind=["mlp", ""], name=["run7", "run8"], max_iterations=90, accuracies=[[0.1, 0.2]] * 2)
    forecaster.forecast(snapshot(known), {"final"})
    assert metas == [{"type": "mlp", "name": "run7"}, {"name": "run8"}]


@pytest.mark.parametrize(
    ("iterations", "at", "points", "then"),
    [
        ([1, 2, 3], 90, 3, 90),
        ([10, 20, 30], 90, 3, 9),
        ([0, 1, 2], 90, 2, 90),
        ([5], 90, 1, 18),
        ([1, 2, 4, 8], 16, 4, 8),
        ([1, 2, 3, 1e12], 90, 4, 0),
        ([1e-300], 90, 1, 10**15),
        ([5e-324], 90, 1, 10**15),
    ],
)
def test_a_curve_is_made_even_with_as_many_points(iterations: list[float], at: float, points: int, then: int) -> None:
    values = np.linspace(0.1, 0.9, len(iterations))
    curve, place = resample_evenly(np.array(iterations, dtype=float), values, at)
    assert (len(curve), place) == (points, then)
    assert curve[-1] == values[-1]


# --- reports are claims -----------------------------------------------------------------------------------------------

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
LINES = st.lists(
    st.tuples(st.floats(0, MAX_ITERATION) | st.integers(0, 9), NUMBERS, NUMBERS, st.floats(1, NOW * 2)), max_size=8
)


def claimed(lines: list[tuple[float, float, float, float]], script: bytes) -> Snapshot:
    claims = [report(iteration=i, loss=loss, accuracy=accuracy, time=at) for i, loss, accuracy, at in lines]
    rows = [job_row(job_id, state="RUNNING", submit=NOW - 1e4, start=NOW - 1e4, node_list="n1") for job_id in (1, 2)]
    honest = [report(iteration=i, loss=1 / i, accuracy=1 - 1 / i, time=NOW - 1e4 + i) for i in range(1, 20)]
    cluster = reading(*rows, scripts={1: script, 2: script}, reports={1: b"".join(claims), 2: b"".join(honest)})
    return Intake().absorb(cluster, 1)[0]


@settings(max_examples=150, deadline=None)
@given(
    LINES,
    st.sampled_from([b"--max-iterations=90", b"--max-iterations=1", b"--target=loss<=0.1 --max-iterations=1000000"]),
)
def test_whatever_a_job_claims_the_others_are_forecast_and_ranked(lines: Any, directives: bytes) -> None:
    seen = claimed(lines, b"#PLUG --urgency=5 --stop=optstop " + directives + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = Forecaster().forecast(seen, NEEDS)
        plan = MLFS().decide(seen, result, {})
    alone = Forecaster().forecast(claimed([], b"#PLUG --urgency=5 --stop=optstop " + directives + b"\n"), NEEDS)
    assert result.final.table[1].tolist() == alone.final.table[1].tolist()
    assert result.remaining.table[1].tolist() == alone.remaining.table[1].tolist()
    assert np.isfinite(plan.score).all()


def test_the_first_iteration_counts_from_zero_or_not_at_all() -> None:
    curve = Curves(np.array([0.0]), np.array([0.5]), np.array([0, 1]))
    result = Desk().forecast(max_iterations=90, accuracies=[[0.5]])
    seen = jobs(1, max_iterations=90)
    object.__setattr__(seen, "accuracies", curve)
    assert result.final.known.all()
    assert not Forecaster().forecast(snapshot(seen, nodes(1)), NEEDS).final.known.any()

"""How long a job runs that states its iterations, where others of its kind show how fast it trains."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Bools, Floats
from predictors.forecast import Forecast, Forecasts, Need
from predictors.runtime import RuntimePredictor
from predictors.runtime.evidence import LEAST_SHARE
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import with_evidence
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.paces import UNLIKE
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose
from slurmplug.forecasting.stated_iterations import by_iterations
from tests.builders import CLUSTER, NOW, jobs, nodes, snapshot

HOUR = 3600.0
TIMES: frozenset[Need] = frozenset({"total", "remaining"})
LIMIT = 10 * HOUR
STATED = {"user": "ada", "kind": "net", "gpus": 4, "max_iterations": 1000.0, "time_limit": LIMIT}


def key(number: int) -> JobKey:
    return JobKey(CLUSTER, number, int(NOW))


def seen(*runs: tuple[str, float], gpus: int = 4) -> SeenSpeeds:
    """Jobs of the kind of these users, and the seconds an iteration that they took on so many GPUs of a node."""
    made = SeenSpeeds()
    for number, (user, step) in enumerate(runs):
        made.add(Whose("type net", user), PlacementShape(gpus, 1), key(100 + number), step)
    return made


def forecasts(known: SeenSpeeds, now: float = NOW, on: Any = (), **columns: Any) -> Forecasts:
    """Of one job, `STATED` but for the columns."""
    forecaster = Forecaster()
    forecaster.use(RuntimePredictor(), forecaster._curves, known)
    runs_on = np.array(on, dtype=np.int64).reshape(-1, 3)
    made = snapshot(jobs(1, keys=(key(1),), **{**STATED, **columns}), nodes(4), runs_on=runs_on, now=now)
    return forecaster.forecast(made, TIMES)


def total(known: SeenSpeeds, **columns: Any) -> Forecast:
    return forecasts(known, **columns).total


ALIKE = [("ada", 10.0)] * 10
"""ten runs at ten seconds an iteration: a thousand take less than three hours of the ten"""


def test_a_job_that_has_not_begun_goes_by_its_iterations_at_the_pace_of_its_kind() -> None:
    found = total(seen(*ALIKE))
    assert found.source.tolist() == ["iterations"]
    assert found.median[0] == pytest.approx(10_000.0, rel=0.1)
    low, high = found.quantile([0.05, 0.95])[0]
    assert low < 10_000.0 < high < LIMIT


def test_what_remains_of_it_is_that_less_the_time_that_it_has_run() -> None:
    found = forecasts(seen(*ALIKE), NOW + 600.0, state="running", started=NOW, on=[0, 0, 4]).remaining
    assert found.source.tolist() == ["iterations"]
    assert found.median[0] == pytest.approx(9_400.0, rel=0.1)


def test_twice_the_iterations_take_nearly_twice_as_long_and_more_gpus_less() -> None:
    known = seen(*[("ada", 10.0)] * 20)
    once, twice = (total(known, max_iterations=each).median[0] for each in (1000.0, 2000.0))
    assert 1.8 < twice / once <= 2.0
    assert total(known, gpus=8, gpus_max=8).median[0] < 0.8 * once


def test_one_run_tells_less_than_many() -> None:
    """Jobs of a kind may be of very different sizes, and half of the time limit is what else is known."""
    one, many = total(seen(("ada", 10.0))), total(seen(*ALIKE))
    widths = [np.log(np.divide(*each.quantile([0.95, 0.05])[0])) for each in (one, many)]
    assert widths[0] > 2 * widths[1]
    assert many.median[0] < one.median[0] < LIMIT / 2


@pytest.mark.parametrize(
    ("runs", "columns"),
    [
        ([], {}),
        (ALIKE, {"kind": "other"}),
        (ALIKE, {"max_iterations": np.nan}),
        (ALIKE, {"trials": "fold"}),
        ([("eve", 0.01)] * 99, {}),
        ([("eve", 0.01)] * 99 + [("bob", 0.01)], {}),
    ],
    ids=["none was seen", "another kind", "none stated", "several trials", "one other user", "two other users"],
)
def test_without_a_pace_or_iterations_it_is_forecast_as_before(runs: Sequence[Any], columns: dict[str, Any]) -> None:
    found = total(seen(*runs), **columns)
    assert found.source.tolist() == ["time limit"]
    assert found.median[0] == LIMIT / 2


def test_of_other_users_the_median_counts_where_they_are_enough_and_no_one_moves_it() -> None:
    honest = [("bob", 9.0), ("kim", 10.0), ("lee", 11.0)]
    told = total(seen(*honest)).median[0]
    assert told < 0.8 * LIMIT / 2
    for false in (0.01, 10_000.0):
        moved = total(seen(*honest, *[("eve", false)] * 50)).median[0]
        assert 0.8 < moved / told < 1.25
    assert total(seen(*ALIKE, *[("eve", 0.01)] * 50, ("bob", 0.01), ("kim", 0.01))).median[0] > 9_000.0


def test_what_the_job_itself_reports_takes_no_part() -> None:
    """It is held against this forecast: else what it claims would prove itself."""
    claims: dict[str, Any] = {"state": "running", "started": NOW, "iteration": 500, "iteration_time": 0.1}
    ran = {"attained": 4 * 60.0, "on": [0, 0, 4]}
    alone = forecasts(seen(), NOW + 60.0, **claims, **ran).remaining.median[0]
    assert alone > LIMIT / 4  # a minute of the half hour that its reports take to count in full
    beside = [forecasts(seen(*ALIKE), NOW + 60.0, **claims | {"iteration_time": step}, **ran) for step in (0.1, 1.0)]
    assert beside[0].remaining.median[0] == pytest.approx(beside[1].remaining.median[0])
    assert beside[0].remaining.median[0] > 0.8 * 10_000.0


@pytest.mark.parametrize("stated", [1.0, 1e-6])
def test_iterations_that_are_understated_gain_no_more_than_short_runs_of_its_name(stated: float) -> None:
    found = total(seen(*ALIKE), max_iterations=stated)
    assert found.median[0] == pytest.approx(LEAST_SHARE * LIMIT)


def test_one_that_runs_for_longer_than_it_stated_is_forecast_by_its_limit() -> None:
    ran = 0.3 * LIMIT
    columns: dict[str, Any] = {"state": "running", "started": NOW, "attained": 4 * ran, "on": [0, 0, 4]}
    found = forecasts(seen(*ALIKE), NOW + ran, max_iterations=1.0, **columns).remaining
    assert found.source.tolist() == ["outlived"]
    assert found.median[0] == pytest.approx((LIMIT - ran) / 2)


def test_no_forecast_exceeds_the_time_limit() -> None:
    found = total(seen(*ALIKE), max_iterations=1e9)
    assert found.quantile(1.0)[0] == LIMIT
    assert found.median[0] == pytest.approx(LIMIT)


def of_kinds(seed: int, spreads: Sequence[float]) -> tuple[Snapshot, SeenSpeeds, Floats]:
    """Jobs of kinds whose paces differ so much within a kind (standard deviation of the logarithm), each kind by one of
    `spreads`, after few or many of the user's own; and what each takes in truth."""
    random = np.random.default_rng(seed)
    known, n = SeenSpeeds(), 60
    kinds = [f"kind{number}" for number in range(n)]
    pace, alike = np.exp(random.normal(2.0, 1.5, n)), random.choice(spreads, n)
    for number, kind in enumerate(kinds):
        for run in range(1 + number % 12):
            step = float(pace[number] * np.exp(alike[number] * random.standard_normal()))
            known.add(Whose(f"type {kind}", "ada"), PlacementShape(2, 1), key(1000 * number + run), step)
    iterations = np.exp(random.uniform(3.0, 8.0, n))
    whole = iterations * pace * np.exp(alike * random.standard_normal(n))
    limits = whole * np.exp(random.uniform(0.2, 2.5, n))
    columns: dict[str, Any] = {"kind": kinds, "gpus": 2, "gpus_max": 2, "max_iterations": iterations}
    waiting = jobs(n, keys=[key(number) for number in range(n)], user="ada", time_limit=limits, **columns)
    return snapshot(waiting, nodes(4)), known, whole


def inside(forecast: Forecast, whole: Floats) -> Bools:
    low, high = forecast.quantile([0.05, 0.95]).T
    return np.asarray((whole >= low) & (whole <= high))


@pytest.mark.parametrize("spreads", [(0.05,), (0.3,), (UNLIKE,), (0.05, 0.3, UNLIKE, 1.2)])
def test_nine_of_ten_jobs_end_within_their_interval_and_the_error_is_less_than_by_limits(
    spreads: Sequence[float],
) -> None:
    within, errors, widths = [], [], []
    for seed in range(10):
        made, known, whole = of_kinds(seed, spreads)
        paces = KindPaces(known)
        paces.begin(made)
        asked = [{"user": "ada", "time_limit": float(limit), "gpus": 2.0} for limit in made.jobs.time_limit]
        by_limit, least = with_evidence(RuntimePredictor(), asked)
        found = by_iterations(made, by_limit, least, paces)
        within.append(inside(found, whole))
        errors.append([np.median(np.abs(np.log(each.median / whole))) for each in (found, by_limit)])
        widths.append([np.median(np.log(np.divide(*each.quantile([0.95, 0.05]).T))) for each in (found, by_limit)])
    assert np.concatenate(within).mean() >= 0.85
    by_iteration, by_time = np.mean(errors, axis=0)
    assert by_iteration < by_time
    narrow, wide = np.mean(widths, axis=0)
    assert narrow < 0.5 * wide

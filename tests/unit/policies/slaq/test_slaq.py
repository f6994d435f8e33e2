"""SLAQ: who gets GPUs, by what the loss will do."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike

from policies.marginal_gain.training_forecast import TrainingForecast
from policies.plan import NOTHING_REMEMBERED, Plan
from policies.slaq.slaq import SLAQ, SLAQMaxMin, SLAQSettings
from policies.snapshot import JobKey, Jobs
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot


def fan(rows: Any, x: ArrayLike) -> Fan:
    """A fan of certain values: `rows` (n, k) at `x` (k,); NaN rows are unknown."""
    values = np.asarray(rows, dtype=float)
    known = np.flatnonzero(~np.isnan(values[:, 0]))
    columns = [Forecast.certain(values[known, k], "test") for k in range(values.shape[1])]
    return Fan.of(len(values), known, np.tile(np.asarray(x, dtype=float), (len(known), 1)), columns)


def predicted(losses: Sequence[Any], speed: ArrayLike | None = None) -> Forecasts:
    """Losses at iterations 0, 10, 20, .. and iterations a second on 1, 2, 4 GPUs; one a second a GPU unless said."""
    n = len(losses)
    nothing = forecasts(n)
    grid = 10.0 * np.arange(len(losses[0]))
    rate = np.tile([1.0, 2.0, 4.0, 64.0], (n, 1)) if speed is None else speed
    return Forecasts(
        nothing.total, nothing.remaining, nothing.final, nothing.accuracy, fan(losses, grid), fan(rate, [1, 2, 4, 64])
    )


def running(n: int, gpus: int, **columns: Any) -> tuple[Jobs, np.ndarray]:
    """Running jobs with a checkpoint, job i holding gpus[i] of node i."""
    held = np.broadcast_to(gpus, (n,))
    on = np.stack([np.arange(n), np.arange(n), held], axis=1)
    of_jobs = jobs(
        n, state="running", started=NOW - 600, restartable=True, gpus=held, max_iterations=1000, reported=NOW, **columns
    )
    return of_jobs, on


def shares(plan: Plan, keys: tuple[JobKey, ...]) -> list[Any]:
    given = {action.job: sum(action.shares) or action.gpus for action in plan.actions if action.kind in ("place", "resize")}  # fmt: skip  # noqa: E501
    return [given.get(key) for key in keys]


STEEP = [1.0, 0.2, 0.1, 0.05, 0.0]
FLAT = [1.0, 0.98, 0.96, 0.94, 0.92]


def test_gpus_go_where_the_loss_falls_most_and_every_job_has_its_minimum() -> None:
    of_jobs = jobs(2, gpus_min=1, gpus_max=8, max_iterations=1000, restartable=True)
    losses = predicted([[4.0, 2.0, 1.0, 0.5, 0.2], [4.0, 3.99, 3.98, 3.97, 3.96]])
    policy = SLAQ(SLAQSettings(interval=3.0, speed="forecast", weigh=False))
    # by range both fall from 1 to 0, the first faster at first; by the largest change likewise
    plan = policy.decide(snapshot(of_jobs, nodes(2)), losses, NOTHING_REMEMBERED)
    first, second = shares(plan, of_jobs.keys)
    assert first + second == 8
    assert first > second >= 1


@pytest.mark.parametrize("unknown", ["loss", "speed"])
def test_a_job_whose_forecast_has_a_gap_takes_no_gpu_from_the_others(unknown: str) -> None:
    of_jobs = jobs(3, gpus_max=4, max_iterations=1000, restartable=True)
    rates = np.tile([1.0, 2.0, 4.0, 64.0], (3, 1))
    losses = np.array([STEEP, STEEP, STEEP])
    (losses if unknown == "loss" else rates)[0, 2] = np.nan
    policy = SLAQ(SLAQSettings(interval=5.0, speed="forecast"))
    plan = policy.decide(snapshot(of_jobs, nodes(2)), predicted(list(losses), rates), NOTHING_REMEMBERED)
    given = shares(plan, of_jobs.keys)
    assert sum(given) == 8
    assert min(given[1:]) >= 2


@pytest.mark.parametrize("normal", ["change", "range"])
def test_falls_are_counted_in_units_of_the_job_itself(normal: Literal["change", "range"]) -> None:
    of_jobs = jobs(2, gpus_max=8, max_iterations=1000)
    a, b = np.array(STEEP), 1000 * np.array(STEEP)
    plan = SLAQ(SLAQSettings(interval=5.0, normal=normal, speed="forecast")).decide(
        snapshot(of_jobs, nodes(2)), predicted([a, b]), NOTHING_REMEMBERED
    )
    assert shares(plan, of_jobs.keys) == [4, 4]


def test_an_urgent_job_counts_more() -> None:
    of_jobs = jobs(2, gpus_max=8, max_iterations=1000, urgency=[1, 10])
    plan = SLAQ(SLAQSettings(interval=5.0, speed="forecast")).decide(
        snapshot(of_jobs, nodes(2)), predicted([STEEP, STEEP]), NOTHING_REMEMBERED
    )
    less, more = shares(plan, of_jobs.keys)
    assert more > less


def test_max_min_gives_to_the_highest_loss_not_to_the_fastest_fall() -> None:
    of_jobs, on = running(2, 4, gpus_min=1, gpus_max=7, iteration=[0, 20], losses=[[], []])
    ahead = predicted([[1.0, 0.99, 0.98, 0.97, 0.0], [1.0, 1.0, 0.4, 0.1, 0.0]])
    site = snapshot(of_jobs, nodes(2), runs_on=on)
    config = SLAQSettings(interval=3.0, speed="forecast")
    total = shares(SLAQ(config).decide(site, ahead, NOTHING_REMEMBERED), of_jobs.keys)
    fair = shares(SLAQMaxMin(config).decide(site, ahead, NOTHING_REMEMBERED), of_jobs.keys)
    assert total == [1, 7]
    assert fair == [7, 1]


def test_where_not_all_minima_fit_the_greatest_reduction_a_gpu_goes_first() -> None:
    of_jobs = jobs(3, gpus=4, max_iterations=1000)
    ahead = predicted([[1.0, 0.9, 0.8, 0.7, 0.6], [1.0, 0.5, 0.3, 0.2, 0.1], [1.0, 0.9, 0.85, 0.8, 0.7]])
    policy = SLAQ(SLAQSettings(interval=1.0, speed="forecast"))
    plan = policy.decide(snapshot(of_jobs, nodes(1)), ahead, NOTHING_REMEMBERED)
    assert [action.job for action in plan.actions] == [of_jobs.keys[1]]
    assert np.argmax(plan.score) == 1


def test_a_job_that_starves_goes_first_and_a_running_one_makes_room() -> None:
    of_jobs = jobs(
        2,
        state=["running", "pending"],
        gpus=4,
        max_iterations=1000,
        restartable=True,
        submitted=NOW - 10_000,
        started=[NOW - 600, np.nan],
        urgency=[10, 1],
    )
    site = snapshot(of_jobs, nodes(1), runs_on=np.array([[0, 0, 4]]))
    ahead = predicted([STEEP, FLAT])
    kept = SLAQ(SLAQSettings(interval=10.0, starvation=20_000)).decide(site, ahead, NOTHING_REMEMBERED)
    assert kept.actions == ()
    plan = SLAQ(SLAQSettings(interval=10.0, starvation=9_000)).decide(site, ahead, NOTHING_REMEMBERED)
    assert [(action.kind, action.job) for action in plan.actions] == [
        ("preempt", of_jobs.keys[0]),
        ("place", of_jobs.keys[1]),
    ]


def test_starvation_counts_from_when_it_last_held_gpus() -> None:
    of_jobs, on = running(1, 4, gpus_min=4)
    policy = SLAQ(SLAQSettings(starvation=100))
    before = policy.decide(snapshot(of_jobs, nodes(1), runs_on=on), predicted([STEEP]), NOTHING_REMEMBERED)
    assert before.memory["served"].tolist() == [NOW]
    two = jobs(2, gpus=4, max_iterations=1000, iteration=[30, 0], submitted=NOW - 10_000, restartable=True)
    after = policy.decide(snapshot(two, nodes(1), now=NOW + 50), predicted([STEEP, FLAT]), before.memory)
    assert [action.job for action in after.actions] == [two.keys[1]]


def test_what_cannot_be_moved_keeps_its_gpus_and_other_jobs_have_their_share() -> None:
    of_jobs = jobs(
        3,
        state=["running", "pending", "pending"],
        gpus=[4, 2, 1],
        gpus_max=[4, 2, 8],
        max_iterations=[np.nan, np.nan, 1000],
        started=[NOW - 60, np.nan, np.nan],
    )
    ahead = predicted([[np.nan] * 5, [np.nan] * 5, STEEP])
    site = snapshot(of_jobs, nodes(2), runs_on=np.array([[0, 0, 4]]))
    plan = SLAQ().decide(site, ahead, NOTHING_REMEMBERED)
    assert shares(plan, of_jobs.keys) == [None, 2, 2]


def test_a_resize_is_made_only_where_it_gains_more_than_the_restart_costs() -> None:
    of_jobs, on = running(2, 4, gpus_min=1, gpus_max=8, iteration=[0, 20])
    ahead = predicted([[1.0, 0.6, 0.4, 0.3, 0.2], [1.0, 0.8, 0.6, 0.55, 0.5]])
    site = snapshot(of_jobs, nodes(2), runs_on=on)
    free = SLAQ(SLAQSettings(interval=3.0, speed="forecast")).decide(site, ahead, NOTHING_REMEMBERED)
    assert len(free.actions) == 2
    dear = SLAQ(SLAQSettings(interval=3.0, speed="forecast", restart=2.5)).decide(site, ahead, NOTHING_REMEMBERED)
    assert dear.actions == ()


def test_shares_stand_for_an_epoch_and_free_gpus_go_to_new_jobs() -> None:
    of_jobs, on = running(1, 4, gpus_min=1, gpus_max=8)
    policy = SLAQ(SLAQSettings(epoch=600.0))
    first = policy.decide(snapshot(of_jobs, nodes(1), runs_on=on), predicted([STEEP]), NOTHING_REMEMBERED)
    both = jobs(
        2,
        state=["running", "pending"],
        gpus=[4, 2],
        gpus_min=1,
        gpus_max=8,
        restartable=True,
        max_iterations=1000,
        started=[NOW - 600, np.nan],
    )
    ahead = predicted([STEEP, STEEP])
    between = policy.decide(snapshot(both, nodes(2), now=NOW + 60, runs_on=on), ahead, first.memory)
    assert [(action.kind, action.job) for action in between.actions] == [("place", both.keys[1])]
    later = policy.decide(snapshot(both, nodes(1), now=NOW + 600, runs_on=on), ahead, between.memory)
    assert {action.kind for action in later.actions} == {"resize", "place"}


def test_without_any_forecast_gpus_are_shared_alike() -> None:
    of_jobs = jobs(4, gpus_min=1, gpus_max=16, max_iterations=100)
    plan = SLAQ().decide(snapshot(of_jobs, nodes(2)), Forecasts.unknown(4), NOTHING_REMEMBERED)
    assert shares(plan, of_jobs.keys) == [2, 2, 2, 2]


def test_without_a_speed_an_iteration_takes_c_s_over_n() -> None:
    of_jobs, on = running(1, 4, iteration=50, iteration_time=2.0)
    site = snapshot(of_jobs, nodes(1), runs_on=on)
    outlook = TrainingForecast.of(site, Forecasts.unknown(1), np.array([0]), np.array([4]), 60.0)
    rates = outlook.rate(np.array([0]), np.array([[1.0, 4.0, 8.0]]))
    assert rates[0].tolist() == pytest.approx([0.125, 0.5, 1.0])


def test_the_largest_fall_is_the_one_reported_or_the_one_ahead() -> None:
    of_jobs, on = running(1, 4, iteration=5, losses=[[10.0, 6.0, 5.0, 4.5, 4.2]])
    site = snapshot(of_jobs, nodes(1), runs_on=on)
    outlook = TrainingForecast.of(site, predicted([[11.0, 1.0]]), np.array([0]), np.array([4]), 60.0)
    assert outlook.largest.tolist() == pytest.approx([4.0])
    assert outlook.first.tolist() == pytest.approx([11.0])


def test_an_empty_site_is_left_alone() -> None:
    plan = SLAQ().decide(snapshot(jobs(0), nodes(0)), Forecasts.unknown(0), NOTHING_REMEMBERED)
    assert plan.actions == ()
    assert all(isinstance(array, np.ndarray) for array in plan.memory.values())


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="objective"):
        SLAQSettings(objective="fair")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        SLAQSettings(starvation=0)

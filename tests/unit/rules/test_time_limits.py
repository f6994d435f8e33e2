"""A size at which a job would not end within its time limit is vetoed, where its run time is known."""

from dataclasses import replace

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.rules.guardrails import Past, check
from tests.builders import jobs, nodes, snapshot

HOUR = 3600.0


def seen(limit: float = HOUR, **given: float) -> Snapshot:
    columns = {
        **given,
        "state": "running",
        "gpus": 2,
        "gpus_min": 1,
        "gpus_max": 8,
        "restartable": True,
        "time_limit": limit,
    }
    return snapshot(jobs(1, attained=1e9, started=0.0, **columns), nodes(1))


def forecasts(remaining: float = 0.8 * HOUR, source: str = "progress") -> Forecasts:
    """So many seconds on two GPUs; the speed is proportional to the GPUs."""
    speeds = [Forecast.certain(float(gpus), "measured speed") for gpus in (1, 2, 4, 8)]
    fan = Fan.of(1, [0], np.array([[1.0, 2.0, 4.0, 8.0]]), speeds)
    return replace(Forecasts.unknown(1), remaining=Forecast.certain(remaining, source), speed=fan)


def vetoes(gpus: int, known: Forecasts | None, limit: float = HOUR, **given: float) -> list[Reason]:
    at = seen(limit, **given)
    action = Action("resize", at.jobs.keys[0], Reason("share"), gpus=gpus)
    limits = Guardrails(first_seen=0, minimum_run=0, requeue_cooldown=0, requeue_cost=0)
    verdict = check(
        at, Plan(np.zeros(1), actions=(action,)), Past(at.now), Modes(default="act"), limits, forecasts=known
    )
    return [reason for _, reason in verdict.vetoes]


def test_a_smaller_size_that_takes_longer_than_the_limit_is_vetoed_with_its_figures() -> None:
    [reason] = vetoes(1, forecasts())
    assert (reason.rule, reason.facts["gpus"], reason.facts["limit"]) == ("time limit", 1.0, 1.0)
    assert reason.facts["needs"] == pytest.approx(1.6)


def test_sizes_at_which_it_ends_in_time_are_allowed() -> None:
    assert vetoes(4, forecasts()) == []
    assert vetoes(1, forecasts(0.4 * HOUR)) == []


def test_the_quantile_counts_that_nine_of_ten_jobs_stay_below() -> None:
    spread = replace(forecasts(), remaining=Forecast.lognormal(0.4 * HOUR, 0.5, "progress"))
    assert [reason.rule for reason in vetoes(1, spread)] == ["time limit"]


def test_a_job_that_has_just_begun_is_not_held_to_a_forecast_that_its_own_pace_is_below() -> None:
    own = {"iteration": 5.0, "iteration_time": 1.0, "max_iterations": 105.0}
    assert vetoes(1, forecasts(0.9 * HOUR), **own) == []
    assert [reason.rule for reason in vetoes(1, forecasts(0.9 * HOUR), **{**own, "max_iterations": 5005.0})] == [
        "time limit"
    ]


def test_what_is_not_known_vetoes_nothing() -> None:
    assert vetoes(1, None) == []
    assert vetoes(1, Forecasts.unknown(1)) == []
    assert vetoes(1, forecasts(), limit=np.nan) == []
    assert vetoes(1, forecasts(source="time limit")) == []
    assert vetoes(1, replace(forecasts(), speed=Fan.unknown(1))) == []

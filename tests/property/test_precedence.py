"""What must hold of who is ranked first for every queue: it is bounded, pure, and lets nobody wait for ever."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.baselines.sjf import SJF
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecast, Forecasts
from slurmplug.config.schema import Guardrails
from slurmplug.rules.precedence import put_first, remembered, waits
from tests.builders import NOW, jobs, nodes, snapshot
from tests.sim_jobs import job, run, speed


@st.composite
def cycles(draw: st.DrawFn) -> tuple[list[Snapshot], Forecasts]:
    """A queue at some times: which jobs run is drawn anew each time, how long they waited only grows."""
    n = draw(st.integers(1, 6))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=n, max_size=n))

    gpus, managed = column(st.integers(0, 4)), column(st.booleans())
    qos, waited = column(st.sampled_from(["a", "b"])), np.array(column(st.integers(0, 500)), dtype=float)
    now, seen = NOW, []
    for seconds in draw(st.lists(st.integers(0, 200), min_size=1, max_size=5)):
        now += seconds
        running = np.array(column(st.booleans()))
        waited = waited + np.where(running, 0.0, seconds)
        holds = np.array([(row, row % 2, gpus[row]) for row in np.flatnonzero(running)]).reshape(-1, 3)
        columns = {"gpus": gpus, "managed": managed, "qos": qos, "waited": waited}
        states = {"state": np.where(running, "running", "pending"), "started": np.where(running, now - 50.0, np.nan)}
        seen.append(snapshot(jobs(n, **columns, **states), nodes(2), now=now, runs_on=holds.astype(np.int64)))
    run_times = Forecast.certain(np.array(column(st.floats(0, 1e4)), dtype=float), "drawn")
    return seen, replace(Forecasts.unknown(n), remaining=run_times)


@given(cycles(), st.floats(1.0, 5.0))
def test_a_wait_is_of_earlier_jobs_or_of_later_ones_and_the_order_of_all_others_stays(
    drawn: tuple[list[Snapshot], Forecasts], bound: float
) -> None:
    seen, told = drawn
    memory: Memory = NOTHING_REMEMBERED
    for each in seen:
        found = waits(each, told, memory)
        again = waits(each, told, memory)
        assert np.array_equal(found.had, again.had)
        assert np.array_equal(found.without, again.without, equal_nan=True)
        assert (found.had >= -1e-9).all()
        assert (found.had <= each.jobs.waited + 1e-9).all()
        assert (np.nan_to_num(found.without) >= 0).all()
        score = np.where(each.jobs.managed, np.arange(len(each.jobs), dtype=float), np.nan)
        plan = put_first(each, Plan(score.copy()), Guardrails(max_bypass=bound), told, found)
        moved = np.array([key in plan.notes for key in each.jobs.keys])
        assert not (moved & ~(each.jobs.pending & each.jobs.managed)).any()
        assert np.array_equal(plan.score[~moved], score[~moved], equal_nan=True)
        if moved.any() and (~moved & each.jobs.managed).any():
            assert plan.score[moved].min() > np.nanmax(np.where(moved, np.nan, score))
        memory = remembered(each, found)


@given(cycles())
def test_who_came_last_is_never_passed(drawn: tuple[list[Snapshot], Forecasts]) -> None:
    seen, told = drawn
    for each in seen:
        alike = replace(each.jobs, waited=np.full(len(each.jobs), 100.0))
        same = replace(each, jobs=replace(alike, started=np.where(alike.running, each.now, np.nan)))
        plan = put_first(same, Plan(np.zeros(len(alike))), Guardrails(max_bypass=1.0), told, waits(same, told, {}))
        assert plan.notes == {}


@settings(max_examples=10)
@given(st.lists(st.integers(60, 140), min_size=30, max_size=30), st.sampled_from([1.5, 2.0, 3.0]))
def test_nobody_starves_behind_a_stream_of_shorter_jobs(seconds: list[int], bound: float) -> None:
    """Without those that came later it would wait for one; without the bound for nearly all, up to half an hour."""
    stream = [
        job(submit=30.0 * number, gpus=4, speed=speed((4, 1, 1.0)), iterations=each, time_limit=200.0)
        for number, each in enumerate(seconds)
    ]
    wide = job(submit=10.0, gpus=8, speed=speed((8, 2, 1.0)), iterations=200, time_limit=400.0)
    chosen: dict[str, Any] = {"launcher": "slurm", "policy": SJF(), "interval": 5.0}
    jobs_run = run(wide, *stream, guardrails=Guardrails(max_bypass=bound), **chosen).finished
    passed = next(each for each in jobs_run if each.job.gpus == 8)
    without, until_there_is_room = 200.0 + 140.0, 200.0
    assert passed.ended - passed.submitted <= bound * without + until_there_is_room

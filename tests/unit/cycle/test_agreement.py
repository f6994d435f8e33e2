"""How far two decisions agree, whose order ends jobs sooner, and whether jobs take longer than before."""

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug.cycle import outcomes
from slurmplug.cycle.agreement import Decision, agreement, mean_time_to_end
from slurmplug.cycle.outcomes import Outcomes, expected_seconds
from tests import builders
from tests.builders import forecasts, jobs, nodes

NOTHING = frozenset[tuple[str, JobKey, int | None]]()
FULL = nodes(1, capacity=[4.0, 32.0, 1.0], used=[4.0, 0.0, 0.0])


def queue(*seconds: float) -> tuple[Snapshot, Forecasts]:
    """Jobs of four GPUs that wait on a node with as many, where another one runs for 50 s more."""
    n = len(seconds)
    waiting = jobs(n + 1, state=["pending"] * n + ["running"], reason="Resources", gpus=4)
    return builders.snapshot(waiting, FULL), forecasts(n + 1, total=[*seconds, 80.0], remaining=[*seconds, 50.0])


def by(*score: float) -> Decision:
    return Decision(np.array([*score, np.nan]), NOTHING)


def test_the_same_decision_agrees_entirely_and_gains_nothing() -> None:
    same = agreement(*queue(900.0, 100.0, 300.0), by(3.0, 2.0, 1.0), by(30.0, 20.0, 10.0))
    assert (same.ranks, same.gain) == pytest.approx((1.0, 0.0))
    assert np.isnan(same.changes)


def test_the_short_one_first_is_forecast_to_end_jobs_sooner() -> None:
    of_both = agreement(*queue(900.0, 100.0), by(2.0, 1.0), by(1.0, 2.0))
    long_first, short_first = (950.0 + 1050.0) / 2, (150.0 + 1050.0) / 2
    assert of_both.ranks == pytest.approx(-1.0)
    assert of_both.gain == pytest.approx(1.0 - short_first / long_first)


def test_of_changes_kind_job_and_gpus_are_compared_and_nodes_are_not() -> None:
    one, two, three = (JobKey("c", number, 1) for number in (1, 2, 3))
    why = Reason("test")
    ours = Plan(actions=(Action("place", one, why, 2, ("n1",)), Action("stop", two, why)))
    theirs = Plan(actions=(Action("place", one, why, 2, ("n2",)), Action("stop", three, why)))
    first, second = (Decision(np.array([np.nan]), Decision.of(plan).changes) for plan in (ours, theirs))
    assert agreement(*queue(), first, second).changes == pytest.approx(1 / 3)


def test_with_nothing_that_waits_there_is_nothing_to_compare() -> None:
    empty = agreement(*queue(), by(), by())
    assert np.isnan([empty.ranks, empty.changes, empty.gain]).all()


def test_jobs_that_never_fit_or_of_which_nothing_is_known_are_left_out() -> None:
    seen, known = queue(100.0, np.nan)
    seen.jobs.gpus[0] = 8
    assert np.isnan(mean_time_to_end(seen, known, [0, 1]))


def test_small_jobs_run_side_by_side() -> None:
    seen, known = queue(100.0, 100.0)
    seen.jobs.gpus[:2] = 2
    assert mean_time_to_end(seen, known, [0, 1]) == pytest.approx(150.0)


def test_a_time_to_the_end_is_forecast_from_the_run_time_and_all_other_work() -> None:
    seen, known = queue(100.0, 300.0)
    assert expected_seconds(seen, known)[:2].tolist() == pytest.approx([450.0, 450.0])
    assert np.isnan(expected_seconds(seen, known)[2]), "it runs"


def test_of_jobs_that_wait_for_something_else_no_time_is_forecast() -> None:
    seen, known = queue(100.0, 300.0, 100.0)
    for row, (column, value) in enumerate([("held", True), ("managed", False), ("elements", 7)]):
        getattr(seen.jobs, column)[row] = value
    assert np.isnan(expected_seconds(seen, known)).all()


def taking(times: float, ended: int = 40, open_ones: int = 0, seed: int = 0) -> Outcomes:
    took = times * np.exp(np.random.default_rng(seed).normal(0.0, 0.3, ended + open_ones))
    return Outcomes(took, np.arange(ended + open_ones) < ended)


def test_jobs_that_take_twice_as_long_are_found_and_those_that_take_as_long_or_less_are_not() -> None:
    before = taking(1.0)
    found = outcomes.worse(taking(2.0, seed=1), before)
    assert found is not None
    assert found["took"] / found["took_before"] == pytest.approx(2.0, rel=0.2)
    assert outcomes.worse(taking(1.0, seed=1), before) is None
    assert outcomes.worse(taking(0.5, seed=1), before) is None


def test_jobs_that_do_not_end_at_all_count_too() -> None:
    few = taking(1.0, ended=20, seed=1)
    starving = Outcomes(np.append(few.took, np.full(20, 5.0)), np.append(few.ended, np.zeros(20, dtype=bool)))
    assert outcomes.worse(few, taking(1.0)) is None
    assert outcomes.worse(starving, taking(1.0)) is not None


def test_a_few_jobs_prove_nothing() -> None:
    assert outcomes.worse(taking(9.0, ended=19), taking(1.0)) is None
    assert outcomes.worse(taking(9.0), taking(1.0, ended=19)) is None

"""ML-SJF: shortest predicted job first, its rivals, and the mix term."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from policies.ml_sjf import MLSJF, MLSJFSettings
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.snapshot import Jobs, Nodes
from tests.builders import forecasts, jobs, nodes, snapshot


def started(plan: Plan) -> list[int]:
    return [action.job.job_id for action in plan.actions if action.kind == "place"]


def decide(
    of_jobs: Jobs,
    seconds: ArrayLike,
    memory: Memory = NOTHING_REMEMBERED,
    seed: int = 0,
    machines: Nodes | None = None,
    **config: Any,
) -> Plan:
    site = snapshot(of_jobs, machines or nodes(1, capacity=[2.0, 64.0, 1e6]), seed=seed)
    return MLSJF(MLSJFSettings(**config)).decide(site, forecasts(len(of_jobs), total=seconds), memory)


def test_the_shortest_forecast_starts_first_and_an_unknown_one_last() -> None:
    plan = decide(jobs(4), [300.0, np.nan, 100.0, 200.0])
    assert started(plan) == [3, 4]
    assert np.argsort(-plan.score).tolist() == [2, 3, 0, 1]


def test_what_runs_goes_on() -> None:
    of_jobs = jobs(2, gpus=2, state=["running", "pending"], restartable=True)
    site = snapshot(of_jobs, nodes(1, capacity=[2.0, 64.0, 1e6]), runs_on=np.array([[0, 0, 2]]))
    plan = MLSJF().decide(site, forecasts(2, total=[900.0, 1.0]), NOTHING_REMEMBERED)
    assert plan.actions == ()


def test_a_random_guess_is_the_jobs_own_and_the_seeds() -> None:
    of_jobs = jobs(8)
    one, again = (decide(of_jobs, 1.0, estimate="random").score.tolist() for _ in range(2))
    other = decide(of_jobs, 1.0, estimate="random", seed=1).score.tolist()
    assert one == again
    assert one != other


def test_the_mean_of_the_type_counts_jobs_that_are_gone() -> None:
    first = decide(jobs(2, kind=["a", "b"]), [100.0, 400.0], estimate="type")
    assert first.terms["estimate"].tolist() == pytest.approx([100.0, 400.0])
    new = jobs(2, kind=["a", "b"], keys=tuple(key._replace(job_id=key.job_id + 7) for key in jobs(2).keys))
    second = decide(new, [300.0, np.nan], memory=first.memory, estimate="type")
    assert second.terms["estimate"].tolist() == pytest.approx([200.0, 400.0])
    third = decide(new, [300.0, np.nan], memory=second.memory, estimate="type")
    assert third.terms["estimate"].tolist() == pytest.approx([200.0, 400.0])


def test_the_mix_term_keeps_equal_heavy_jobs_apart() -> None:
    kinds = ["light"] * 4 + ["heavy"] * 4 + ["other"] * 4
    seconds = np.array([1.0] * 4 + [100.0] * 4 + [101.0] * 4)
    together = np.argsort(-decide(jobs(12, kind=kinds), seconds).score)
    apart = np.argsort(-decide(jobs(12, kind=kinds), seconds, mix=1.0).score)
    assert [kinds[row] for row in together] == kinds
    assert [kinds[row] for row in apart[:4]] == ["light"] * 4
    assert all(kinds[one] != kinds[next_one] for one, next_one in pairwise(apart[4:]))


def test_every_job_keeps_its_place_in_its_type_and_none_is_lost_by_mixing() -> None:
    random = np.random.default_rng(0)
    kinds = random.choice(["a", "b", "c"], 50)
    seconds = random.lognormal(3, 1, 50)
    order = np.argsort(-decide(jobs(50, kind=kinds), seconds, mix=2.0).score)
    assert sorted(order.tolist()) == list(range(50))
    for kind in "abc":
        of_kind = order[kinds[order] == kind]
        assert np.all(np.diff(seconds[of_kind]) >= 0)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="estimate"):
        MLSJFSettings(estimate="oracle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mix"):
        MLSJFSettings(mix=-1)

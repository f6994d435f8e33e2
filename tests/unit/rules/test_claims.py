"""What jobs claim, bounded before a policy sees it."""

from typing import Any

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFH
from slurmplug.config.schema import Guardrails
from slurmplug.reports import explain
from slurmplug.rules.claims import limit_claims
from tests.builders import forecasts, jobs, snapshot

STEADY = [1.0, 0.9, 0.85]
MIRACLE = [1e9, 1e6, 1e3, 1.0]


def test_urgency_counts_for_at_most_what_the_account_is_granted() -> None:
    limits = Guardrails(urgency=8, urgency_of={"guests": 2})
    given = snapshot(jobs(4, urgency=[9, 9, 1, np.nan], account=["lab", "guests", "guests", "guests"]))
    believed, notes = limit_claims(given, limits)
    np.testing.assert_array_equal(believed.jobs.urgency, [8, 2, 1.25, np.nan])  # the mean of 8, 2, 1 and 5 is 4
    assert {key.job_id: reason.rule for key, reason in notes.items()} == {1: "urgency-granted", 2: "urgency-granted"}


def urgencies(**columns: Any) -> list[float]:
    believed, _ = limit_claims(snapshot(jobs(len(columns["urgency"]), **columns)), Guardrails())
    urgency: list[float] = believed.jobs.urgency.tolist()
    return urgency


def test_urgency_counts_beside_the_users_other_jobs() -> None:
    assert urgencies(urgency=[10, 10, 10, 3], user=["ada", "ada", "bob", "eve"]) == [5, 5, 5, 5]
    assert urgencies(urgency=[9, 1]) == [9, 1]
    assert urgencies(urgency=[8, 2, 2]) == [10, 2.5, 2.5]
    assert urgencies(urgency=[0, 0]) == [0, 0]


def test_a_users_small_jobs_lower_the_mean_by_what_they_request() -> None:
    assert urgencies(urgency=[10, 0], gpus=[9, 1]) == pytest.approx([10 / 1.8, 0])


def test_where_nothing_is_claimed_in_vain_the_snapshot_stays_as_it_is() -> None:
    given = snapshot(jobs(2, losses=[STEADY, []], iteration=[3, 0], attained=[300, 0], iteration_time=[100, np.nan]))
    assert limit_claims(given, Guardrails()) == (given, {})


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        ({"iteration": 1e9, "losses": [STEADY], "iteration_time": 1e-7}, "iterations-too-fast"),
        ({"iteration": 4, "losses": [MIRACLE], "iteration_time": 0.01}, "loss-too-steep"),
    ],
)
def test_reports_that_cannot_be_true_are_told_and_gain_no_rank(
    claim: dict[str, float | list[list[Any]]], rule: str
) -> None:
    values = {"state": "running", "attained": 60.0, "accuracies": [[0.5, 0.6]], "max_iterations": 2e9, "urgency": 10}
    believed, notes = limit_claims(snapshot(jobs(1, **values, **claim)), Guardrails())
    silent, _ = limit_claims(snapshot(jobs(1, **{**values, "accuracies": [[]]})), Guardrails())
    assert [reason.rule for reason in notes.values()] == [rule]
    assert believed.jobs.losses.lengths().tolist() == believed.jobs.accuracies.lengths().tolist() == [0]
    score = [MLFH().decide(each, forecasts(1, remaining=600, total=660), {}).score[0] for each in (believed, silent)]
    assert score[0] == score[1]
    assert explain.sentence(next(iter(notes.values()))).startswith("Its reports are not believed")


def test_only_the_row_that_claims_too_much_loses_its_curve() -> None:
    losses = [STEADY, MIRACLE, [1e9], [1e-9, 1e3, 1.0]]
    given = jobs(4, losses=losses, iteration=[3, 4, 1, 3], attained=1e5, iteration_time=0.01)
    believed, _ = limit_claims(snapshot(given), Guardrails())
    assert believed.jobs.losses.lengths().tolist() == [3, 0, 1, 3]
    assert believed.jobs.losses.row(3)[1].tolist() == losses[3]


def test_one_steep_fall_after_a_bad_start_is_believed() -> None:
    given = snapshot(jobs(1, losses=[[1e6, 1.0, 0.9]], iteration=3, attained=1e5, iteration_time=0.01))
    assert not limit_claims(given, Guardrails())[1]


def test_a_slow_iteration_may_gain_much() -> None:
    given = snapshot(jobs(1, losses=[MIRACLE], iteration=4, attained=1e5, iteration_time=600.0))
    assert not limit_claims(given, Guardrails())[1]

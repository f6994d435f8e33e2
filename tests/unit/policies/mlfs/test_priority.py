"""MLF-H's equations, by hand."""

from typing import Any

import numpy as np
import pytest

from policies.mlfs.dependencies import Dependencies
from policies.mlfs.priority import (
    HOUR,
    PrioritySettings,
    Ranking,
    learning_priority,
    loss_ratio,
    model_share,
    run_times,
    score,
    task_deadlines,
)
from policies.snapshot import Jobs
from tests.builders import NOW, curves, forecasts, jobs

LITERAL = PrioritySettings(form="literal", smoothing=1)
SCALED = PrioritySettings(smoothing=1)
FAR = NOW + 1e15
"""a deadline whose term is nothing"""


def ranked(of_jobs: Jobs, settings: PrioritySettings, **predicted: Any) -> Ranking:
    return score(of_jobs, NOW, forecasts(len(of_jobs), **predicted), settings)


class TestEquation2:
    def test_claim_is_urgency_by_stage_by_latest_loss_reduction_by_model_share(self) -> None:
        # two iterations done, so I = 3; reductions 1.0 and 0.5, so the ratio is 1/3; a quarter of the parameters
        of_jobs = jobs(
            2,
            urgency=6,
            iteration=[2, 0],
            losses=[[2.0, 1.0, 0.5], []],
            params=[1e6, 3e6],
            ml_job=0,
        )
        claim = learning_priority(of_jobs, np.full(2, HOUR), SCALED)
        assert claim[0] == pytest.approx(6 * (1 / 3) * (1 / 3) * (1 / 4))

    def test_stage_counts_the_share_of_a_known_horizon(self) -> None:
        of_jobs = jobs(2, urgency=10, iteration=[50, 5_000], max_iterations=[100, 10_000])
        assert learning_priority(of_jobs, np.full(2, HOUR), SCALED) == pytest.approx([10 / 5.5, 10 / 5.5])

    def test_stage_counts_iterations_where_no_horizon_is_known(self) -> None:
        assert learning_priority(jobs(iteration=4, urgency=10), np.array([HOUR]), SCALED) == pytest.approx([10 / 5])

    def test_stage_stops_at_the_horizon(self) -> None:
        of_jobs = jobs(iteration=200, max_iterations=100, urgency=10)
        assert learning_priority(of_jobs, np.array([HOUR]), SCALED) == pytest.approx([1.0])

    def test_a_horizon_next_to_nothing_is_behind_a_job_that_has_done_anything(self) -> None:
        of_jobs = jobs(2, iteration=[179_769_314.0, 0], max_iterations=1e-300, urgency=10)
        with np.errstate(all="raise"):
            assert learning_priority(of_jobs, np.full(2, HOUR), SCALED) == pytest.approx([1.0, 10.0])

    def test_a_job_that_does_not_report_loses_its_claim_by_the_gpu_time_it_attained(self) -> None:
        # half of its time is behind it: 2 GPUs for an hour, and an hour to come
        of_jobs = jobs(urgency=10, gpus=2, attained=2 * HOUR, max_iterations=100)
        assert learning_priority(of_jobs, np.array([HOUR]), SCALED) == pytest.approx([10 / 5.5])

    def test_literal_counts_iterations_whatever_the_horizon_and_the_gpu_time(self) -> None:
        # 14 iterations done, so I = 15, of 20 or of 10,000; three of four GPU hours attained change nothing
        of_jobs = jobs(2, urgency=10, iteration=14, max_iterations=[20, 10_000], gpus=1, attained=3 * HOUR)
        assert learning_priority(of_jobs, np.full(2, HOUR), LITERAL) == pytest.approx([10 / 15, 10 / 15])

    def test_literal_takes_the_latest_reduction_alone(self) -> None:
        # reductions 4, 2, 1: 1 of 7; I = 5
        of_jobs = jobs(urgency=10, iteration=4, max_iterations=8, losses=[[8.0, 4.0, 2.0, 1.0]])
        averaged = PrioritySettings(form="literal", smoothing=3)
        assert learning_priority(of_jobs, np.array([HOUR]), averaged) == pytest.approx([10 / 5 / 7])

    def test_a_job_without_urgency_has_the_sites(self) -> None:
        of_jobs = jobs(2, urgency=[np.nan, 4])
        settings = PrioritySettings(urgency=4)
        assert np.ptp(learning_priority(of_jobs, np.full(2, HOUR), settings)) == 0

    def test_urgency_beyond_ten_counts_as_ten(self) -> None:
        assert learning_priority(jobs(urgency=1e6), np.array([HOUR]), SCALED) == [10.0]


class TestLossRatio:
    @pytest.mark.parametrize("losses", [[], [3.0]])
    def test_is_one_until_two_losses_exist(self, losses: list[float]) -> None:
        assert loss_ratio(curves([losses]), np.zeros(1), 3) == [1.0]

    @pytest.mark.parametrize("losses", [[1.0, 1.0], [1.0, 2.0, 5.0], [np.nan, 1.0], [-np.inf, np.inf]])
    def test_is_zero_when_nothing_was_ever_gained(self, losses: list[float]) -> None:
        assert loss_ratio(curves([losses]), np.zeros(1), 3) == [0.0]

    def test_a_rise_is_no_reduction(self) -> None:
        # reductions 2, 0, 1
        assert loss_ratio(curves([[4, 2, 3, 2]]), np.array([4.0]), 1) == pytest.approx([1 / 3])

    def test_is_averaged_over_the_last_few(self) -> None:
        # reductions 4, 2, 1, 1, mean of the last three 4/3
        assert loss_ratio(curves([[8, 4, 2, 1, 0]]), np.array([5.0]), 3) == pytest.approx([4 / 3 / 8])

    def test_rows_do_not_leak_into_each_other(self) -> None:
        together = loss_ratio(curves([[9, 1], [], [5.0], [4, 3, 1], [1e308, -1e308, 0]]), np.full(5, 3.0), 1)
        assert together == pytest.approx([1, 1, 1, 2 / 3, 0])

    def test_reporting_every_step_counts_like_reporting_every_epoch(self) -> None:
        every_epoch = np.exp(-np.arange(91.0) / 30)
        every_step = np.exp(-np.arange(9001.0) / 3000)
        ratios = loss_ratio(curves([every_epoch, every_step]), np.array([9.0, 9.0]), 3)
        assert ratios[0] == pytest.approx(ratios[1], rel=0.01)


class TestModelShare:
    def test_jobs_that_name_no_parameters_share_equally(self) -> None:
        assert model_share(jobs(5, ml_job=[0, 0, 0, 0, 4])) == pytest.approx([0.25, 0.25, 0.25, 0.25, 1])

    def test_a_job_that_names_none_has_the_mean_of_those_that_do(self) -> None:
        assert model_share(jobs(3, ml_job=0, params=[1, 3, np.nan])) == pytest.approx([1 / 6, 3 / 6, 2 / 6])


class TestEquation4:
    def test_literal_in_hours(self) -> None:
        of_jobs = jobs(deadline=NOW + 2 * HOUR, waited=3 * HOUR, urgency=0)
        result = ranked(of_jobs, LITERAL, remaining=4 * HOUR)
        assert result.terms["deadline"] == pytest.approx([0.7 * 0.3 / 2])
        assert result.terms["remaining"] == pytest.approx([0.7 * 0.3 / 4])
        assert result.terms["waiting"] == pytest.approx([0.7 * 0.35 * 3])

    def test_scaled_by_the_rate_of_finishing(self) -> None:
        # R = 0.3 / 4; slack = 10 - 4 = 6 hours, so 0.3 / 6; waited 5 of 5 + 10 * 4
        of_jobs = jobs(deadline=NOW + 10 * HOUR, waited=5 * HOUR, urgency=0)
        result = ranked(of_jobs, SCALED, remaining=4 * HOUR, total=4 * HOUR)
        assert result.terms["remaining"] == pytest.approx([0.7 * 0.075])
        assert result.terms["deadline"] == pytest.approx([0.7 * 0.05])
        assert result.terms["waiting"] == pytest.approx([0.7 * 0.075 * 5 / 45])

    def test_scaled_deadline_is_worth_no_more_than_finishing(self) -> None:
        of_jobs = jobs(deadline=NOW + 4.5 * HOUR, urgency=0)
        result = ranked(of_jobs, SCALED, remaining=4 * HOUR)
        assert result.terms["deadline"] == result.terms["remaining"]

    @pytest.mark.parametrize("settings", [LITERAL, SCALED], ids=["literal", "scaled"])
    def test_a_job_past_its_deadline_loses_the_term(self, settings: PrioritySettings) -> None:
        assert ranked(jobs(deadline=NOW - 1), settings, remaining=60).terms["deadline"] == [0]

    def test_scaled_a_job_that_can_no_longer_make_its_deadline_loses_the_term(self) -> None:
        assert ranked(jobs(deadline=NOW + HOUR), SCALED, remaining=2 * HOUR).terms["deadline"] == [0]

    @pytest.mark.parametrize("settings", [LITERAL, SCALED], ids=["literal", "scaled"])
    def test_times_are_not_less_than_one_interval(self, settings: PrioritySettings) -> None:
        result = ranked(jobs(deadline=NOW + 60.001), settings, remaining=1e-6)
        assert result.terms["remaining"] == pytest.approx([0.7 * 0.3 * 60])
        assert result.terms["deadline"] == pytest.approx([0.7 * 0.3 * 60], rel=1e-4)


class TestEquation6:
    def test_literal(self) -> None:
        """The own terms are 5 * 1 * 1 * 1 for learning and 0.3 / 2 + 0.3 / 4 + 0.35 * 3 for computing."""
        of_jobs = jobs(deadline=NOW + 2 * HOUR, waited=3 * HOUR, urgency=5)
        result = ranked(of_jobs, LITERAL, remaining=4 * HOUR)
        assert result.score == pytest.approx([0.3 * 5 + 0.7 * (0.15 + 0.075 + 1.05)])

    def test_literal_with_iterations_and_losses(self) -> None:
        """Two tasks with a quarter and three quarters of the model; the first is in iteration 10 of 20 and waits.

        Its reductions are 4, 2, 1, 1 (1/8 the latest), so P0ml = 8 / 10 / 8 / 4 = 0.025 and P0c = 0.3 / 6 + 0.3 / 3 +
        0.35 * 0.5 = 0.325. The second depends on it, has done nothing and has urgency 8: P0ml = 8 * 3 / 4 = 6, P0c =
        0.3 / 6 + 0.3 / 3 + 0 = 0.15, and its deadline of 6 hours leaves the first 6 - 3 = 3 hours: 0.3 / 3 in place of
        0.3 / 6, so its P0c = 0.375. P = 0.3 * (0.025 + 0.8 * 6) + 0.7 * (0.375 + 0.8 * 0.15), where the children add at
        most four times the own value: 0.1 of 4.8.
        """
        of_jobs = jobs(
            2,
            ml_job=0,
            parents=[(1, 0)],
            params=[1e6, 3e6],
            urgency=8,
            iteration=[9, 0],
            max_iterations=20,
            losses=[[9.0, 5.0, 3.0, 2.0, 1.0], []],
            deadline=NOW + 6 * HOUR,
            waited=[HOUR / 2, 0],
        )
        result = ranked(of_jobs, LITERAL, remaining=3 * HOUR)
        assert result.score == pytest.approx([0.3 * (0.025 + 0.1) + 0.7 * (0.375 + 0.12), 0.3 * 6 + 0.7 * 0.15])

    def test_scaled(self) -> None:
        """Pml is 5/10 of R = 0.075; Pc is R, 0.3 / 6 for the slack, and 5/45 of R for waiting."""
        of_jobs = jobs(deadline=NOW + 10 * HOUR, waited=5 * HOUR, urgency=5)
        result = ranked(of_jobs, SCALED, remaining=4 * HOUR, total=4 * HOUR)
        assert result.score == pytest.approx([0.3 * 0.0375 + 0.7 * (0.125 + 0.075 / 9)])

    def test_scaled_a_running_job_has_its_priority_times_the_hysteresis(self) -> None:
        result = ranked(jobs(2, state=["running", "pending"], started=NOW), SCALED, remaining=HOUR, total=HOUR)
        assert result.score[0] == pytest.approx(1.3 * result.score[1])

    def test_literal_a_running_job_has_no_advantage(self) -> None:
        result = ranked(jobs(2, state=["running", "pending"], started=NOW), LITERAL, remaining=HOUR)
        assert result.score[0] == result.score[1]

    def test_jobs_that_are_not_managed_have_no_rank_and_no_terms(self) -> None:
        result = ranked(jobs(2, managed=[True, False]), SCALED)
        assert np.isnan(result.score).tolist() == [False, True]
        assert all(np.isnan(term).tolist() == [False, True] for term in result.terms.values())


class TestChildren:
    """Equations 3 and 5; each own term is made 1 by alpha = 0 and a remaining time of 0.3 hours."""

    ALONE = PrioritySettings(form="literal", alpha=0)

    def priority(self, n: int, parents: list[tuple[int, int]], **columns: list[int]) -> np.ndarray:
        of_jobs = jobs(n, **{"parents": parents, "ml_job": 0, "deadline": FAR} | columns)
        return ranked(of_jobs, self.ALONE, remaining=0.3 * HOUR).score

    def test_a_chain_is_discounted_by_its_distance(self) -> None:
        assert self.priority(3, [(1, 0), (2, 1)]) == pytest.approx([1 + 0.8 + 0.64, 1.8, 1])

    def test_a_diamond_sums_over_both_ways(self) -> None:
        # 3 depends on 1 and 2, which depend on 0
        assert self.priority(4, [(1, 0), (2, 0), (3, 1), (3, 2)]) == pytest.approx([1 + 1.6 * 1.8, 1.8, 1.8, 1])

    def test_the_sum_is_at_most_five_times_the_own_value(self) -> None:
        layers = [(4 * layer + 4 + i, 4 * layer + j) for layer in range(8) for i in range(4) for j in range(4)]
        assert self.priority(36, layers).max() == pytest.approx(5)

    def test_children_of_other_ml_jobs_do_not_count(self) -> None:
        assert self.priority(3, [(1, 0), (2, 0)], ml_job=[0, 0, 2]) == pytest.approx([1.8, 1, 1])

    def test_an_edge_told_twice_counts_once(self) -> None:
        assert self.priority(2, [(1, 0), (1, 0)]) == pytest.approx([1.8, 1])

    def test_jobs_in_a_cycle_rank_as_if_alone_and_those_above_still_count_them(self) -> None:
        # 0 <- 1 <-> 2 <- 3
        assert self.priority(4, [(1, 0), (2, 1), (1, 2), (3, 2)]) == pytest.approx([1.8, 1, 1, 1])

    def test_a_cycle_is_reported(self) -> None:
        dependencies = Dependencies.of(np.zeros(4, np.int64), np.array([(1, 0), (2, 1), (1, 2), (3, 3)]))
        assert dependencies.cyclic.tolist() == [False, True, True, True]

    def test_a_job_whose_parent_is_missing_is_reported_and_ranks_as_if_alone(self) -> None:
        assert self.priority(3, [(0, -1), (1, 0), (2, 1)]) == pytest.approx([1, 1.8, 1])
        dependencies = Dependencies.of(np.zeros(3, np.int64), np.array([(0, -1), (1, 0), (2, 1)]))
        assert dependencies.orphaned.tolist() == [True, False, False]


class TestOrderWithinAnMlJob:
    """The scaled form: dependents order the jobs of one ML job by the work that waits below each."""

    def scores(self, parents: list[tuple[int, int]], **columns: Any) -> np.ndarray:
        n = len(columns["gpus"])
        of_jobs = jobs(n, parents=parents, **{"ml_job": 0, "deadline": FAR} | columns)
        return ranked(of_jobs, SCALED, remaining=HOUR).score

    def test_an_ml_job_without_gpus_is_ordered_by_time(self) -> None:
        """Of three in a chain, each of an hour: shares 1 + (0.8 + 0.64) / 3, 1 + 0.8 / 3 and 1."""
        first, second, third = self.scores([(1, 0), (2, 1)], gpus=[0, 0, 0], params=[1, 1, 1])
        assert (second / first, third / first) == pytest.approx((1.266667 / 1.48, 1 / 1.48))

    def test_the_job_with_most_work_below_it_has_its_own_score_and_its_dependents_less(self) -> None:
        """A job of 4 GPUs with one as large below it: shares 1 + 0.8 / 2 and 1; both have half of the parameters."""
        parent, child, alone = self.scores([(1, 0)], gpus=[4, 4, 4], ml_job=[0, 0, 2], params=[1, 1, 1])
        assert child == pytest.approx(parent / 1.4)
        assert parent < alone

    def test_what_holds_more_work_goes_first(self) -> None:
        first, second, *_ = self.scores([(2, 0), (3, 1)], gpus=[1, 1, 8, 1])
        assert first > second

    def test_dependents_without_work_change_nothing(self) -> None:
        with_them, without = (
            self.scores(parents, gpus=[4, 0, 0], params=[1, 0, 0])[0] for parents in ([(1, 0), (2, 1)], [])
        )
        assert with_them == without

    def test_a_server_is_above_its_workers_by_lowering_them_in_their_order(self) -> None:
        of_jobs = jobs(3, ml_job=0, role=["ps", "worker", "worker"], urgency=[5, 9, 10])
        alone = jobs(3, ml_job=0, role=["worker"] * 3, urgency=[5, 9, 10])
        (server, low, high), (as_worker, *_) = ranked(of_jobs, SCALED).score, ranked(alone, SCALED).score
        assert server == as_worker > high > low


class TestParameterServers:
    def test_rank_above_all_workers_of_their_ml_job_and_of_no_other(self) -> None:
        of_jobs = jobs(
            5,
            ml_job=[0, 0, 0, 3, 3],
            role=["worker", "ps", "", "worker", "ps"],
            urgency=[9, 0, 10, 1, 10],
        )
        result = ranked(of_jobs, SCALED)
        assert result.score[1] > result.score[2] > result.score[0]
        assert result.score[1] == pytest.approx(result.score[2])
        assert result.terms["server"][4] == 0


class TestRunTimes:
    @pytest.mark.parametrize(
        ("columns", "predicted", "expected"),
        [
            ({"time_limit": HOUR}, {"remaining": 100, "total": 900}, (100, 900)),
            ({"time_limit": HOUR}, {"total": 900}, (600, 900)),
            ({"time_limit": HOUR}, {"total": 200}, (3300, 200)),
            ({"time_limit": HOUR}, {}, (3300, 3600)),
            ({"time_limit": 200}, {}, (86_400, 86_700)),
            ({}, {}, (86_400, 86_700)),
        ],
        ids=[
            "forecast",
            "total less elapsed",
            "outlived its total",
            "time limit",
            "outlived its limit",
            "nothing known",
        ],
    )
    def test_what_remains_is_the_best_that_is_known(
        self, columns: dict[str, Any], predicted: dict[str, Any], expected: tuple[int, ...]
    ) -> None:
        of_jobs = jobs(state="running", started=NOW - 300, **columns)
        remaining, total = run_times(of_jobs, NOW, forecasts(1, **predicted), SCALED)
        assert (remaining[0], total[0]) == expected


class TestTaskDeadlines:
    def deadlines(self, *, remaining: float = HOUR, **columns: Any) -> np.ndarray:
        n = len(columns["deadline"])
        of_jobs = jobs(n, **columns)
        dependencies = Dependencies.of(of_jobs.ml_job, of_jobs.parents)
        return (task_deadlines(of_jobs, NOW, np.full(n, remaining), dependencies, SCALED) - NOW) / HOUR

    def test_the_ml_jobs_less_the_longest_chain_of_children(self) -> None:
        # 1 and 2 depend on 0, and 3 on 2
        hours = self.deadlines(deadline=np.full(4, NOW + 10 * HOUR), ml_job=0, parents=[(1, 0), (2, 0), (3, 2)])
        assert hours == pytest.approx([8, 10, 9, 10])

    def test_a_job_with_none_has_that_of_its_ml_job(self) -> None:
        assert self.deadlines(deadline=[np.nan, NOW + 5 * HOUR], ml_job=0) == pytest.approx([5, 5])

    def test_a_job_alone_with_none_has_the_sites_maximum_from_its_submission(self) -> None:
        hours = self.deadlines(deadline=[np.nan], submitted=NOW - 10 * HOUR)
        assert hours == pytest.approx([7 * 24 - 10])


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": "hours"},
        {"alpha": 1.1},
        {"gamma": 1.0},
        {"gamma_d": -0.1},
        {"gamma_w": np.nan},
        {"hysteresis": 0.9},
        {"interval": 0},
        {"urgency": 11},
        {"max_deadline": np.inf},
        {"smoothing": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PrioritySettings(**wrong)

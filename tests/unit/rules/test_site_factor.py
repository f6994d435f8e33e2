"""SiteFactors: managed jobs exchange their places by score, in the fewest writes."""

from typing import Any

import numpy as np
import pytest

from policies.snapshot import Jobs
from slurmplug.rules.site_factor import commands, order, take_back
from tests.builders import jobs, snapshot

NEW = np.nan


def factors(of_jobs: Jobs, score: list[float]) -> dict[int, int]:
    """The SiteFactors that are written, by job id."""
    writes = commands(snapshot(of_jobs), np.array(score))
    return {write.job.job_id: int(write.fields["SiteFactor"]) for write in writes}


def totals(score: list[float], **columns: Any) -> list[float]:
    """The priorities of all jobs once the SiteFactors are written; those in place are 0 unless given."""
    of_jobs = jobs(len(score), **{"site_factor": 0.0} | columns)
    written = factors(of_jobs, score)
    own = of_jobs.priority - np.nan_to_num(of_jobs.site_factor)
    in_place = np.nan_to_num(of_jobs.site_factor)
    return [float(own[row] + written.get(row + 1, in_place[row])) for row in range(len(score))]


class TestExchange:
    def test_jobs_exchange_the_priorities_that_they_have(self) -> None:
        """Each between other jobs, so that none can stay where it is."""
        after = totals([1.0, 3.0, 2.0, NEW, NEW], priority=[900, 100, 500, 700, 300])
        assert after == [100, 900, 500, 700, 300]

    def test_where_nobody_is_between_them_the_fewest_move_if_most_can_stay(self) -> None:
        assert totals([1.0, 3.0, 2.0], priority=[900, 100, 500]) == [100, 900, 500]
        assert totals([3.0, 1.0, 2.0], priority=[900, 500, 100]) == [900, 99, 100]

    def test_a_job_alone_keeps_its_place_whatever_its_score(self) -> None:
        assert factors(jobs(2, priority=[100, 900], site_factor=0.0), [9.0, NEW]) == {}

    def test_what_is_left_to_slurm_is_not_passed_by_more_than_before(self) -> None:
        """Without slurmplug: 1, 2 plain, 3 plain, 4, 5."""
        after = totals([1.0, NEW, NEW, 2.0, 3.0], priority=[900, 800, 700, 600, 500])
        assert after == [500, 800, 700, 600, 900]

    def test_an_order_that_is_right_is_not_written(self) -> None:
        assert factors(jobs(3, priority=[900, 800, 700], site_factor=0.0), [3.0, 2.0, 1.0]) == {}

    def test_what_was_exchanged_stays_while_ages_grow_alike(self) -> None:
        grown = jobs(3, priority=[100 + 7, 500 + 7, 900 + 7], site_factor=[-800, 0, 800])
        assert factors(grown, [1.0, 2.0, 3.0]) == {}

    def test_a_new_job_is_the_only_one_written_where_there_is_room(self) -> None:
        """Its own priority is the lowest, and its score between those of the others."""
        queue = jobs(3, priority=[900, 500, 100], site_factor=0.0)
        assert len(factors(queue, [3.0, 1.0, 2.0])) == 1

    def test_of_equal_priorities_the_better_gets_the_higher_as_far_as_no_other_is_passed(self) -> None:
        assert totals([1.0, 2.0, 3.0], priority=500) == [498, 499, 500]
        tied = totals([1.0, 2.0, NEW], priority=500)
        assert tied[1] > tied[0] > 500

    def test_a_place_is_used_up_by_the_job_that_starts_from_it(self) -> None:
        """Job 1 exchanged its 900 for 100 with one that has started; the next that is better gets 100, and not 900."""
        assert totals([1.0, 2.0], priority=[100, 50], site_factor=[-800, 0]) == [50, 100]

    def test_where_no_number_is_left_between_two_others_nobody_is_passed(self) -> None:
        after = totals([NEW, 1.0, NEW, 2.0], priority=[500, 500, 500, 499])
        assert after[3] < 500
        assert after[1] < 500

    def test_priorities_do_not_fall_to_where_slurm_makes_all_alike(self) -> None:
        after = totals([1.0, 2.0, 3.0], priority=[2, 2, 1])
        assert min(after) >= 1
        assert after[2] >= after[1] >= after[0]


class TestWhoTakesPart:
    @pytest.mark.parametrize("reason", ["Dependency", "BeginTime", "QOSMaxJobsPerUserLimit", "JobHeldUser"])
    def test_who_could_not_start_anyway_gives_no_place_away_and_takes_none(self, reason: str) -> None:
        queue = jobs(2, priority=[900, 100], site_factor=0.0, reason=[reason, "Priority"])
        assert factors(queue, [1.0, 2.0]) == {}

    def test_who_has_to_wait_meanwhile_does_not_get_back_the_place_that_it_exchanged(self) -> None:
        queue = jobs(2, priority=[900, 100], site_factor=[0, -800], reason=["Priority", "Dependency"])
        assert factors(queue, [1.0, 2.0]) == {}

    def test_held_and_running_jobs_and_unknown_site_factors_are_left(self) -> None:
        state = ["pending", "running", "pending", "pending"]
        queue = jobs(4, priority=[0, 900, 800, 700], state=state, site_factor=[0, 0, NEW, 0])
        assert factors(queue, [9.0, 1.0, 1.0, 2.0]) == {}

    def test_a_job_that_goes_first_in_a_move_gives_its_place_to_nobody(self) -> None:
        first = 2_147_483_645
        queue = jobs(3, priority=[first + 500, 900, 100], site_factor=[first, 0, 0])
        assert factors(queue, [1.0, 2.0, 3.0]) == {2: -800, 3: 800}

    def test_different_partitions_are_apart_also_where_a_job_names_both(self) -> None:
        """Else a small job of a partition for short ones, with its high priority, has a place for a large one."""
        priority, score = [900, 800, 200, 100], [1.0, 2.0, 3.0, 4.0]
        assert totals(score, priority=priority, partition=["a", "a", "b", "b"]) == [800, 900, 100, 200]
        assert totals(score, priority=priority, partition=["a", "a,b", "b", "b"]) == [900, 800, 100, 200]
        assert totals(score, priority=priority, partition=["a,b", "b,a", "b", "b"]) == [800, 900, 100, 200]

    def test_a_qos_gives_no_place_to_a_job_that_its_limits_do_not_hold_for(self) -> None:
        qos = ["debug", "debug", "normal", "normal"]
        assert totals([1.0, 2.0, 3.0, 4.0], priority=[900, 800, 200, 100], qos=qos) == [800, 900, 100, 200]

    def test_jobs_of_another_partition_or_qos_are_not_passed_either(self) -> None:
        """Plain: of both partitions, and of another QOS."""
        columns = {"partition": ["a", "a", "a,b", "a"], "qos": ["normal", "normal", "normal", "high"]}
        assert totals([1.0, 2.0, NEW, NEW], priority=[900, 300, 700, 500], **columns) == [300, 900, 700, 500]

    def test_a_job_that_its_user_lowered_takes_no_place_until_that_is_taken_back(self) -> None:
        """Else it exchanges what it lowered itself for another's place, and then has both."""
        assert totals([2.0, 1.0], priority=[100, 900], nice=[800, 0]) == [100, 900]
        assert totals([2.0, 1.0], priority=[100, 900], nice=[0, -300]) == [900, 100]

    def test_a_surplus_is_nobody_s_place(self) -> None:
        """Job 1 had exchanged its 100 for 900; then its user had it request what Slurm gives 500 more for."""
        queue = jobs(2, priority=[1400, 100], site_factor=[800, -800], surplus=[500, 0])
        assert factors(queue, [2.0, 1.0]) == {1: 300}
        assert factors(queue, [1.0, 2.0]) == {1: -500, 2: 0}

    def test_a_surplus_is_taken_off_also_where_the_job_may_not_start(self) -> None:
        queue = jobs(1, priority=1400, site_factor=800, surplus=500, reason="Dependency")
        assert factors(queue, [1.0]) == {1: 300}

    def test_a_surplus_leaves_a_job_what_it_would_have_without_slurmplug(self) -> None:
        assert factors(jobs(1, priority=1000, site_factor=200, surplus=500), [1.0]) == {1: 0}
        assert factors(jobs(1, priority=1000, site_factor=-200, surplus=500), [1.0]) == {1: -700}

    def test_an_array_takes_as_many_places_as_it_has_elements(self) -> None:
        """Best is the array of 3, then 2, 1: their places are 900, 800 and 500 three times; plain: 700, 400."""
        columns = {"priority": [900, 800, 500, 700, 400], "elements": [1, 1, 3, 1, 1]}
        after = totals([1.0, 2.0, 3.0, NEW, NEW], **columns)
        assert 400 < after[0] < after[1] < after[2] < 700


class TestTakenOut:
    def test_what_was_gained_is_given_back_and_not_what_another_job_has_used(self) -> None:
        """Else the place of a job that is taken out and put in again would be there twice, and so on."""
        queue = jobs(2, priority=[100, 900], site_factor=[-800, 800], taken_out=True, managed=False)
        assert [(write.job.job_id, write.fields) for write in take_back(snapshot(queue))] == [(2, {"SiteFactor": "0"})]


class TestOrder:
    def test_is_best_first_without_those_left_to_slurm(self) -> None:
        assert order(np.array([1.0, np.nan, 3.0]), np.zeros(3), np.arange(3)).tolist() == [2, 0]

    def test_equals_go_by_submission_and_then_by_job_id(self) -> None:
        score, submitted, job_id = np.ones(4), np.array([5.0, 3.0, 3.0, 9.0]), np.array([1, 8, 7, 2])
        assert order(score, submitted, job_id).tolist() == [2, 1, 0, 3]

"""Labels: the decided order in the fewest SiteFactor writes."""

import numpy as np
import pytest

from slurmplug.cluster.port import Site
from slurmplug.config.schema import Priority
from slurmplug.errors import ConfigError
from slurmplug.rules.site_factor import MAX_SITE_FACTOR, assign, commands, order, spacing_and_top
from tests.builders import jobs, snapshot


def assigned(in_place: list[float], *, spacing: int = 10, top: int = 1000) -> list[int]:
    """The new labels of a queue whose labels in place are given best first."""
    new: list[int] = assign(np.arange(len(in_place)), np.array(in_place, dtype=float), spacing, top).tolist()
    return new


NEW = np.nan


class TestRelabel:
    def test_a_fresh_queue_gets_multiples_of_the_spacing(self) -> None:
        assert assigned([NEW] * 4) == [40, 30, 20, 10]

    def test_of_more_than_may_be_raised_the_rest_share_no_label(self) -> None:
        best_first = np.arange(4)
        assert assign(best_first, np.full(4, NEW), 10, 1000, raised=2).tolist() == [20, 10, 0, 0]
        assert assign(best_first, np.array([40.0, 30, 20, 10]), 10, 1000, raised=2).tolist() == [40, 30, 0, 0]
        assert assign(best_first, np.full(4, NEW), 10, 1000, raised=0).tolist() == [0, 0, 0, 0]

    def test_an_empty_queue_gets_nothing(self) -> None:
        assert assigned([]) == []

    def test_an_order_that_did_not_change_is_not_written(self) -> None:
        assert assigned([400, 37, 36, 0]) == [400, 37, 36, 0]

    def test_a_new_job_goes_into_the_middle_of_its_gap(self) -> None:
        assert assigned([40, 30, NEW, 20]) == [40, 30, 25, 20]

    def test_new_jobs_spread_evenly_over_their_gap(self) -> None:
        assert assigned([100, NEW, NEW, NEW, 20]) == [100, 80, 60, 40, 20]

    def test_a_new_best_job_goes_one_spacing_above(self) -> None:
        assert assigned([NEW, NEW, 40]) == [60, 50, 40]

    def test_a_new_worst_job_goes_one_spacing_below(self) -> None:
        assert assigned([60, NEW, NEW]) == [60, 50, 40]

    def test_near_an_end_new_jobs_share_what_is_left(self) -> None:
        assert assigned([NEW, NEW, 994], top=1000) == [998, 996, 994]
        assert assigned([5, NEW, NEW]) == [5, 3, 1]

    def test_a_job_that_overtakes_all_is_the_only_one_written(self) -> None:
        assert assigned([10, 40, 30, 20]) == [50, 40, 30, 20]

    def test_without_a_gap_the_fewest_make_room(self) -> None:
        assert assigned([22, 21, NEW, 20]) == [22, 21, 13, 6]

    def test_a_label_that_is_no_label_of_ours_is_written(self) -> None:
        assert assigned([2_000, -5, 0.5]) == [30, 20, 10]

    def test_equal_labels_in_place_are_told_apart(self) -> None:
        assert assigned([20, 20, 20]) == [40, 30, 20]

    def test_beyond_the_capacity_the_rest_share_zero(self) -> None:
        assert assigned([NEW] * 5, spacing=10, top=35) == [30, 20, 10, 0, 0]

    def test_beyond_the_capacity_no_ranked_job_keeps_zero(self) -> None:
        assert assigned([30, 20, 0, 0], spacing=10, top=35) == [30, 20, 10, 0]

    def test_only_the_rows_in_the_order_are_labelled(self) -> None:
        assert assign(np.array([2, 0]), np.array([10.0, 99.0, 20.0]), 10, 1000).tolist() == [20, 10]

    def test_of_an_array_every_element_counts_among_those_that_are_raised(self) -> None:
        queue = snapshot(jobs(4, elements=[1, 2, 5, 1]))
        score = np.array([4.0, 3.0, 2.0, 1.0])
        for raised, written in ((2, [1]), (3, [1, 2]), (7, [1, 2]), (8, [1, 2, 3]), (None, [1, 2, 3, 4])):
            writes = commands(queue, score, site(age=1_000), Priority(), raised)
            assert [write.job.job_id for write in writes if write.fields["SiteFactor"] != "0"] == written


class TestOrder:
    def test_is_best_first_without_those_left_to_slurm(self) -> None:
        assert order(np.array([1.0, np.nan, 3.0]), np.zeros(3), np.arange(3)).tolist() == [2, 0]

    def test_equals_go_by_submission_and_then_by_job_id(self) -> None:
        score, submitted, job_id = np.ones(4), np.array([5.0, 3.0, 3.0, 9.0]), np.array([1, 8, 7, 2])
        assert order(score, submitted, job_id).tolist() == [2, 1, 0, 3]


def site(**weights: int) -> Site:
    return Site("testing", "22.05.8", "priority/multifactor", weights)


class TestSpacingAndTop:
    def test_top_is_half_of_the_weights(self) -> None:
        assert spacing_and_top(site(age=1_000, fairshare=100_000, qos=99_000), 50, None, None) == (1_000, 100_000)

    def test_what_waits_is_spread_over_half_of_the_range(self) -> None:
        for waiting in (16, 50, 1_000):
            spacing, top = spacing_and_top(site(age=1_000, fairshare=99_000), waiting, None, None)
            assert top / 2 - waiting < spacing * waiting <= top / 2

    def test_a_short_queue_is_not_drawn_apart(self) -> None:
        weights = site(age=1_000, fairshare=99_000)
        assert spacing_and_top(weights, 1, None, None) == spacing_and_top(weights, 16, None, None)

    def test_a_queue_longer_than_the_range_is_one_apart(self) -> None:
        assert spacing_and_top(site(age=100), 1_000, None, None) == (1, 50)

    def test_a_site_without_weights_is_ordered_by_labels_alone(self) -> None:
        spacing, top = spacing_and_top(site(age=0, fairshare=0), 100_000, None, None)
        assert spacing > 1_000
        assert top // spacing >= 200_000

    def test_never_beyond_what_slurm_takes(self) -> None:
        assert spacing_and_top(site(age=2**32, fairshare=2**32), 10, None, None)[1] == MAX_SITE_FACTOR

    def test_what_is_set_holds(self) -> None:
        assert spacing_and_top(site(age=10_000), 10, 7, 700) == (7, 700)
        assert spacing_and_top(site(age=10_000), 10, 7, None) == (7, 5_000)

    @pytest.mark.parametrize(("spacing", "top"), [(0, 10), (11, 10), (1, MAX_SITE_FACTOR + 1)])
    def test_what_does_not_fit_is_refused(self, spacing: int, top: int) -> None:
        with pytest.raises(ConfigError, match=r"priority\.top"):
            spacing_and_top(site(), 10, spacing, top)

"""Ratios of step times between two types of GPU."""

import pytest

from predictors.gpu_type_ratio import (
    JOBS_SPREAD,
    KINDS_SPREAD,
    TYPES_SPREAD,
    LogRatio,
    expected_log_ratio,
    mean_of_jobs,
)


def test_before_any_kind_ran_on_both_the_ratio_is_one_give_or_take_all_spreads() -> None:
    expected = expected_log_ratio(None, [])
    assert expected.mean == 0.0
    assert expected.variance == pytest.approx(TYPES_SPREAD**2 + KINDS_SPREAD**2 + JOBS_SPREAD**2)


def test_the_more_other_kinds_agree_the_closer_to_them_but_a_kind_may_differ() -> None:
    one, many = (expected_log_ratio(None, [LogRatio(2.0, 0.0)] * n) for n in (1, 1000))
    assert 0.9 < one.mean < 1.1  # halfway: as many types differ as kinds
    assert many.mean == pytest.approx(2.0, rel=0.01)
    assert many.variance == pytest.approx(KINDS_SPREAD**2 + JOBS_SPREAD**2, rel=0.01)


def test_a_kinds_own_jobs_count_the_more_the_more_they_are() -> None:
    others = [LogRatio(0.0, 0.0)] * 5
    means = [expected_log_ratio(mean_of_jobs([2.0] * n), others) for n in (1, 4, 100)]
    assert [round(each.mean, 1) for each in means] == [1.8, 1.9, 2.0]
    assert means[0].variance > means[1].variance > means[2].variance > JOBS_SPREAD**2
    assert expected_log_ratio(mean_of_jobs([2.0], measured=1.0), others).mean < 1.0

"""What one user's runs may do to the forecasts of another: little, however many there are and whatever they say."""

import pytest

from predictors.influence import (
    FEW_RUNS,
    QUORUM,
    agreed,
    balanced,
    may_teach,
    pooled,
    reached_by_enough,
    runs_of_a_user,
)


def test_no_user_has_more_than_a_third_of_a_model() -> None:
    assert runs_of_a_user(2_000) == 666
    assert runs_of_a_user(2) == 1


def test_in_a_kind_that_users_share_no_user_has_more_runs_than_all_others_together() -> None:
    greedy, honest = [("eve", "type resnet50")] * 500, [("ada", "type resnet50")] * 30 + [("bob", "type resnet50")] * 20
    kept = balanced(greedy + honest)
    assert len([at for at in kept if at < 500]) == 50
    assert kept[:50] == list(range(50))  # the most recent
    assert len(kept) == 100


def test_few_runs_of_a_shared_kind_are_always_kept() -> None:
    kept = balanced([("eve", "type resnet50")] * 500 + [("ada", "type resnet50")])
    assert len(kept) == FEW_RUNS + 1


def test_a_kind_that_is_one_users_own_is_left_whole() -> None:
    assert balanced([("ada", "job ada train")] * 500 + [("bob", "job bob train")]) == list(range(501))


def test_a_model_of_few_users_forecasts_their_own_jobs_only() -> None:
    assert may_teach({"ada"}, "ada")
    assert not may_teach({"eve"}, "ada")
    assert not may_teach({"eve", "bob"}, "ada")
    assert may_teach({"eve", "bob", "kim"}, "ada")
    assert not may_teach((), "ada")


@pytest.mark.parametrize("lie", [1e-9, 1.5, 1e9])
def test_the_vote_of_one_moves_no_agreement_beyond_what_the_others_measured(lie: float) -> None:
    votes = {"bob": {1: 1.0}, "kim": {1: 2.0}, "eve": {1: lie}}
    assert len(votes) == QUORUM
    assert 1.0 <= agreed("ada", votes)[1] <= 2.0


def test_fewer_others_than_a_quorum_say_nothing() -> None:
    assert agreed("ada", {"bob": {1: 1.0}, "eve": {1: 9.0}}) == {}
    assert pooled("ada", {"bob": [1.0], "eve": [9.0] * 50}) == []
    assert reached_by_enough("ada", {"bob": 4, "eve": 64}) == 0


def test_others_say_nothing_where_the_user_measured_something() -> None:
    others = {user: {1: 2.0, 4: 1.0} for user in ("bob", "kim", "joe")}
    assert agreed("ada", {"ada": {1: 8.0}, **others}) == {4: 1.0}


def test_own_values_are_pooled_else_one_of_each_of_the_others() -> None:
    others = {"bob": [1.0], "kim": [2.0, 3.0, 100.0], "eve": [1e9] * 50}
    assert pooled("ada", {"ada": [7.0, 8.0], **others}) == [7.0, 8.0]
    assert pooled("ada", others) == [1.0, 3.0, 1e9]


def test_what_only_few_others_reached_does_not_count() -> None:
    reached = {"bob": 4, "kim": 2, "joe": 8, "eve": 64}
    assert reached_by_enough("ada", reached) == 4
    assert reached_by_enough("ada", {"ada": 16, **reached}) == 16
    assert reached_by_enough("eve", reached) == 64

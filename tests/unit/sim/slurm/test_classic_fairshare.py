"""Fairshare without Fair Tree, beside factors worked out by hand."""

import numpy as np
import pytest

from slurmplug.sim.slurm.classic_fairshare import ClassicFairshare
from slurmplug.sim.slurm.share_tree import OF_PARENT
from tests.unit.sim.slurm.test_fair_tree import assoc, shares_of

ACCOUNTS: dict[str, float] = {"a": 60, "a:ada": 1, "a:bob": 1, "b": 40, "b:eve": 1}


def factors(shares: dict[str, float], *used: float, jobs: tuple[str, ...] = (), dampening: float = 1.0) -> list[float]:
    made = ClassicFairshare(shares_of(shares), [assoc(each) for each in jobs], dampening)
    found: list[float] = made.factors(np.array(used)).tolist()
    return found


def test_a_user_is_charged_for_a_part_of_what_others_in_the_account_have_used() -> None:
    """Of all usage, a has 0.5, ada 0.3 and bob 0.2; each of them has half of the account's shares."""
    expected = [2 ** -(0.4 / 0.3), 2 ** -(0.35 / 0.3), 2 ** -(0.5 / 0.4)]
    assert factors(ACCOUNTS, 30, 20, 50) == pytest.approx(expected)


def test_dampening_divides_the_exponent() -> None:
    assert factors(ACCOUNTS, 30, 20, 50, dampening=4.0)[0] == pytest.approx(2 ** -(0.4 / 0.3 / 4))


def test_who_has_no_share_has_no_factor_and_without_usage_all_others_have_the_highest() -> None:
    assert factors({"a": 1, "a:ada": 0, "a:bob": 1}, 0, 0) == [0.0, 1.0]
    assert factors({"a": 0, "a:ada": 1, "b": 1, "b:eve": 1}, 5, 5) == [0.0, pytest.approx(2**-0.5)]


def test_a_user_with_the_shares_of_the_account_has_its_factor() -> None:
    found = factors({"a": 60, "a:ada": OF_PARENT, "a:bob": 1, "b": 40, "b:eve": 1}, 30, 20, 50)
    assert found[0] == pytest.approx(2 ** -(0.5 / 0.6))
    assert found[1] == pytest.approx(2 ** -(0.5 / 0.6)), "the only one with shares of its own has all of them"


def test_who_has_the_shares_of_root_has_a_half() -> None:
    assert factors({"a": OF_PARENT, "a:ada": OF_PARENT, "b": 1, "b:eve": 1}, 0, 0) == [0.5, 1.0]


def test_each_level_charges_for_a_part_of_what_others_in_it_have_used() -> None:
    deep: dict[str, float] = {"a": 50, "a/sub": 50, "a:dan": 50, "sub:ada": 1, "sub:bob": 1, "b": 50, "b:eve": 1}
    of_sub = 0.4 + (0.5 - 0.4) * 0.5
    expected = 0.3 + (of_sub - 0.3) * 0.5
    assert factors(deep, 10, 30, 10, 50)[1] == pytest.approx(2 ** -(expected / 0.125))


def test_a_new_user_has_one_share_of_the_account() -> None:
    found = factors(ACCOUNTS, 30, 20, 50, 0, jobs=("b:new",))
    assert found[3] == pytest.approx(2 ** -(0.25 / 0.2))

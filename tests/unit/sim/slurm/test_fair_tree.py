"""Fair Tree: the ranks of users in a tree of accounts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.cluster.limits import Assoc
from slurmplug.sim.slurm.fair_tree import FairTree
from slurmplug.sim.slurm.share_tree import OF_PARENT, Shares


def shares_of(shares: dict[str, float]) -> Shares:
    """Users are written `account:user`, or `account:user:partition`; accounts by their path from below root."""
    of, above = {Assoc("root", "", ""): 1.0}, {"root": ""}
    for name, share in shares.items():
        if ":" in name:
            of[assoc(name)] = share
            continue
        parent, _, account = name.rpartition("/")
        of[Assoc(account, "", "")] = share
        above[account] = parent.rpartition("/")[2] or "root"
    return Shares(of, above)


def tree(shares: dict[str, float], *jobs: str) -> FairTree:
    return FairTree(shares_of(shares), [assoc(job) for job in jobs])


def assoc(name: str) -> Assoc:
    account, user, partition = f"{name}::".split(":")[:3]
    return Assoc(account, user, partition)


def ranks(made: FairTree, *used: float) -> list[float]:
    found: list[float] = (made.factors(np.array(used)) * made.users).round(9).tolist()
    return found


def test_all_users_of_the_account_that_used_less_of_its_share_come_first() -> None:
    made = tree({"a": 40, "a:ada": 1, "a:bob": 1, "b": 60, "b:eve": 1, "b:dan": 1})
    assert ranks(made, 1, 29, 70, 0) == [4, 3, 1, 2]
    assert ranks(made, 1, 49, 40, 10) == [2, 1, 3, 4]


def test_within_an_account_the_shares_of_its_users_count() -> None:
    made = tree({"a": 1, "a:ada": 3, "a:bob": 1})
    assert ranks(made, 74, 26) == [2, 1]
    assert ranks(made, 76, 24) == [1, 2]


def test_who_has_no_share_is_last_and_who_used_nothing_is_first_together_with_others() -> None:
    made = tree({"a": 1, "a:ada": 0, "a:bob": 1, "a:eve": 1, "a:dan": 1})
    assert ranks(made, 0, 5, 0, 0) == [1, 2, 4, 4]


def test_an_account_with_the_shares_of_its_parent_is_no_level_of_its_own() -> None:
    with_level = tree({"a": 1, "a:ada": 1, "a/sub": 1, "sub:bob": 1, "sub:eve": 1})
    without = tree({"a": 1, "a:ada": 1, "a/sub": OF_PARENT, "sub:bob": 1, "sub:eve": 1})
    assert ranks(with_level, 40, 50, 10) == [3, 1, 2]
    assert ranks(without, 40, 50, 10) == [2, 1, 3]


def test_a_user_with_the_shares_of_the_account_is_first_in_it() -> None:
    made = tree({"a": 1, "a:ada": OF_PARENT, "a:bob": 1})
    assert ranks(made, 90, 10) == [2, 1]


def test_of_accounts_that_tie_the_second_begins_with_the_last_rank_of_the_first() -> None:
    made = tree({"a": 1, "a:ada": 1, "a:bob": 1, "b": 1, "b:eve": 1, "b:dan": 1})
    assert ranks(made, 10, 20, 5, 25) == [4, 3, 3, 1]
    assert ranks(made, 0, 0, 0, 0) == [4, 4, 4, 4]


def test_a_job_counts_for_the_association_of_its_partition_if_there_is_one() -> None:
    made = tree({"a": 1, "a:ada": 1, "a:ada:gpu": 1, "a:bob": 1}, "a:ada:gpu", "a:ada:cpu", "a:bob:gpu")
    assert made.number.tolist() == [1, 0, 2]


def test_users_and_accounts_that_are_not_in_it_have_one_share() -> None:
    made = tree({"a": 1, "a:ada": 1}, "a:new", "gone:old", "a:ada", "a:new")
    assert (made.users, made.number.tolist()) == (3, [1, 2, 0, 1])
    assert ranks(made, 50, 30, 20) == [1, 2, 3]
    assert ranks(made, 5, 3, 92) == [2, 3, 1]


@given(st.lists(st.floats(0, 1e9), min_size=6, max_size=6), st.floats(1.0, 1e9))
def test_factors_are_above_zero_and_who_uses_more_gains_nothing(used: list[float], more: float) -> None:
    made = tree({"a": 2, "a:1": 1, "a:2": 2, "b": 1, "b/c": 1, "c:3": 1, "c:4": 0, "b:5": OF_PARENT, "d": 0, "d:6": 1})
    before = made.factors(np.array(used))
    assert ((before > 0) & (before <= 1)).all()
    for user in range(made.users):
        grown = np.array(used)
        grown[user] += more
        assert made.factors(grown)[user] <= before[user]

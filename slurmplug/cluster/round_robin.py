"""Round robin over users, for work of which only a part is done at a time: many jobs of one user delay no other's."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def round_robin(items: Iterable[T], uid: Callable[[T], int]) -> list[T]:
    """The items in rounds: the first of each user, then the second of each, and so on; within a round in their order.

    uid: the user of an item.
    """
    before: Counter[int] = Counter()
    rounds = []
    for item in items:
        user = uid(item)
        rounds.append((before[user], item))
        before[user] += 1
    return [item for _, item in sorted(rounds, key=lambda each: each[0])]

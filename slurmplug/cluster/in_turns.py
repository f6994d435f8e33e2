"""Users take turns in what only a part is done of at a time, so that many jobs of one delay no other."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], uid: Callable[[T], int]) -> list[T]:
    """First one item of each user, then the second of each, and so on; otherwise in their order."""
    before: Counter[int] = Counter()
    rounds = []
    for item in items:
        user = uid(item)
        rounds.append((before[user], item))
        before[user] += 1
    return [item for _, item in sorted(rounds, key=lambda each: each[0])]

"""Whose runs teach a model that several users share: how far one user's runs can move the forecasts of the others.

Users choose the names, types and reports of their jobs, so each run may have been made up. Every shared model keeps
these rules, whatever it learns:

- Of a user's runs of one kind only the latest count, and of all runs that a model learns from at most a third is one
  user's.
- A user's own runs come first: where there are some, others' runs do not replace what they show.
- Otherwise each of the others has one vote, and fewer than `QUORUM` of them say nothing: the median of three users is
  between the other two, whatever one of them reports.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

KIND_RUNS = 200
"""The latest runs of a user and a kind that count."""
QUORUM = 3
"""The fewest users whose runs say something about another user's job; no user has more than this part of a model."""
FEW_RUNS = 10
"""So many runs of a kind a user may always have in a model."""
_K = TypeVar("_K")


def runs_of_a_user(most: int) -> int:
    """How many of the `most` runs that a model learns from may be one user's."""
    return max(1, most // QUORUM)


def balanced(whose: Sequence[tuple[str, str]]) -> list[int]:
    """The positions of the runs to learn from, of which no user has more in a kind than all others together.

    A user always has up to `FEW_RUNS`, and a kind that is one user's own is left whole. whose: the user and the kind of
    each run, the most recent first; the most recent are kept.
    """
    of_user, of_kind = Counter(whose), Counter(kind for _, kind in whose)
    left = {
        (user, kind): count if count == of_kind[kind] else max(FEW_RUNS, of_kind[kind] - count)
        for (user, kind), count in of_user.items()
    }
    kept = []
    for position, each in enumerate(whose):
        left[each] -= 1
        if left[each] >= 0:
            kept.append(position)
    return kept


def may_teach(users: Collection[str], user: str) -> bool:
    """Whether a model that was fitted on runs of these users may forecast a job of `user`."""
    return user in users or len(users) >= QUORUM


def measured_for(user: str, by_user: Mapping[str, Mapping[_K, float]]) -> dict[_K, float]:
    """What may be taken to hold for a user's job, of a quantity greater than 0 that users measured under conditions.

    Under conditions in which the user measured it, their own value. Under others the median over users, if enough of
    them did, in proportion to the user's own values where both are known, and not at all where the two never meet.
    """
    own = by_user.get(user, {})
    votes: dict[_K, list[float]] = {}
    for other, measured in by_user.items():
        if other != user:
            for condition, value in measured.items():
                votes.setdefault(condition, []).append(value)
    agreed = {condition: float(np.median(values)) for condition, values in votes.items() if len(values) >= QUORUM}
    if not own:
        return agreed
    ratios = [own[condition] / agreed[condition] for condition in own.keys() & agreed.keys()]
    if not ratios:
        return dict(own)
    ratio = float(np.median(ratios))
    return {**{condition: ratio * value for condition, value in agreed.items()}, **own}

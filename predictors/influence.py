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
"""How many runs of a kind a user may always have in a model."""
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


def agreed(user: str, by_user: Mapping[str, Mapping[_K, float]]) -> dict[_K, float]:
    """What may be taken to hold for a user's job under conditions under which the user measured nothing.

    The median over the other users who measured something there, if they are enough.
    """
    own, votes = by_user.get(user, {}), dict[_K, list[float]]()
    for other, measured in by_user.items():
        if other != user:
            for condition in measured.keys() - own.keys():
                votes.setdefault(condition, []).append(measured[condition])
    return {condition: float(np.median(values)) for condition, values in votes.items() if len(values) >= QUORUM}


def pooled(user: str, by_user: Mapping[str, Sequence[float]]) -> Sequence[float]:
    """The values from which that of a user's next job may be taken: own ones, else the median of each other user, if
    they are enough."""
    if own := by_user.get(user):
        return own
    votes = [float(np.median(values)) for values in by_user.values() if len(values)]
    return votes if len(votes) >= QUORUM else []


def reached_by_enough(user: str, by_user: Mapping[str, float]) -> float:
    """The largest value that the user, or enough others, have reached; 0 for none."""
    others = sorted((value for other, value in by_user.items() if other != user), reverse=True)
    return max(by_user.get(user, 0.0), others[QUORUM - 1] if len(others) >= QUORUM else 0.0)

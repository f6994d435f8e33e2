"""What OASiS remembers from cycle to cycle, in arrays: schedules, the jobs that set its prices, offers made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.plan import Memory
from predictors.arrays import Floats, Ints

Name = tuple[int, int]
"""Job id and first submission: one cluster's jobs are in a snapshot."""


@dataclass(frozen=True, eq=False)
class Agenda:
    """slot: the absolute slot of the last decision, -1 before any.

    plans: of each admitted job its workers (k, 3): absolute slot, pool, number; pools are named in `pools`. beside:
    likewise its parameter servers. past, past_beside (k, 2 + R): `prices.terms` of the jobs seen, the latest last.
    told: the jobs of the last decision, whose terms are in. offers: the (cost, payoff) of each of them.
    """

    slot: int
    pools: tuple[str, ...]
    plans: Mapping[Name, Ints]
    beside: Mapping[Name, Ints]
    past: Floats
    past_beside: Floats
    told: frozenset[Name]
    offers: Mapping[Name, tuple[float, float]]

    @classmethod
    def recalled(cls, memory: Memory, resources: int) -> Agenda:
        """What `remembered` gave; nothing before the first decision."""
        if not memory:
            nothing = np.zeros((0, 2 + resources))
            return cls(-1, (), {}, {}, nothing, nothing, frozenset(), {})
        made = zip(_tuples(memory["offered"]), memory["offers"].tolist(), strict=True)
        return cls(
            slot=int(memory["slot"][0]),
            pools=tuple(str(name) for name in memory["pools"]),
            plans=_apart(memory["plans"]),
            beside=_apart(memory["beside"]),
            past=memory["past"],
            past_beside=memory["past_beside"],
            told=frozenset(_tuples(memory["told"])),
            offers={name: (cost, payoff) for name, (cost, payoff) in made},
        )

    def remembered(self) -> Memory:
        """As arrays."""
        return {
            "slot": np.array([self.slot]),
            "pools": np.array(self.pools, dtype=np.str_),
            "plans": _together(self.plans),
            "beside": _together(self.beside),
            "past": self.past,
            "past_beside": self.past_beside,
            "told": _names(sorted(self.told)),
            "offered": _names(list(self.offers)),
            "offers": np.array(list(self.offers.values()), dtype=np.float64).reshape(-1, 2),
        }


def upcoming(plans: Sequence[Ints], first: int, slots: int, at: Ints) -> list[Ints]:
    """Of each of the remembered `plans`, (k, 3) each, what is in the slots from `first` on, counted from there.

    at: today's pool of each remembered one, -1 where it is gone.
    """
    if not plans:
        return []
    entries = np.concatenate(plans)
    now = np.stack([entries[:, 0] - first, at[entries[:, 1]], entries[:, 2]], axis=1)
    kept = (now[:, 0] >= 0) & (now[:, 0] < slots) & (now[:, 1] >= 0)
    owner = np.repeat(np.arange(len(plans)), [len(plan) for plan in plans])[kept]
    return np.split(now[kept], np.searchsorted(owner, np.arange(1, len(plans))))


def _apart(rows: Ints) -> dict[Name, Ints]:
    """By name what `_together` made: the rows of one job lie side by side."""
    if not len(rows):
        return {}
    first = np.flatnonzero(np.any(np.diff(rows[:, :2], axis=0, prepend=-1) != 0, axis=1))
    return dict(zip(_tuples(rows[first, :2]), np.split(rows[:, 2:], first[1:]), strict=True))


def _together(plans: Mapping[Name, Ints]) -> Ints:
    if not plans:
        return np.zeros((0, 5), dtype=np.int64)
    names = np.repeat(_names(list(plans)), [len(rows) for rows in plans.values()], axis=0)
    return np.concatenate([names, np.concatenate(list(plans.values()))], axis=1).astype(np.int64)


def _names(names: list[Name]) -> Ints:
    return np.array(names, dtype=np.int64).reshape(-1, 2)


def _tuples(names: Ints) -> list[Name]:
    return [(job_id, first_submit) for job_id, first_submit in names.tolist()]

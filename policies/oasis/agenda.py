"""What OASiS remembers from cycle to cycle, in arrays: schedules, the jobs that set its prices, offers made."""

from __future__ import annotations

from collections.abc import Mapping
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
        made = zip(memory["offered"], memory["offers"].tolist(), strict=True)
        return cls(
            slot=int(memory["slot"][0]),
            pools=tuple(str(name) for name in memory["pools"]),
            plans=_apart(memory["plans"]),
            beside=_apart(memory["beside"]),
            past=memory["past"],
            past_beside=memory["past_beside"],
            told=frozenset(_name(row) for row in memory["told"]),
            offers={_name(row): (cost, payoff) for row, (cost, payoff) in made},
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


def dense(entries: Ints, first: int, slots: int, at: Ints, pools: int) -> Ints:
    """(slots, pools) the workers of `entries` (k, 3) from slot `first` on.

    at: today's pool of each remembered one, -1 where it is gone.
    """
    out = np.zeros((slots, pools), dtype=np.int64)
    when, where = entries[:, 0] - first, at[entries[:, 1]]
    kept = (when >= 0) & (when < slots) & (where >= 0)
    np.add.at(out, (when[kept], where[kept]), entries[kept, 2])
    return out


def sparse(workers: Ints, first: int) -> Ints:
    """(k, 3) the entries of workers (T, H)."""
    when, where = np.nonzero(workers)
    return np.stack([when + first, where, workers[when, where]], axis=1).astype(np.int64)


def _apart(rows: Ints) -> dict[Name, Ints]:
    out: dict[Name, list[Ints]] = {}
    for row in rows:
        out.setdefault(_name(row), []).append(row[2:])
    return {name: np.stack(entries) for name, entries in out.items()}


def _together(plans: Mapping[Name, Ints]) -> Ints:
    parts = [np.concatenate([np.tile(np.array(name), (len(rows), 1)), rows], axis=1) for name, rows in plans.items()]
    return np.concatenate([np.zeros((0, 5), dtype=np.int64), *parts]).astype(np.int64)


def _names(names: list[Name]) -> Ints:
    return np.array(names, dtype=np.int64).reshape(-1, 2)


def _name(row: Ints) -> Name:
    return int(row[0]), int(row[1])

"""Forecasts that are kept from cycle to cycle, and the rule by which they are made again.

A forecast of a curve holds for iterations to come, so one that was made some reports ago still says something. Making
it again at every report is affordable for the jobs of a live cluster, and not for the 50,000 of a simulation: the rule
is therefore a value (`CachePolicy`), and the code that makes the forecasts is the same under every rule.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts
from predictors.forecast import LEVELS, Fan


class CurveForecasts(NamedTuple):
    """Forecasts of r curves at k places each: x (r, k), table (r, k, levels), source (r,)."""

    x: Floats
    table: Floats
    source: Texts


@dataclass(frozen=True)
class CachePolicy:
    """When the forecast of a curve is made again.

    growth: once the curve has so many times as many points as the forecast was made from, or fewer points than it; None
    for whenever its inputs changed. most: forecasts made in one cycle, new jobs first, then those that waited longest;
    None for any number. shared: jobs with the same curve share one forecast, which is kept here and never forgotten,
    also those of several simulations.
    """

    growth: float | None = None
    most: int | None = None
    shared: dict[Hashable, CurveForecasts] | None = None

    def outdated(self, before: Floats, now: Floats) -> Bools:
        """(r,) whether forecasts made from the inputs `before` (r, c) are made again now that the inputs are `now`."""
        if self.growth is None:
            return np.asarray((before != now).any(axis=1))
        points, reached = before[:, 0], now[:, 0]
        return np.asarray((reached < points) | (reached >= np.maximum(points + 1, points * self.growth)))


@dataclass(frozen=True)
class CachePolicies:
    """The rule for each forecast that is made from a curve."""

    final: CachePolicy = CachePolicy()
    accuracy: CachePolicy = CachePolicy(most=1_000)
    loss: CachePolicy = CachePolicy(most=2_000)


EVERY_CHANGE = CachePolicies()
"""At every report, as many in one cycle as take two thirds of a second on one core: the daemon's."""


class ForecastCache:
    """The latest forecast of each job, and the inputs that it was made from."""

    def __init__(self, width: int, policy: CachePolicy) -> None:
        """width: places at which each curve is forecast (k)."""
        self._width, self._policy = width, policy
        self._keys: Sequence[Hashable] = ()
        self._fan = Fan.unknown(0)
        self._inputs = np.zeros((0, 1))
        self._waits = np.zeros(0, dtype=np.int64)

    def fan(
        self,
        keys: Sequence[Hashable],
        rows: Ints,
        inputs: Floats,
        make: Callable[[Ints], CurveForecasts],
        content: Callable[[int], Hashable] = int,
    ) -> Fan:
        """A fan of the jobs `keys` (n,), known in those of `rows` (r,) for which a forecast was made by now.

        The same object as in the cycle before where nothing changed.

        inputs: (r, c) what each forecast depends on, its first column the number of points. make: given positions among
        the r, their forecasts. content: given a position, a value that is equal where the forecasts are; used by a
        policy that shares.
        """
        before = self._places(keys, rows)
        old = np.flatnonzero(before >= 0)
        outdated = np.ones(len(rows), dtype=bool)
        outdated[old] = self._policy.outdated(self._inputs[before[old]], inputs[old])
        if keys is self._keys and len(rows) == len(self._inputs) and not outdated.any():
            return self._fan
        waits = np.zeros(len(rows), dtype=np.int64)
        waits[old] = self._waits[before[old]]
        waits[outdated] += 1
        due = self._due(before, outdated, waits)
        waits[due] = 0
        used = np.array(inputs, dtype=np.float64)
        used[old] = self._inputs[before[old]]
        used[due] = inputs[due]
        forecasts = self._merged(before, due, self._made(due, make, content) if len(due) else None)
        have = before >= 0
        have[due] = True
        index = np.full(len(keys), -1)
        index[rows[have]] = np.arange(int(have.sum()))
        self._keys, self._inputs, self._waits = keys, used[have], waits[have]
        x, table, source = forecasts
        self._fan = Fan(index, x[have], table[have], source[have]) if have.any() else Fan.unknown(len(keys))
        return self._fan

    def _places(self, keys: Sequence[Hashable], rows: Ints) -> Ints:
        """(r,) the place of each row's forecast among those kept, -1 where there is none."""
        if keys is self._keys:
            return self._fan.index[rows]
        places = {self._keys[row]: place for row, place in enumerate(self._fan.index.tolist()) if place >= 0}
        return np.array([places.get(keys[row], -1) for row in rows.tolist()], dtype=np.int64)

    def _due(self, before: Ints, outdated: Bools, waits: Ints) -> Ints:
        """The positions that are forecast in this cycle."""
        urgency = np.where(before < 0, np.iinfo(np.int64).max, waits)
        due = np.flatnonzero(outdated)
        return np.sort(due[np.argsort(-urgency[due], kind="stable")][: self._policy.most])

    def _made(
        self, due: Ints, make: Callable[[Ints], CurveForecasts], content: Callable[[int], Hashable]
    ) -> CurveForecasts:
        shared = self._policy.shared
        if shared is None:
            return make(due)
        contents = [content(position) for position in due.tolist()]
        new = {key: position for position, key in zip(due.tolist(), contents, strict=True) if key not in shared}
        if new:
            made = make(np.array(list(new.values())))
            shared |= {key: CurveForecasts(*(part[i] for part in made)) for i, key in enumerate(new)}
        x, table, source = zip(*(shared[key] for key in contents), strict=True)
        return CurveForecasts(np.stack(x), np.stack(table), np.array(source))

    def _merged(self, before: Ints, due: Ints, made: CurveForecasts | None) -> CurveForecasts:
        """(r,) the forecasts kept, and in the positions `due` those made now."""
        old, kept = np.flatnonzero(before >= 0), self._fan
        text = np.result_type(np.str_, kept.source, *([made.source] if made else []))
        size = (len(before), self._width)
        merged = CurveForecasts(np.zeros(size), np.zeros((*size, len(LEVELS))), np.zeros(len(before), dtype=text))
        for part, values in zip(merged, (kept.x, kept.table, kept.source), strict=True):
            if len(old):
                part[old] = values[before[old]]
        for part, values in zip(merged, made or (), strict=made is not None):
            part[due] = values
        return merged

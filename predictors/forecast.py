"""Forecasts: distributions of numbers, as values.

Every predictor answers with a `Forecast`, n distributions side by side, each given by its quantiles at the same fixed
probability levels. What decides live, in simulation and in an audit therefore reads the same numbers, and a forecast
is stored as plain arrays. `Fan` is the same for a quantity that depends on x (an iteration, a count of GPUs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from predictors.arrays import Bools, Floats, Ints, Texts

Need: TypeAlias = Literal["total", "remaining", "final", "accuracy", "loss", "speed"]
NEEDS: frozenset[Need] = frozenset(get_args(Need))

_OUTER = np.array([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1])
_INNER = np.linspace(0.15, 0.85, 15)
#: The probability levels of every table; the first and the last are the bounds of the support, which may be infinite.
LEVELS: Floats = np.round(np.concatenate([[0.0], _OUTER, _INNER, 1.0 - _OUTER[::-1], [1.0]]), 6)
_INSIDE = LEVELS[1:-1]
_LAST = len(LEVELS) - 1
_MIDDLE = int(np.flatnonzero(LEVELS == 0.5)[0])


@dataclass(frozen=True, eq=False)
class Forecast:
    """n distributions by their quantiles.

    Between two levels probability is spread evenly; beyond the outermost inner levels it falls off evenly to a finite
    bound, or exponentially (with the density of the neighbouring piece) to an infinite one. Equal quantiles are an
    atom. An unknown row is NaN throughout and has the source "".

    table: (n, len(LEVELS)) quantiles, not decreasing along a row. source: (n,) what made each row.
    Raises ValueError for other shapes and for rows that decrease.
    """

    table: Floats
    source: Texts

    def __post_init__(self) -> None:
        table = np.asarray(self.table, dtype=np.float64)
        source = np.asarray(self.source, dtype=np.str_)
        if table.ndim != 2 or table.shape[1] != len(LEVELS):
            raise ValueError(f"a forecast's table is (n, {len(LEVELS)}), not {table.shape}")
        if source.shape != (len(table),):
            raise ValueError(f"a forecast of {len(table)} rows has as many sources, not {source.shape}")
        if np.any(table[:, 1:] < table[:, :-1]):
            raise ValueError("quantiles decrease along a row of the table")
        if not np.all(np.isfinite(table[:, 1:-1]) | np.isnan(table[:, :1])):
            raise ValueError("an inner quantile is infinite, or only part of a row is NaN")
        table.flags.writeable = False
        source.flags.writeable = False
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "source", source)

    @classmethod
    def _of(cls, table: Floats, source: Texts) -> Forecast:
        """Rows of other forecasts, which need no second look."""
        made = object.__new__(cls)
        for name, column in (("table", table), ("source", source)):
            column.flags.writeable = False
            object.__setattr__(made, name, column)
        return made

    # --- making ---------------------------------------------------------------------------------------------------

    @classmethod
    def unknown(cls, n: int) -> Forecast:
        """n rows of which nothing is known."""
        return cls._of(np.full((n, len(LEVELS)), np.nan), np.full(n, ""))

    @classmethod
    def certain(cls, value: ArrayLike, source: ArrayLike) -> Forecast:
        """All probability at `value` (n,)."""
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
        return cls(np.repeat(values[:, None], len(LEVELS), axis=1), _texts(source, len(values)))

    @classmethod
    def normal(cls, mean: ArrayLike, sd: ArrayLike, source: ArrayLike) -> Forecast:
        """Normal distributions with `mean` and `sd` (n,)."""
        mean, sd = (np.atleast_1d(a) for a in np.broadcast_arrays(*(np.asarray(a, np.float64) for a in (mean, sd))))
        return cls.quantiles(_INSIDE, mean[:, None] + sd[:, None] * ndtri(_INSIDE), source)

    @classmethod
    def lognormal(cls, median: ArrayLike, sigma: ArrayLike, source: ArrayLike) -> Forecast:
        """Lognormal distributions with `median` and `sigma`, the standard deviation of the logarithm (n,)."""
        logs = np.log(np.atleast_1d(np.asarray(median, dtype=np.float64)))
        inner = cls.normal(logs, sigma, source).table[:, 1:-1]
        return cls.quantiles(_INSIDE, np.exp(inner), source, lower=0.0)

    @classmethod
    def quantiles(
        cls,
        levels: ArrayLike,
        values: ArrayLike,
        source: ArrayLike,
        *,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
    ) -> Forecast:
        """Distributions with the quantiles `values` (n, k) at increasing `levels` (k,) inside (0, 1).

        A bound is a number, or one a row.
        Values that cross are put in order (Chernozhukov, Fernández-Val, Galichon 2010); levels that the table has
        and `levels` has not are interpolated, outside of them on exponential tails.
        """
        at = np.asarray(levels, dtype=np.float64)
        given = np.sort(np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=1)
        if at.ndim != 1 or given.shape[1] != len(at):
            raise ValueError("there are as many levels as values of a row")
        inner = _Between.of(at.tobytes()).inner(given)
        table = np.empty((len(given), len(LEVELS)))
        table[:, 0], table[:, -1] = lower, upper
        table[:, 1:-1] = np.minimum(np.maximum(inner, table[:, :1]), table[:, -1:])
        if np.isfinite(given).all():
            return cls._of(table, _texts(source, len(table)))
        table[np.isnan(inner[:, 0])] = np.nan
        return cls(table, _texts(source, len(table)))

    @classmethod
    def assemble(cls, n: int, parts: Sequence[tuple[ArrayLike, Forecast]]) -> Forecast:
        """n rows, of which each part gives some: pairs of row numbers and their forecasts; the rest is unknown."""
        table = np.full((n, len(LEVELS)), np.nan)
        source = np.full(n, "", dtype=np.result_type(np.str_, *(part.source.dtype for _, part in parts)))
        for rows, part in parts:
            table[np.asarray(rows)] = part.table
            source[np.asarray(rows)] = part.source
        return cls._of(table, source)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Forecast:
        """What `to_arrays` gave."""
        return cls(arrays["table"], arrays["source"])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"table": self.table, "source": self.source}

    # --- asking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: int | slice | NDArray[Any] | Sequence[int]) -> Forecast:
        """The forecast of these rows: an integer gives a forecast of one row."""
        index = [rows] if isinstance(rows, int | np.integer) else rows
        return Forecast._of(self.table[index], self.source[index])

    @property
    def known(self) -> Bools:
        """(n,) whether anything is known of the row."""
        return ~np.isnan(self.table[:, 1])

    @property
    def mean(self) -> Floats:
        """(n,) exact means of the tabulated distributions."""
        inner = self.table[:, 1:-1]
        between = ((inner[:, 1:] + inner[:, :-1]) * np.diff(_INSIDE)).sum(axis=1) / 2
        lower, upper = self.table[:, 0], self.table[:, -1]
        edge = _INSIDE[0]
        down, up = self._scales()
        with np.errstate(invalid="ignore"):
            left = np.where(np.isfinite(lower), (lower + inner[:, 0]) / 2, inner[:, 0] - down) * edge
            right = np.where(np.isfinite(upper), (upper + inner[:, -1]) / 2, inner[:, -1] + up) * edge
        return np.asarray(left + between + right)

    @property
    def median(self) -> Floats:
        """(n,)"""
        return self.table[:, _MIDDLE]

    def quantile(self, q: ArrayLike) -> Floats:
        """(n,) for one level q in [0, 1], (n, k) for an array of k levels."""
        levels = np.asarray(q, dtype=np.float64)
        places = np.searchsorted(_INSIDE, levels)
        if (_INSIDE.take(places, mode="clip") == levels).all():
            return self.table.take(places + 1, axis=1)
        if np.any((levels < 0) | (levels > 1)):
            raise ValueError("a quantile's level is between 0 and 1")
        wanted = np.broadcast_to(np.atleast_1d(levels), (len(self), max(levels.size, 1)))
        values = self._at_level(wanted, 1.0 - wanted)
        return values[:, 0] if levels.ndim == 0 else values

    def sf(self, y: ArrayLike) -> Floats:
        """(n,) P(Y >= y), for y a number or one a row."""
        values = self._rowwise(y)
        piece = np.clip((self.table < values[:, None]).sum(axis=1) - 1, 0, _LAST - 1)
        low, high = self._edges(piece)
        down, up = self._scales()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.where(values > low, (values - low) / (high - low), 0.0)
            inside = 1.0 - (LEVELS[piece] + share * (LEVELS[piece + 1] - LEVELS[piece]))
            left = 1.0 - _INSIDE[0] * np.exp(-np.where(high > values, (high - values) / down, 0.0))
            right = _INSIDE[0] * np.exp(-np.where(values > low, (values - low) / up, 0.0))
        result = np.where(np.isinf(low), left, np.where(np.isinf(high), right, inside))
        result = np.where(values <= self.table[:, 0], 1.0, np.where(values > self.table[:, -1], 0.0, result))
        return np.where(self.known & ~np.isnan(values), result, np.nan)

    def logpdf(self, y: ArrayLike) -> Floats:
        """(n,) the logarithm of the density at y; +inf on an atom, -inf outside of the support."""
        values = self._rowwise(y)
        piece = np.clip((self.table < values[:, None]).sum(axis=1) - 1, 0, _LAST - 1)
        low, high = self._edges(piece)
        down, up = self._scales()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inside = np.log(LEVELS[piece + 1] - LEVELS[piece]) - np.log(high - low)
            left = np.log(_INSIDE[0] / down) - (high - values) / down
            right = np.log(_INSIDE[0] / up) - (values - low) / up
        result = np.where(np.isinf(low), left, np.where(np.isinf(high), right, inside))
        atom = ((self.table[:, 1:] == values[:, None]) & (self.table[:, :-1] == values[:, None])).any(axis=1)
        outside = (values < self.table[:, 0]) | (values > self.table[:, -1])
        result = np.where(atom, np.inf, np.where(outside, -np.inf, result))
        return np.where(self.known & ~np.isnan(values), result, np.nan)

    # --- transforming ---------------------------------------------------------------------------------------------

    def beyond(self, y: ArrayLike) -> Forecast:
        """Of Y - y given Y > y, for y a number or one a row: of the total run time, what remains after y.

        Where Y cannot pass y, nothing remains: all probability is at 0.
        """
        values = self._rowwise(y)
        survival = self.sf(values)[:, None] * (1.0 - LEVELS)
        table = self._at_level(1.0 - survival, survival) - values[:, None]
        in_tail = (values > self.table[:, -2]) & np.isposinf(self.table[:, -1])
        with np.errstate(divide="ignore", invalid="ignore"):
            memoryless = np.nan_to_num(-self._scales()[1][:, None] * np.log1p(-LEVELS), nan=0.0, posinf=np.inf)
            table = np.where(in_tail[:, None], memoryless, table)
            table = np.maximum.accumulate(np.maximum(table, 0.0), axis=1)
            table[:, 0] = np.maximum(self.table[:, 0] - values, 0.0)
            table[:, -1] = np.maximum(self.table[:, -1] - values, 0.0)
        return Forecast(np.where(np.isnan(table).any(axis=1, keepdims=True), np.nan, table), self.source)

    def clip(self, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf) -> Forecast:
        """Of min(max(Y, lower), upper), each a number or one a row; a NaN bound does not bind."""
        low, high = self._rowwise(lower)[:, None], self._rowwise(upper)[:, None]
        return Forecast._of(np.where(self.known[:, None], np.fmin(np.fmax(self.table, low), high), np.nan), self.source)

    def times(self, factor: ArrayLike) -> Forecast:
        """Of Y times a number, or one a row, that is not negative; 0 times anything is 0."""
        factors = self._rowwise(factor)[:, None]
        table = np.multiply(self.table, factors, out=np.zeros_like(self.table), where=factors > 0)
        return Forecast._of(table, self.source)

    # --- pieces ---------------------------------------------------------------------------------------------------

    def _rowwise(self, y: ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(y, dtype=np.float64), (len(self),))

    def _edges(self, piece: Ints) -> tuple[Floats, Floats]:
        rows = np.arange(len(self))
        return self.table[rows, piece], self.table[rows, piece + 1]

    def _scales(self) -> tuple[Floats, Floats]:
        """(n,) mean excess of the lower and of the upper exponential tail."""
        per_mass = _INSIDE[0] / (_INSIDE[1] - _INSIDE[0])
        return (self.table[:, 2] - self.table[:, 1]) * per_mass, (self.table[:, -2] - self.table[:, -3]) * per_mass

    def _at_level(self, level: Floats, survival: Floats) -> Floats:
        """(n, k) quantiles at `level` (n, k) = 1 - `survival`, given both so that far tails keep their digits."""
        piece = np.clip(np.searchsorted(LEVELS, level, side="right") - 1, 0, _LAST - 1)
        rows = np.arange(len(self))[:, None]
        low, high = self.table[rows, piece], self.table[rows, piece + 1]
        down, up = (scale[:, None] for scale in self._scales())
        share = (level - LEVELS[piece]) / (LEVELS[piece + 1] - LEVELS[piece])
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(share > 0, low + share * (high - low), low)
            left = high + np.where(down > 0, down * np.log(level / _INSIDE[0]), 0.0)
            right = low - np.where(up > 0, up * np.log(survival / _INSIDE[0]), 0.0)
        return np.where(np.isinf(low) & (low < 0), left, np.where(np.isinf(high) & (high > 0), right, inside))


@dataclass(frozen=True, eq=False)
class Fan:
    """A quantity of n rows against x, from tabulated quantiles, linear in x between the columns and flat outside.

    index: (n,) the place of each row among the m known ones, -1 where nothing is known. x: (m, k) increasing along a
    row. table: (m, k, len(LEVELS)). source: (m,).
    """

    index: Ints
    x: Floats
    table: Floats
    source: Texts

    def __post_init__(self) -> None:
        m = len(self.x)
        if self.x.ndim != 2 or self.table.shape != (*self.x.shape, len(LEVELS)) or self.source.shape != (m,):
            raise ValueError("a fan has x (m, k), a table (m, k, levels) and m sources")
        if np.any(np.diff(self.x, axis=1) <= 0):
            raise ValueError("x increases along each row of a fan")
        if len(self.index) and not -1 <= self.index.min() <= self.index.max() < m:
            raise ValueError("a fan's index names rows that it has, or -1")

    @classmethod
    def unknown(cls, n: int) -> Fan:
        """n rows of which nothing is known."""
        return cls(np.full(n, -1), np.zeros((0, 1)), np.zeros((0, 1, len(LEVELS))), np.zeros(0, dtype=np.str_))

    @classmethod
    def of(cls, n: int, rows: ArrayLike, x: Floats, forecasts: Sequence[Forecast]) -> Fan:
        """A fan of n rows, where `rows` (m,) are known at x (m, k): k forecasts of m rows, one a column."""
        index = np.full(n, -1)
        index[np.asarray(rows)] = np.arange(len(x))
        table = np.stack([forecast.table for forecast in forecasts], axis=1)
        return cls(index, np.asarray(x, dtype=np.float64), table, forecasts[0].source)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Fan:
        """What `to_arrays` gave."""
        return cls(arrays["index"], arrays["x"], arrays["table"], arrays["source"])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"index": self.index, "x": self.x, "table": self.table, "source": self.source}

    def __len__(self) -> int:
        return len(self.index)

    @property
    def known(self) -> Bools:
        """(n,) whether anything is known of the row."""
        return self.index >= 0

    def at(self, rows: ArrayLike, x: ArrayLike) -> Forecast:
        """The quantity of `rows` (r,) at `x` (a number, or one a row)."""
        wanted = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        points = np.broadcast_to(np.asarray(x, dtype=np.float64), wanted.shape)
        place = self.index[wanted]
        here = np.flatnonzero((place >= 0) & ~np.isnan(points))
        grid, table = self.x[place[here]], self.table[place[here]]
        last = grid.shape[1] - 1
        column = np.clip((grid <= points[here, None]).sum(axis=1) - 1, 0, max(last - 1, 0))
        after = np.minimum(column + 1, last)
        each = np.arange(len(here))
        low, high = grid[each, column], grid[each, after]
        share = np.clip((points[here] - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)[:, None]
        left, right = table[each, column], table[each, after]
        with np.errstate(invalid="ignore"):
            between = np.where(share <= 0, left, np.where(share >= 1, right, left + share * (right - left)))
        between = np.where(np.isinf(left) & (share < 1), left, between)
        return Forecast.assemble(len(wanted), [(here, Forecast(between, self.source[place[here]]))])


@dataclass(frozen=True, eq=False)
class Forecasts:
    """All that is forecast for a snapshot, rows as its jobs; what was not asked for is unknown.

    total, remaining: seconds. final: the target quantity at the maximum iteration. accuracy, loss: by iteration.
    speed: iterations a second by GPUs. models: the version of what made each.
    """

    total: Forecast
    remaining: Forecast
    final: Forecast
    accuracy: Fan
    loss: Fan
    speed: Fan
    models: Mapping[Need, str] = field(default_factory=dict)

    @classmethod
    def unknown(cls, n: int) -> Forecasts:
        """Nothing is known of n jobs."""
        nothing, fan = Forecast.unknown(n), Fan.unknown(n)
        return cls(nothing, nothing, nothing, fan, fan, fan)


def _texts(source: ArrayLike, n: int) -> Texts:
    return np.array(np.broadcast_to(np.asarray(source, dtype=np.str_), (n,)))


@dataclass(frozen=True, eq=False)
class _Between:
    """How quantiles at some levels become those at the inner levels of the table.

    right, share: (inner levels,) between which two, and how far. below, above: what is added of the first and the last
    slope, beyond the outermost. same: whether the levels are the inner ones.
    """

    same: bool
    right: Ints
    share: Floats
    below: Floats
    above: Floats

    @staticmethod
    @lru_cache(maxsize=64)
    def of(levels: bytes) -> _Between:
        at = np.frombuffer(levels)
        if len(at) < 2 or at[0] <= 0 or at[-1] >= 1 or np.any(np.diff(at) <= 0):
            raise ValueError("levels are increasing and inside (0, 1)")
        right = np.clip(np.searchsorted(at, _INSIDE), 1, len(at) - 1)
        share = np.clip((_INSIDE - at[right - 1]) / (at[right] - at[right - 1]), 0.0, 1.0)
        below = np.log(np.minimum(_INSIDE / at[0], 1.0)) * at[0] / (at[1] - at[0])
        above = -np.log(np.minimum((1 - _INSIDE) / (1 - at[-1]), 1.0)) * (1 - at[-1]) / (at[-1] - at[-2])
        return _Between(np.array_equal(at, _INSIDE), right, share, below, above)

    def inner(self, given: Floats) -> Floats:
        """(n, inner levels) of increasing quantiles (n, k)."""
        if self.same:
            return given
        left = given.take(self.right - 1, axis=1)
        inner = left + self.share * (given.take(self.right, axis=1) - left)
        inner += (given[:, 1:2] - given[:, :1]) * self.below + (given[:, -1:] - given[:, -2:-1]) * self.above
        return np.maximum.accumulate(inner, axis=1)

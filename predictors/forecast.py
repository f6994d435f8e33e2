"""Forecasts: distributions of numbers, as immutable values.

Every predictor returns a `Forecast`: n distributions, each given by its quantiles at the same fixed probability levels.
Live scheduling, simulation and audits therefore read the same numbers, and a forecast is stored as plain arrays. A
`Fan` is a forecast as a function of x (an iteration, a number of GPUs); `Forecasts` are all of a snapshot's jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from predictors.arrays import Bools, Floats, Ints, Texts
from predictors.quantile_table import INNER_LEVELS, LEVELS, LevelInterpolation

__all__ = ["LEVELS", "NEEDS", "Fan", "Forecast", "Forecasts", "Need"]

Need: TypeAlias = Literal["total", "remaining", "final", "accuracy", "loss", "speed", "rigid speed", "guessed speed"]
"""What can be forecast of a job; `Forecasts` has a field for each.

The field `speed` is known of the jobs whose number of GPUs may change; with "rigid speed" also of those whose may not.
With "guessed speed" a little of the rise that is expected beyond what was seen counts in it.
"""
NEEDS: frozenset[Need] = frozenset(get_args(Need))

_LAST = len(LEVELS) - 1
_MEDIAN = int(np.flatnonzero(LEVELS == 0.5)[0])


@dataclass(frozen=True, eq=False)
class Forecast:
    """n distributions, given by their quantiles.

    The density is constant between two levels. Beyond the outermost inner levels it is constant up to a finite bound,
    or falls exponentially (continuing the density of the neighbouring piece) towards an infinite one. Equal quantiles
    are an atom. An unknown row is NaN throughout and has the source "".

    table: (n, len(LEVELS)) quantiles, not decreasing along a row. source: (n,) name of the method that made each row.
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
        """A forecast of rows that are known to be valid."""
        made = object.__new__(cls)
        for name, column in (("table", table), ("source", source)):
            column.flags.writeable = False
            object.__setattr__(made, name, column)
        return made

    # --- constructors -----------------------------------------------------------------------------------------------

    @classmethod
    def unknown(cls, n: int) -> Forecast:
        """n unknown rows."""
        return cls._of(np.full((n, len(LEVELS)), np.nan), np.full(n, ""))

    @classmethod
    def certain(cls, value: ArrayLike, source: ArrayLike) -> Forecast:
        """Point masses at `value`, a number or (n,)."""
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))
        return cls(np.repeat(values[:, None], len(LEVELS), axis=1), _texts(source, len(values)))

    @classmethod
    def normal(cls, mean: ArrayLike, sd: ArrayLike, source: ArrayLike) -> Forecast:
        """Normal distributions with `mean` and standard deviation `sd`, each a number or (n,)."""
        mean, sd = (np.atleast_1d(a) for a in np.broadcast_arrays(*(np.asarray(a, np.float64) for a in (mean, sd))))
        return cls.quantiles(INNER_LEVELS, mean[:, None] + sd[:, None] * ndtri(INNER_LEVELS), source)

    @classmethod
    def lognormal(cls, median: ArrayLike, sigma: ArrayLike, source: ArrayLike) -> Forecast:
        """Lognormal distributions with `median` and `sigma`, the standard deviation of the logarithm, a number or
        (n,)."""
        logs = np.log(np.atleast_1d(np.asarray(median, dtype=np.float64)))
        inner = cls.normal(logs, sigma, source).table[:, 1:-1]
        return cls.quantiles(INNER_LEVELS, np.exp(inner), source, lower=0.0)

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

        lower, upper: bounds, each a number or (n,). Quantiles that cross are sorted (Chernozhukov, Fernández-Val,
        Galichon 2010). Levels of the table that are not given are interpolated, and extrapolated on exponential tails.
        Raises ValueError unless levels increase, and are as many as the values of a row.
        """
        at = np.asarray(levels, dtype=np.float64)
        given = np.sort(np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=1)
        if at.ndim != 1 or given.shape[1] != len(at):
            raise ValueError("there are as many levels as values of a row")
        inner = LevelInterpolation.of(at.tobytes()).inner(given)
        table = np.empty((len(given), len(LEVELS)))
        table[:, 0], table[:, -1] = lower, upper
        table[:, 1:-1] = np.minimum(np.maximum(inner, table[:, :1]), table[:, -1:])
        if np.isfinite(given).all():
            return cls._of(table, _texts(source, len(table)))
        table[np.isnan(inner[:, 0])] = np.nan
        return cls(table, _texts(source, len(table)))

    @classmethod
    def assemble(cls, n: int, parts: Sequence[tuple[ArrayLike, Forecast]]) -> Forecast:
        """n rows from parts: pairs of row numbers and a forecast of as many rows. All other rows are unknown."""
        table = np.full((n, len(LEVELS)), np.nan)
        source = np.full(n, "", dtype=np.result_type(np.str_, *(part.source.dtype for _, part in parts)))
        for rows, part in parts:
            table[np.asarray(rows)] = part.table
            source[np.asarray(rows)] = part.source
        return cls._of(table, source)

    # --- queries ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: int | slice | NDArray[Any] | Sequence[int]) -> Forecast:
        """The forecast of these rows: an integer gives a forecast of one row."""
        index = [rows] if isinstance(rows, int | np.integer) else rows
        return Forecast._of(self.table[index], self.source[index])

    @property
    def known(self) -> Bools:
        """(n,) whether the row is known."""
        return ~np.isnan(self.table[:, 1])

    @property
    def mean(self) -> Floats:
        """(n,) means of the tabulated distributions, exact."""
        inner = self.table[:, 1:-1]
        between = ((inner[:, 1:] + inner[:, :-1]) * np.diff(INNER_LEVELS)).sum(axis=1) / 2
        lower, upper = self.table[:, 0], self.table[:, -1]
        edge = INNER_LEVELS[0]
        down, up = self._scales()
        with np.errstate(invalid="ignore"):
            left = np.where(np.isfinite(lower), (lower + inner[:, 0]) / 2, inner[:, 0] - down) * edge
            right = np.where(np.isfinite(upper), (upper + inner[:, -1]) / 2, inner[:, -1] + up) * edge
        return np.asarray(left + between + right)

    @property
    def median(self) -> Floats:
        """(n,) medians."""
        return self.table[:, _MEDIAN]

    def quantile(self, q: ArrayLike) -> Floats:
        """Quantiles: (n,) for a level q in [0, 1], (n, k) for k levels. Raises ValueError for a level outside of it."""
        levels = np.asarray(q, dtype=np.float64)
        places = np.searchsorted(INNER_LEVELS, levels)
        if (INNER_LEVELS.take(places, mode="clip") == levels).all():
            return self.table.take(places + 1, axis=1)
        if np.any((levels < 0) | (levels > 1)):
            raise ValueError("a quantile's level is between 0 and 1")
        wanted = np.broadcast_to(np.atleast_1d(levels), (len(self), max(levels.size, 1)))
        values = self._at_level(wanted, 1.0 - wanted)
        return values[:, 0] if levels.ndim == 0 else values

    def sf(self, y: ArrayLike) -> Floats:
        """(n,) survival function P(Y >= y); y is a number or (n,). NaN where unknown."""
        values = self._rowwise(y)
        piece = np.clip((self.table < values[:, None]).sum(axis=1) - 1, 0, _LAST - 1)
        low, high = self._edges(piece)
        down, up = self._scales()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.where(values > low, (values - low) / (high - low), 0.0)
            inside = 1.0 - (LEVELS[piece] + share * (LEVELS[piece + 1] - LEVELS[piece]))
            left = 1.0 - INNER_LEVELS[0] * np.exp(-np.where(high > values, (high - values) / down, 0.0))
            right = INNER_LEVELS[0] * np.exp(-np.where(values > low, (values - low) / up, 0.0))
        result = np.where(np.isinf(low), left, np.where(np.isinf(high), right, inside))
        result = np.where(values <= self.table[:, 0], 1.0, np.where(values > self.table[:, -1], 0.0, result))
        return np.where(self.known & ~np.isnan(values), result, np.nan)

    def logpdf(self, y: ArrayLike) -> Floats:
        """(n,) logarithm of the density at y, a number or (n,): +inf on an atom, -inf outside of the support."""
        values = self._rowwise(y)
        piece = np.clip((self.table < values[:, None]).sum(axis=1) - 1, 0, _LAST - 1)
        low, high = self._edges(piece)
        down, up = self._scales()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inside = np.log(LEVELS[piece + 1] - LEVELS[piece]) - np.log(high - low)
            left = np.log(INNER_LEVELS[0] / down) - (high - values) / down
            right = np.log(INNER_LEVELS[0] / up) - (values - low) / up
        result = np.where(np.isinf(low), left, np.where(np.isinf(high), right, inside))
        atom = ((self.table[:, 1:] == values[:, None]) & (self.table[:, :-1] == values[:, None])).any(axis=1)
        outside = (values < self.table[:, 0]) | (values > self.table[:, -1])
        result = np.where(atom, np.inf, np.where(outside, -np.inf, result))
        return np.where(self.known & ~np.isnan(values), result, np.nan)

    # --- transformations --------------------------------------------------------------------------------------------

    def beyond(self, y: ArrayLike) -> Forecast:
        """The distribution of Y - y given Y > y, for y a number or (n,): of a run time, the time remaining after y.

        Where Y cannot exceed y it is a point mass at 0.
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
        """The distribution of min(max(Y, lower), upper); a bound is a number or (n,), and is ignored where it is
        NaN."""
        low, high = self._rowwise(lower)[:, None], self._rowwise(upper)[:, None]
        return Forecast._of(np.where(self.known[:, None], np.fmin(np.fmax(self.table, low), high), np.nan), self.source)

    def times(self, factor: ArrayLike) -> Forecast:
        """The distribution of Y times a factor that is not negative, a number or (n,). 0 times infinity is 0."""
        factors = self._rowwise(factor)[:, None]
        table = np.multiply(self.table, factors, out=np.zeros_like(self.table), where=factors > 0)
        return Forecast._of(table, self.source)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _rowwise(self, y: ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(y, dtype=np.float64), (len(self),))

    def _edges(self, piece: Ints) -> tuple[Floats, Floats]:
        rows = np.arange(len(self))
        return self.table[rows, piece], self.table[rows, piece + 1]

    def _scales(self) -> tuple[Floats, Floats]:
        """(n,) mean excess of the lower and of the upper exponential tail."""
        per_mass = INNER_LEVELS[0] / (INNER_LEVELS[1] - INNER_LEVELS[0])
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
            left = high + np.where(down > 0, down * np.log(level / INNER_LEVELS[0]), 0.0)
            right = low - np.where(up > 0, up * np.log(survival / INNER_LEVELS[0]), 0.0)
        return np.where(np.isinf(low) & (low < 0), left, np.where(np.isinf(high) & (high > 0), right, inside))


@dataclass(frozen=True, eq=False)
class Fan:
    """Distributions of n rows as functions of x: quantiles tabulated at k values of x.

    Quantiles are interpolated linearly in x, and constant outside of the tabulated range.

    index: (n,) position of each row among the m known ones, -1 where it is unknown. x: (m, k) increasing along a row.
    table: (m, k, len(LEVELS)) quantiles. source: (m,) name of the method that made each row. Raises ValueError for
    other shapes, for x that does not increase, and for an index out of range.
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
        """n unknown rows."""
        return cls(np.full(n, -1), np.zeros((0, 1)), np.zeros((0, 1, len(LEVELS))), np.zeros(0, dtype=np.str_))

    @classmethod
    def of(cls, n: int, rows: ArrayLike, x: Floats, forecasts: Sequence[Forecast]) -> Fan:
        """A fan of n rows, where `rows` (m,) are known at x (m, k), by k forecasts of m rows each, one for each
        column."""
        index = np.full(n, -1)
        index[np.asarray(rows)] = np.arange(len(x))
        table = np.stack([forecast.table for forecast in forecasts], axis=1)
        return cls(index, np.asarray(x, dtype=np.float64), table, forecasts[0].source)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def known(self) -> Bools:
        """(n,) whether the row is known."""
        return self.index >= 0

    def at(self, rows: ArrayLike, x: ArrayLike) -> Forecast:
        """The distributions of `rows` (r,) at `x`, a number or (r,). Unknown where the row is, or where x is NaN."""
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
    """All forecasts for the n jobs of a snapshot, in its order; what was not requested is unknown.

    total, remaining: run time in seconds. final: the target metric at the maximum iteration. accuracy, loss: by
    iteration. speed: iterations per second by number of GPUs. models: version of the model behind each.
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
        """Forecasts of n jobs that are all unknown."""
        nothing, fan = Forecast.unknown(n), Fan.unknown(n)
        return cls(nothing, nothing, nothing, fan, fan, fan)


def _texts(source: ArrayLike, n: int) -> Texts:
    return np.array(np.broadcast_to(np.asarray(source, dtype=np.str_), (n,)))

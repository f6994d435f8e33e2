"""Median forecasts of training speed by number of GPUs, without a distribution object for each lookup."""

from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forecast import LEVELS, Fan

MEDIAN = int(np.abs(LEVELS - 0.5).argmin())
"""The column of a fan's table that holds the median."""
_BLOCK = 1 << 18
"""numbers processed at once, so that they fit into the processor's cache"""
_ROUNDING = 1e-9
"""a smaller slope, over the first, is a rounding error"""


class MedianSpeeds:
    """The median forecast of speed by row and number of GPUs."""

    def __init__(self, fan: Fan) -> None:
        self._place = fan.index.tolist()
        self._gpus = fan.x
        self._speed = fan.table[:, :, MEDIAN]
        self._saved: dict[int, list[float]] = {}

    @classmethod
    @lru_cache(maxsize=1)
    def of(cls, fan: Fan) -> "MedianSpeeds":
        """The speeds of a fan; cached, since consecutive decisions often have the same fan."""
        return cls(fan)

    def at(self, row: int, gpus: float) -> float:
        """Iterations a second of this row on `gpus` GPUs; NaN where the speed is unknown."""
        place = self._place[row]
        return float(np.interp(gpus, self._gpus[place], self._speed[place])) if place >= 0 else np.nan

    def up_to(self, row: int, gpus: int) -> Floats:
        """(gpus + 1,) the same of this row, whose speed is known, on 0, 1, ... GPUs."""
        place = self._place[row]
        speed: Floats = np.interp(np.arange(gpus + 1), self._gpus[place], self._speed[place])
        return speed

    def saved(self, row: int, gpus: int) -> float:
        """Seconds an iteration that one more GPU saves this row, whose speed is known, on `gpus` GPUs."""
        place = self._place[row]
        saved = self._saved.get(place)
        if saved is None:
            grid = self._gpus[place]
            speed = np.interp(np.arange(int(grid[-1]) + 1), grid, self._speed[place])
            times = np.divide(1.0, speed, out=np.full(len(speed), np.inf), where=speed > 0)
            with np.errstate(invalid="ignore"):
                saved = self._saved[place] = (times[:-1] - times[1:]).tolist()
        return saved[gpus] if gpus < len(saved) else 0.0


def interpolated(grid: Floats, values: Floats, x: Floats) -> Floats:
    """(r, c) rows of `values` (r, k) at x (r, c), linear between the points of `grid` (r, k) and flat outside."""
    r, k = grid.shape
    if k == 1:
        return np.broadcast_to(values, x.shape)
    if x.size * k <= _BLOCK:
        return _interpolated(grid, values, x, (grid[:, 1:-1, None] <= x[:, None, :]).sum(axis=1))
    out = np.empty(x.shape)
    step = max(1, _BLOCK // max(1, x.shape[1] * k))
    for at in range(0, r, step):
        part = slice(at, at + step)
        column = np.zeros(x[part].shape, dtype=np.int64)
        for j in range(1, k - 1):
            column += grid[part, j : j + 1] <= x[part]
        out[part] = _interpolated(grid[part], values[part], x[part], column)
    return out


def _interpolated(grid: Floats, values: Floats, x: Floats, column: Ints) -> Floats:
    """As `interpolated`, where x (r, c) lies between point `column` (r, c) of the grid and the next, or outside."""
    low = column + np.arange(0, grid.size, grid.shape[1])[:, None]
    left, at_left = values.take(low), grid.take(low)
    slope = (values.take(low + 1) - left) / (grid.take(low + 1) - at_left)
    inside = np.minimum(np.maximum(x, grid[:, :1]), grid[:, -1:])
    return np.asarray(left + slope * (inside - at_left))


def concave_hull(speed: Fan, rows: Ints, least: Ints, most: Ints) -> tuple[Floats, Floats, Floats]:
    """The concave hull, through (0, 0), of the forecast speed of these rows (r,) on `least` to `most` (r,) GPUs.

    The first GPU on a second node may reduce the speed and further ones raise it: without the hull nobody would take
    the first.

    Returns:
        Numbers of GPUs (r, k), ascending, and the slopes up to each (r, k), over the first of them; 0 where no number
        of GPUs beyond is faster, and everywhere where the speed is 0. And the speed on the first GPU (r,).
    """
    grid, median = speed.x[speed.index[rows]], speed.table[speed.index[rows], :, MEDIAN]
    low, high = least[:, None].astype(np.float64), most[:, None].astype(np.float64)
    at = np.concatenate([low, np.clip(grid, low, high), high], axis=1)
    value = interpolated(grid, np.nan_to_num(median), at)
    slopes = np.zeros(at.shape)
    x, y = np.zeros(len(rows)), np.zeros(len(rows))
    for column in range(at.shape[1]):
        run, rise = at[:, column:] - x[:, None], value[:, column:] - y[:, None]
        ahead = np.divide(rise, run, out=np.zeros(run.shape), where=run > 0)
        slopes[:, column] = np.maximum(ahead.max(axis=1), 0.0)
        y += slopes[:, column] * run[:, 0]
        x = at[:, column]
    one = slopes[:, :1]
    relative = np.divide(slopes, one, out=np.zeros(slopes.shape), where=one > 0)
    falling = np.minimum.accumulate(np.where(relative > _ROUNDING, relative, 0.0), axis=1)  # but for rounding it is
    return at, falling, slopes[:, 0]


def relative_speed(at: Floats, rate: Floats, gpus: Ints) -> Floats:
    """(r,) the speed on these GPUs (r,), over that on one, on the hull of these slopes (r, k) up to `at` (r, k)."""
    end = np.minimum(at, gpus[:, None])
    return np.asarray((np.diff(end, axis=1, prepend=0.0) * rate).sum(axis=1))

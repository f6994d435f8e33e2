"""Median forecasts of training speed by number of GPUs, without a distribution object for each lookup."""

from functools import lru_cache

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import LEVELS, Fan

MEDIAN = int(np.abs(LEVELS - 0.5).argmin())
"""The column of a fan's table that holds the median."""
_BLOCK = 1 << 18
"""numbers processed at once, so that they fit into the processor's cache"""


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
    out = np.empty(x.shape)
    step = max(1, _BLOCK // max(1, x.shape[1] * k))
    for at in range(0, r, step):
        part = slice(at, at + step)
        g, v, points = grid[part], values[part], x[part]
        column = np.zeros(points.shape, dtype=np.int64)
        for j in range(1, k - 1):
            column += g[:, j : j + 1] <= points
        each = np.arange(len(g))[:, None]
        slope = np.diff(v, axis=1) / np.diff(g, axis=1)
        inside = np.clip(points, g[:, :1], g[:, -1:])
        out[part] = v[each, column] + slope[each, column] * (inside - g[each, column])
    return out

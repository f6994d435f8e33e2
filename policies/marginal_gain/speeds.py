"""Median forecasts of training speed by number of GPUs, without a distribution object for each lookup."""

from functools import lru_cache

import numpy as np

from predictors.arrays import Floats
from predictors.forecast import LEVELS, Fan

MEDIAN = int(np.abs(LEVELS - 0.5).argmin())
"""The column of a fan's table that holds the median."""


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

"""The probability levels of every quantile table, and interpolation to them from quantiles at other levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from predictors.arrays import Floats, Ints

_OUTER = np.array([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1])
_MIDDLE = np.linspace(0.15, 0.85, 15)
#: The probability levels of every table; the first and the last are the bounds of the support, which may be infinite.
LEVELS: Floats = np.round(np.concatenate([[0.0], _OUTER, _MIDDLE, 1.0 - _OUTER[::-1], [1.0]]), 6)
#: Those inside (0, 1).
INNER_LEVELS: Floats = LEVELS[1:-1]


@dataclass(frozen=True, eq=False)
class LevelInterpolation:
    """Maps quantiles at given levels to those at `INNER_LEVELS`.

    right, share: (inner levels,) index of the next given level, and position between it and the one before. below,
    above: (inner levels,) multiples of the first and of the last slope that are added outside of the given levels.
    same: whether the given levels are the inner ones.
    """

    same: bool
    right: Ints
    share: Floats
    below: Floats
    above: Floats

    @staticmethod
    @lru_cache(maxsize=64)
    def of(levels: bytes) -> LevelInterpolation:
        """For increasing levels inside (0, 1), as the bytes of a float64 array. Raises ValueError for any others."""
        at = np.frombuffer(levels)
        if len(at) < 2 or at[0] <= 0 or at[-1] >= 1 or np.any(np.diff(at) <= 0):
            raise ValueError("levels are increasing and inside (0, 1)")
        right = np.clip(np.searchsorted(at, INNER_LEVELS), 1, len(at) - 1)
        share = np.clip((INNER_LEVELS - at[right - 1]) / (at[right] - at[right - 1]), 0.0, 1.0)
        below = np.log(np.minimum(INNER_LEVELS / at[0], 1.0)) * at[0] / (at[1] - at[0])
        above = -np.log(np.minimum((1 - INNER_LEVELS) / (1 - at[-1]), 1.0)) * (1 - at[-1]) / (at[-1] - at[-2])
        return LevelInterpolation(np.array_equal(at, INNER_LEVELS), right, share, below, above)

    def inner(self, quantiles: Floats) -> Floats:
        """(n, inner levels) of increasing quantiles (n, k) at the given levels."""
        if self.same:
            return quantiles
        left = quantiles.take(self.right - 1, axis=1)
        inner = left + self.share * (quantiles.take(self.right, axis=1) - left)
        first, last = quantiles[:, 1:2] - quantiles[:, :1], quantiles[:, -1:] - quantiles[:, -2:-1]
        inner += first * self.below + last * self.above
        return np.maximum.accumulate(inner, axis=1)

"""What makes curves of accuracies, percentages, losses and anything else comparable."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats


class CurveScale:
    """What makes curves comparable: shares stay, percentages become shares, what is negative throughout (a loss, of
    which the target asks less) becomes the share of the first loss that is gone, all else fills four fifths of [0, 1].

    low, unit, lower, upper: (m,) value = low + unit * scaled, within the bounds.
    """

    def __init__(self, low: Floats, unit: Floats, lower: Floats, upper: Floats) -> None:
        self.low, self.unit, self.lower, self.upper = low, unit, lower, upper

    @classmethod
    def of(cls, curves: Floats) -> CurveScale:
        """Of curves (m, n)."""
        low, high = curves.min(axis=1), curves.max(axis=1)
        share: Bools = (low >= 0.0) & (high <= 1.0)
        percent: Bools = (low >= 0.0) & (high > 1.5) & (high <= 100.0)
        negated: Bools = high < 0.0
        free = 1.25 * np.maximum(high - low, 1e-3 * np.maximum(np.abs(low), np.abs(high)))
        unit = np.where(share, 1.0, np.where(percent, 100.0, np.where(negated, -low, np.where(free > 0, free, 1.0))))
        bounded = share | percent
        lower = np.where(bounded, 0.0, -np.inf)
        upper = np.where(bounded, unit, np.where(negated, 0.0, np.inf))
        return cls(np.where(bounded, 0.0, low), unit, lower, upper)

    def down(self, values: Floats) -> Floats:
        return np.asarray((values - self.low[:, None]) / self.unit[:, None])

    def up(self, values: Floats) -> Floats:
        return np.asarray(self.low[:, None] + values * self.unit[:, None])

"""Normalises curves of accuracies, percentages, losses and other metrics to a common scale."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Bools, Floats


class CurveScale:
    """A linear scale for each of m curves, and the bounds of its metric.

    Curves within [0, 1] are kept, percentages are divided by 100. Of curves that are negative throughout (a loss times
    -1), the normalised value is the share of the first loss that is gone. Any other curve fills four fifths of [0, 1].

    low, unit: (m,) value = low + unit * normalised. lower, upper: (m,) bounds of the values, may be infinite.
    """

    def __init__(self, low: Floats, unit: Floats, lower: Floats, upper: Floats) -> None:
        self.low, self.unit, self.lower, self.upper = low, unit, lower, upper

    @classmethod
    def fit(cls, curves: Floats) -> CurveScale:
        """The scales of curves (m, n)."""
        low, high = curves.min(axis=1), curves.max(axis=1)
        fraction: Bools = (low >= 0.0) & (high <= 1.0)
        percent: Bools = (low >= 0.0) & (high > 1.5) & (high <= 100.0)
        negated: Bools = high < 0.0
        free = 1.25 * np.maximum(high - low, 1e-3 * np.maximum(np.abs(low), np.abs(high)))
        unit = np.where(fraction, 1.0, np.where(percent, 100.0, np.where(negated, -low, np.where(free > 0, free, 1.0))))
        bounded = fraction | percent
        lower = np.where(bounded, 0.0, -np.inf)
        upper = np.where(bounded, unit, np.where(negated, 0.0, np.inf))
        return cls(np.where(bounded, 0.0, low), unit, lower, upper)

    def normalise(self, values: Floats) -> Floats:
        """Values (m, k) of the curves on the common scale."""
        return np.asarray((values - self.low[:, None]) / self.unit[:, None])

    def denormalise(self, values: Floats) -> Floats:
        """Normalised values (m, k) in the units of the curves."""
        return np.asarray(self.low[:, None] + values * self.unit[:, None])

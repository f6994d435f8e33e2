"""Fills gaps in reported curves, so that predictors see finite numbers only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Floats

_MAX_MAGNITUDE = 1e100
"""larger numbers count as missing"""


def fill_missing(curve: ArrayLike) -> Floats:
    """The curve (n,) with its NaN, infinite and huge values interpolated linearly from their neighbours.

    Raises ValueError unless the curve has one dimension and at least one finite value.
    """
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a curve has one dimension, not {values.ndim}")
    finite = np.isfinite(values) & (np.abs(values) < _MAX_MAGNITUDE)
    if not finite.any():
        raise ValueError("a curve needs at least one finite value")
    if finite.all():
        return values
    positions = np.arange(len(values))
    return np.interp(positions, positions[finite], values[finite])

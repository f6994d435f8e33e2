"""Curves as they come: what makes a sequence of reported values fit to be looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from predictors.arrays import Floats

_HUGE = 1e100


def cleaned(curve: ArrayLike) -> Floats:
    """The curve (n,) with points that are no number filled in from their neighbours.

    Raises ValueError for what has not one dimension or no finite value.
    """
    values = np.asarray(curve, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"a curve has one dimension, not {values.ndim}")
    finite = np.isfinite(values) & (np.abs(values) < _HUGE)
    if not finite.any():
        raise ValueError("a curve needs at least one finite value")
    if finite.all():
        return values
    places = np.arange(len(values))
    return np.interp(places, places[finite], values[finite])

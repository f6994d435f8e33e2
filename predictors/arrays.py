"""The array types that every signature here uses, and what NumPy does slowly to short ones."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Texts: TypeAlias = NDArray[np.str_]


def clipped(values: Floats, low: float, high: float) -> Floats:
    """`np.clip`, which takes five times as long for a row or two."""
    return np.asarray(np.minimum(np.maximum(values, low), high))

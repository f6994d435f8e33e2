"""How many equal parts of a request nodes have room for."""

import numpy as np

from predictors.arrays import Floats

_SLACK = 1e-6
"""of a CPU or a MiB, lost to rounding"""


def parts_on(free: Floats, part: Floats) -> Floats:
    """(...,) how many parts that each need `part` (..., resources) fit in what is `free` (..., resources).

    Below 0 where that is; infinite for a part that needs nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(part > 0, np.floor((free + _SLACK) / part), np.inf).min(axis=-1))

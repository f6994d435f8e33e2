"""How many equal parts of a request nodes have room for."""

from functools import reduce

import numpy as np

from predictors.arrays import Floats

_SLACK = 1e-6
"""of a CPU or a MiB, lost to rounding"""


def parts_on(free: Floats, part: Floats) -> Floats:
    """(...,) how many parts that each need `part` (..., resources) fit in what is `free` (..., resources).

    Below 0 where that is; infinite for a part that needs nothing.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        of_each = np.where(part > 0, (free + _SLACK) / part, np.inf)
    return np.asarray(np.floor(reduce(np.minimum, of_each.T).T))

"""Whether a target and what the job reports of it are in the same unit: shares from 0 to 1, or percentages."""

from typing import Literal, TypeAlias

import numpy as np

from predictors.arrays import Floats
from slurmplug.directives import quantities
from slurmplug.directives.parser import Target

UnitMismatch: TypeAlias = Literal["", "percent", "share"]
"""What the reports seem to be while the target is the other; empty where nothing speaks for that."""
PERCENT = 100.0


def unit_mismatch(target: Target, values: Floats) -> UnitMismatch:
    """Whether the values (k,) reported so far seem to be in another unit than the target.

    `percent`: at least 0 < x <= 1 is to be reached, and a value above 1 was reported, which would meet it. `share`: at
    least 1 < x <= 100 is to be reached, or at most x > 1, and only values in [0, 1] were reported, which for the latter
    would meet it. Losses and others that are no shares have no percentages: `loss<=0.1` at 2.3 is as it should be.
    """
    if not len(values):
        return ""
    what = quantities.known(target.quantity)
    if what is not None and not what.share:
        return ""
    limit, at_least = target.value, target.relation == ">="
    if at_least and 0 < limit <= 1:
        return "percent" if float(values.max()) > 1 else ""
    within = bool(np.all((values >= 0) & (values <= 1)))
    large = 1 < limit <= PERCENT if at_least else limit > 1
    return "share" if large and within else ""

"""How far the progress that a job reports is believed: by the share of its forecast GPU time that it has attained.

Reports are claims. Whatever they say, a job that has used nothing has shown nothing, and one that waits for its next
run cannot be seen to keep what it promised.
"""

import numpy as np

from predictors.arrays import Bools, Floats

TRIAL = 0.1
"""The share of its forecast GPU time after which a job's reports count in full, while it runs."""
CARRIED_OVER = 0.5
"""The most that the reports of an earlier run count, until the present one has reported."""


def believed(attained: Floats, forecast: Floats, of_this_run: Bools) -> Floats:
    """(n,) in [0, 1]: how much of what its reports promise counts.

    attained, forecast: GPU time, or seconds on the same GPUs, so far and in all; in full where nothing is forecast.
    of_this_run: whether the present run has reported.
    """
    with np.errstate(invalid="ignore"):
        tried = np.divide(attained, TRIAL * forecast, out=np.ones(len(attained)), where=forecast > 0)
    return np.asarray(np.minimum(tried, 1.0) * np.where(of_this_run, 1.0, CARRIED_OVER))

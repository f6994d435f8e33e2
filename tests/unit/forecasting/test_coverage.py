"""What the daemon says of run times holds on mixes of jobs as sites have them: see `tests.run_time_sites`."""

from typing import Any

import numpy as np
import pytest

from predictors.arrays import Bools
from predictors.forecast import Forecast
from predictors.runtime import RuntimePredictor
from slurmplug.forecasting.run_times import with_evidence
from tests.run_time_sites import Site, site

REFITTED_AT = (10, 25, 50, 100, 200)
"""ended jobs, at which the daemon would train anew"""

MIXES: dict[str, dict[str, Any]] = {
    "eight users": {},
    "the first jobs of a small site": {"users": 3, "jobs": 120},
    "one name for all": {"names": 1, "kinds": 6},
    "in bursts": {"burst": 12},
    "none is stopped": {"stops": 0.0},
    "a third is stopped": {"stops": 0.6},
}


def forecasts(of: Site) -> Forecast:
    """Of each job as it is submitted, by the runs that had ended then; what a stopped one teaches, its pace said."""
    predictor, ended = RuntimePredictor(), [float(job["end"]) for job in of.jobs]
    parts, learnt = [], 0
    for job in of.jobs:
        done = [row for row, end in enumerate(ended) if end <= job["submit"] and not np.isnan(of.learned[row])]
        if sum(at <= len(done) for at in REFITTED_AT) > learnt:
            learnt += 1
            by_end = sorted(done, key=ended.__getitem__)
            predictor.fit([of.jobs[row] for row in by_end], of.learned[by_end])
        parts.append(with_evidence(predictor, [job])[0])
    return Forecast(np.concatenate([part.table for part in parts]), np.concatenate([part.source for part in parts]))


def within(forecast: Forecast, of: Site) -> Bools:
    low, high = forecast.quantile([0.05, 0.95]).T
    return np.asarray((of.whole >= low) & (of.whole <= high))


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_nine_of_ten_jobs_end_within_their_interval_on_mixes_of_kinds(mix: dict[str, Any]) -> None:
    inside = []
    for seed in range(3):
        one = site(seed, **mix)
        inside.append(within(forecasts(one), one))
    assert 0.85 <= np.concatenate(inside).mean() <= 0.95

"""What each job requests, as a share of the cluster, and how long it is expected to run."""

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecast


def cluster_shares(snapshot: Snapshot) -> Floats:
    """(n, resources) the demand of each job as a share of the total capacity of the nodes that are up."""
    capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
    return np.asarray(snapshot.jobs.demand / np.where(capacity > 0, capacity, np.inf))


def total_seconds(jobs: Jobs, forecast: Forecast) -> Floats:
    """(n,) expected total run time in seconds; the time limit without a forecast, NaN without either."""
    return np.where(forecast.known, forecast.mean, jobs.time_limit)


def remaining_seconds(snapshot: Snapshot, forecast: Forecast) -> Floats:
    """(n,) expected remaining seconds; what is left of the time limit without a forecast, NaN without either."""
    jobs = snapshot.jobs
    return np.where(forecast.known, forecast.mean, np.maximum(jobs.time_limit - snapshot.elapsed, 0.0))

"""What each job requests, as a share of the cluster, and how long it is expected to run."""

import numpy as np

from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecast


def cluster_shares(snapshot: Snapshot) -> Floats:
    """(n, resources) what each job asks for, in shares of all that the nodes have."""
    capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
    return np.asarray(snapshot.jobs.demand / np.where(capacity > 0, capacity, np.inf))


def total_seconds(jobs: Jobs, forecast: Forecast) -> Floats:
    """(n,) expected run time in all; the time limit where nothing is forecast, NaN where there is none either."""
    return np.where(forecast.known, forecast.mean, jobs.time_limit)


def remaining_seconds(snapshot: Snapshot, forecast: Forecast) -> Floats:
    """(n,) expected run time left; what the time limit leaves where nothing is forecast, NaN without one."""
    jobs = snapshot.jobs
    elapsed = np.nan_to_num(np.maximum(snapshot.now - jobs.started, 0.0))
    return np.where(forecast.known, forecast.mean, np.maximum(jobs.time_limit - elapsed, 0.0))

"""Run times of jobs that state their iterations: by those, and by how fast other jobs of their kind train."""

import numpy as np

from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import LEVELS, Forecast
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.paces import Paces, by_run_times

SOURCE = "iterations"


def by_iterations(snapshot: Snapshot, by_runs: Forecast, least: Floats, paces: KindPaces) -> Forecast:
    """The run times of the jobs (n,) on the GPUs that they have or request, in seconds.

    by_runs (n,): by earlier runs or the time limit, which stays where no pace is known. It is weighed against what the
    stated iterations take at the paces of other jobs of the kind, each by how well it tells the job's pace.

    Iterations and paces are claims, so the median and what lies above it are at least `least` (n,), whatever follows
    from them, and a job that runs for longer outlives its forecast. What the job itself has reported takes no part: it
    is held against this (`run_times.shortest_believed`). No forecast exceeds the time limit.
    """
    jobs = snapshot.jobs
    asked = np.flatnonzero((jobs.max_iterations > 0) & (jobs.gpus > 0) & (jobs.trials == "")).tolist()
    kinds, users, gpus = paces.kinds(jobs), jobs.user.tolist(), jobs.gpus.tolist()
    found = [(row, paces.expected_without_itself(kinds[row], users[row], jobs.keys[row], gpus[row])) for row in asked]
    of_kind = [(row, pace) for row, pace in found if pace is not None]
    if not of_kind:
        return by_runs
    rows = np.array([row for row, _ in of_kind])
    iterations, of_others = jobs.max_iterations[rows], Paces(*np.array([pace for _, pace in of_kind]).T)
    log_step, spread = of_others.mixed_with(by_run_times(by_runs[rows], iterations))
    seconds = Forecast.lognormal(iterations * np.exp(log_step), spread, SOURCE)
    raised = np.where(LEVELS >= 0.5, np.fmax(seconds.table, least[rows, None]), seconds.table)
    by_pace = Forecast(raised, seconds.source).clip(upper=jobs.time_limit[rows])
    return Forecast.assemble(len(jobs), [(np.arange(len(jobs)), by_runs), (rows, by_pace)])

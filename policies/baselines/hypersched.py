"""As much accuracy as possible by the deadline."""

from dataclasses import dataclass

import numpy as np

from policies.placement.allocation import elastic, gang_gpus, grow_elastic, queue_order
from policies.placement.plans import plan_allocation
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class HyperSchedSettings:
    """trial: accuracies that a job reports before its gain is estimated. tolerance: the least expected gain in
    accuracy; a job below it is paused. hysteresis: factor on the gain of a running job."""

    trial: int = 3
    tolerance: float = 0.002
    hysteresis: float = 1.5

    def __post_init__(self) -> None:
        if self.trial < 2:
            raise ValueError(f"trial is at least 2 accuracies, not {self.trial}")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance is a number not less than 0, not {self.tolerance}")
        if not self.hysteresis >= 1:
            raise ValueError(f"hysteresis is at least 1, not {self.hysteresis}")


class HyperSched(Policy):
    """GPUs for the jobs whose accuracy will rise most by their deadline (Liaw et al., SoCC 2019).

    New jobs go first until they have reported a few accuracies (exploration, section 4.2); then those with the greatest
    gain by the deadline (exploitation, 4.3), and elastic jobs get GPUs in proportion to it. A job that no longer
    improves is paused, and one past its deadline waits, while others need its GPUs. The paper schedules the trials of
    one search under one deadline; here every job has its own, as MLFS (CoNEXT 2020, section 2) describes it. Left out:
    the rungs of successive halving, since the accuracies of different models do not compare.

    Without a forecast the accuracy is extrapolated to converge as 1/iteration.
    """

    name = "hypersched"
    needs: frozenset[Need] = frozenset({"accuracy"})

    def __init__(self, settings: HyperSchedSettings | None = None) -> None:
        self.settings: HyperSchedSettings = settings or HyperSchedSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank new jobs first, then by expected gain, then paused jobs, then late ones."""
        jobs = snapshot.jobs
        judged = jobs.accuracies.lengths() >= self.settings.trial
        gain = np.where(judged, expected_gains(snapshot, forecasts, self.settings.trial), np.inf)
        late = jobs.deadline <= snapshot.now
        group = np.select([late, ~judged, gain >= self.settings.tolerance], [3, 0, 1], 2)
        worth = np.where(group == 1, gain * np.where(jobs.running, self.settings.hysteresis, 1.0), 0.0)
        order = queue_order(jobs, group, -worth, jobs.state != "running")
        flexible = elastic(jobs)
        wanted = gang_gpus(snapshot, order, preempt=True, requested=np.where(flexible, jobs.gpus_min, jobs.gpus))
        return plan_allocation(
            snapshot, order, grow_elastic(snapshot, wanted, lambda row, gpus: float(worth[row]) / gpus)
        )


def expected_gains(snapshot: Snapshot, forecasts: Forecasts, last: int) -> Floats:
    """(n,) the expected rise of each accuracy until the deadline, or the last iteration if that is sooner.

    Forecast, or else extrapolated from the `last` latest reports; NaN for a job with fewer reports.
    """
    jobs, curves = snapshot.jobs, snapshot.jobs.accuracies
    gain = np.full(len(jobs), np.nan)
    rows = np.flatnonzero(curves.lengths() >= last)
    ends, firsts = curves.starts[rows + 1] - 1, curves.starts[rows + 1] - last
    at, value = curves.iterations[ends], curves.values[ends]
    slope = np.maximum(value - curves.values[firsts], 0.0) / np.maximum(at - curves.iterations[firsts], 1e-9)
    seconds = np.maximum(np.nan_to_num(jobs.deadline[rows] - snapshot.now, nan=np.inf), 0.0)
    paced = jobs.iteration_time[rows] > 0
    reached = np.where(paced, at + seconds / np.where(paced, jobs.iteration_time[rows], 1.0), np.inf)
    reached = np.fmin(reached, np.where(jobs.max_iterations[rows] > 0, jobs.max_iterations[rows], np.inf))
    gain[rows] = slope * at * np.maximum(1.0 - at / np.maximum(reached, 1e-9), 0.0)
    forecast = np.flatnonzero(forecasts.accuracy.known[rows] & np.isfinite(reached))
    if len(forecast):
        gain[rows[forecast]] = np.maximum(
            forecasts.accuracy.at(rows[forecast], reached[forecast]).median - value[forecast], 0.0
        )
    return gain

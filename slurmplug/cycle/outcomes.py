"""Whether jobs take longer under a promoted model than was forecast of them, beside those before it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.placement.allocation import startable
from policies.placement.demand import remaining_seconds, total_seconds
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats
from predictors.forecast import Forecasts

FEWEST = 20
"""jobs that ended, of each of the two that are compared"""
SIGNIFICANCE = 1e-3
"""The comparison is made again whenever another job has ended, so it is a tenth of what one alone would have."""


@dataclass(frozen=True)
class Outcomes:
    """Of n jobs: how long each took from when it was first ranked, as a multiple of what was forecast.

    ended (n,): whether it completed; the others took so long so far, or until they ended in another way.
    """

    took: Floats
    ended: Bools

    @property
    def typical(self) -> float:
        """The geometric mean over those that ended."""
        return float(np.exp(np.log(self.took[self.ended]).mean())) if self.ended.any() else float("nan")


def expected_seconds(snapshot: Snapshot, forecasts: Forecasts) -> Floats:
    """(n,) forecast of the time to the end of each job that waits for GPUs alone; NaN for others.

    Its run time, and the work of all others that are there as it would take on all GPUs. Who is ranked first is not in
    it, so that it measures every policy alike.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    gpus = float(nodes.capacity[nodes.up, 0].sum())
    run = total_seconds(jobs, forecasts.total)
    left = np.where(jobs.running, remaining_seconds(snapshot, forecasts.remaining), np.where(jobs.pending, run, 0.0))
    work = np.nan_to_num(left * jobs.gpus * jobs.elements)
    measured = startable(jobs) & jobs.managed & (jobs.elements == 1) & (jobs.gpus > 0) & (run > 0)
    if gpus <= 0:
        return np.full(len(jobs), np.nan)
    return np.where(measured, run + (work.sum() - work) / gpus, np.nan)


def worse(of_model: Outcomes, before: Outcomes) -> Mapping[str, float] | None:
    """The figures by which jobs take longer by this model than before it; None where nothing says so.

    By the log-rank test (Mantel 1966), in which a job that has not ended yet counts for as long as it has taken.
    """
    from scipy.stats import CensoredData, logrank  # noqa: PLC0415  takes half of the time that a report has to load

    def censored(outcomes: Outcomes) -> CensoredData:
        return CensoredData(outcomes.took[outcomes.ended], right=outcomes.took[~outcomes.ended])

    if min(of_model.ended.sum(), before.ended.sum()) < FEWEST:
        return None
    p = float(logrank(censored(of_model), censored(before), alternative="less").pvalue)
    if not p < SIGNIFICANCE:
        return None
    return {
        "p": p,
        "jobs": float(of_model.ended.sum()),
        "took": of_model.typical,
        "jobs_before": float(before.ended.sum()),
        "took_before": before.typical,
    }

"""How starts would have been forecast: the queues of kept cycles simulated forward, beside when their new jobs
started."""

from collections.abc import Mapping

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Ints
from predictors.forecast import Forecasts
from slurmplug.forecasting.starts.live_queue import LiveQueue
from slurmplug.forecasting.starts.start_outcomes import StartOutcomes
from slurmplug.ledger import codec, kept_limits
from slurmplug.ledger.budgets import INPUTS_EVERY
from slurmplug.ledger.inputs import KeptCycle, inputs, kept
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.run_queries import first_starts

ENOUGH = 1_000
"""outcomes"""
MOST_JOBS = 200_000
"""of the cycles that are looked at, one after the other: some 20 of a site with 10,000 jobs"""
SAMPLES = 15
"""of run times, of each queue"""
NEW = 2 * INPUTS_EVERY
"""Seconds since its submission in which a job is new."""


def start_outcomes(ledger: Ledger, learnt: Mapping[JobKey, float] | None = None) -> StartOutcomes:
    """The new jobs of the kept cycles that have started since.

    With the forecasts of run times as they were recorded then, so that nothing is known before its time; a job of which
    none was recorded may take anything up to its time limit. Jobs that still wait are left out, so that what is longest
    is missing, and so are arrays, whose elements get other ids. Each job counts once, and cycles are taken at random
    until there are enough outcomes. learnt: when jobs would have started by a model of waits, in seconds since the
    epoch. Raises LedgerError.
    """
    outcomes: list[tuple[float, float, float, float]] = []
    limits, seen, jobs = kept_limits.last(ledger), set[JobKey](), 0
    for cycle in _shuffled(kept(ledger)):
        if len(outcomes) >= ENOUGH or jobs >= MOST_JOBS:
            break
        found = inputs(ledger, cycle.id)
        if found is None:  # thinned since
            continue
        try:
            snapshot, forecasts = codec.rebuild(Snapshot, found[0]), codec.rebuild(Forecasts, found[1])
        except ValueError:  # of another release
            continue
        jobs += len(snapshot.jobs)
        new = {row: snapshot.jobs.keys[row] for row in new_jobs(snapshot.jobs, snapshot.now).tolist()}
        started = first_starts(ledger, [key for key in new.values() if key not in seen])
        rows = np.array([row for row, key in new.items() if key in started], dtype=np.int64)
        if not len(rows):
            continue
        seen.update(started)
        waits = LiveQueue(snapshot, forecasts, limits=limits, samples=SAMPLES).starts()[rows]
        medians = np.quantile(waits, 0.5, axis=1, method="inverted_cdf")
        for row, median in zip(rows.tolist(), medians.tolist(), strict=True):
            if np.isfinite(median):
                key = snapshot.jobs.keys[row]
                came = max(started[key] - snapshot.now, 0.0)
                by_model = np.maximum((learnt or {}).get(key, np.nan) - snapshot.now, 0.0)
                outcomes.append((median, float(snapshot.jobs.time_limit[row]), came, float(by_model)))
    return StartOutcomes(*np.array(outcomes, dtype=np.float64).reshape(-1, 4).T)


def new_jobs(jobs: Jobs, now: float) -> Ints:
    """The rows of the jobs that wait for their first start, and were submitted shortly before."""
    single = (jobs.elements == 1) & (jobs.restarts == 0)
    return np.flatnonzero(jobs.pending & single & (now - jobs.submitted <= NEW))


def _shuffled(cycles: list[KeptCycle]) -> list[KeptCycle]:
    return [cycles[place] for place in np.random.default_rng(0).permutation(len(cycles)).tolist()]

"""When arrays that wait now would start with a time limit that is suggested for some of their elements."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from policies.snapshot import Snapshot
from predictors.arrays import Floats
from slurmplug.forecasting.starts.live_queue import LiveQueue
from slurmplug.forecasting.starts.start_outcomes import as_they_came, median_and_interval
from slurmplug.ledger.database import LedgerFile
from slurmplug.reports import kept_queue
from slurmplug.reports.interface import Suggestion

MOST_SIMULATED = 5
"""arrays, as the whole queue is simulated once for each"""


def with_starts(ledger: LedgerFile, suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """These, and in `because` of the first few for arrays of which several elements wait for room in the queue that was
    kept last: in how many seconds from then the first element is forecast to start as it is (`start`), and with the
    better time limit (`start_better`). Raises LedgerError."""
    found = list(suggestions)
    asked = [at for at, each in enumerate(found) if each.what == "array split"]
    snapshot = kept_queue.latest(ledger) if asked else None
    rows = {at: row for at in asked if snapshot is not None and (row := _waits(snapshot, found[at])) is not None}
    if snapshot is None or not rows:
        return found
    forecasts = kept_queue.forecaster(ledger).forecast(snapshot, frozenset({"total", "remaining"}))
    limits, outcomes = kept_queue.limits(ledger), kept_queue.outcomes(ledger)

    def starts(queue: Snapshot) -> Floats:
        return median_and_interval(LiveQueue(queue, forecasts, limits=limits).starts())[:, 0]

    as_it_is = starts(snapshot)
    for at, row in islice(rows.items(), MOST_SIMULATED):
        limit = snapshot.jobs.time_limit.copy()
        limit[row] = found[at].better
        medians = np.array(
            [as_it_is[row], starts(replace(snapshot, jobs=replace(snapshot.jobs, time_limit=limit)))[row]]
        )
        if not np.isfinite(medians).all():
            continue
        ratios = outcomes.ratios(float(medians[0]), float(snapshot.jobs.time_limit[row]))
        if len(ratios):
            medians = median_and_interval(as_they_came(medians, ratios))[:, 0]
        start, better = medians.tolist()
        found[at] = replace(found[at], because={**found[at].because, "start": start, "start_better": better})
    return found


def _waits(snapshot: Snapshot, each: Suggestion) -> int | None:
    """The row of the first such array of which several elements wait."""
    jobs = snapshot.jobs
    alike = (jobs.user == each.user) & (np.where(jobs.kind == "", jobs.name, jobs.kind) == each.kind)
    rows = np.flatnonzero(alike & jobs.pending & (jobs.elements > 1) & (jobs.gpus == each.gpus))
    return int(rows[0]) if len(rows) else None

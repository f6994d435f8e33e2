"""Whether a training has diverged: its loss is no number any more, or beyond what its own past makes likely."""

import numpy as np

from policies.mlfs.load_control import LoadControlSettings
from policies.snapshot import Curves, Jobs
from predictors.arrays import Bools, Floats, Ints

PAST_REPORTS = 10
"""The past has at least this many losses."""
MARGIN = 2.0
"""How far beyond the largest loss of the past a training has diverged; see `beyond_its_past`."""


def not_finite(jobs: Jobs, rows: Ints, settings: LoadControlSettings) -> Bools:
    """(r,) whether the last `diverged_reports` losses of these rows (r,) were all NaN or infinite."""
    return np.asarray(jobs.not_finite[rows] >= settings.diverged_reports)


def beyond_its_past(losses: Curves, rows: Ints, settings: LoadControlSettings) -> tuple[Bools, Floats]:
    """(r,) whether the last k = `diverged_reports` losses of these rows (r,) all lie beyond a limit, and the limit.

    The past are the losses up to the smallest one, and at least the first `PAST_REPORTS`. The limit is `MARGIN` times
    as far above its largest loss as that is above its smallest or above 0, whichever is further: for a positive loss,
    three times the largest. If n earlier and k later losses came in any order, the k would be the largest with a
    probability of n! k! / (n + k)!, 1 in 3003 for 10 and 5; the margin is for losses that drift. The first losses, of
    an untrained model, are part of the past. Validation losses are not looked at: those of an overfitted model rise
    far, and it has not diverged. The limit is NaN where it was not reached.
    """
    k = settings.diverged_reports
    found, limits = np.zeros(len(rows), dtype=bool), np.full(len(rows), np.nan)
    long = np.flatnonzero(losses.lengths()[rows] >= PAST_REPORTS + k)
    if not len(long):
        return found, limits
    starts, ends = losses.starts[rows[long]], losses.starts[rows[long] + 1]
    values = np.append(losses.values, np.nan)
    first = np.fmax.reduceat(values, np.stack([starts, starts + PAST_REPORTS], axis=1).ravel())[::2]
    last = np.fmin.reduceat(values, np.stack([ends - k, ends], axis=1).ravel())[::2]
    for i in long[last > first].tolist():
        loss = losses.row(int(rows[i]))[1]
        before = loss[:-k]
        past = before[: max(PAST_REPORTS, int(np.argmin(before)) + 1)]
        largest, smallest = float(past.max()), float(past.min())
        limit = largest + MARGIN * max(largest - smallest, abs(largest))
        if largest > smallest and loss[-k:].min() > limit:
            found[i], limits[i] = True, limit
    return found, limits

"""Whether a job that gets another number of GPUs would end within its time limit: a rule of the guardrails. Pure."""

from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.forecast import Forecasts, Need

NEEDS: frozenset[Need] = frozenset({"remaining", "speed"})
"""The forecasts by which the rule decides."""
LEVEL = 0.9
"""The quantile of the run time that has to be within the limit."""
PACE_MARGIN = 1.9
"""What a job by its own pace may need more: 90% of a lognormal whose logarithm has a standard deviation of 0.5."""
FROM_THE_LIMIT = "time limit"
"""The source of a forecast by `predictors.runtime` for a job of which only the time limit is known."""
HOUR = 3_600.0


def resizes(action: Action) -> bool:
    """Whether the action decides on the job's number of GPUs."""
    return action.kind in ("resize", "release") and action.gpus is not None


def within_limit(
    action: Action, snapshot: Snapshot, row: int, forecasts: Forecasts, raised: float = 1.0
) -> Action | Reason:
    """The action, if the job's remaining run time fits into its limit at that size, or is not known; else why not.

    raised: the most by which the limit may be raised. An action that needs that says to how much (`Action.time_limit`).
    """
    limit, gpus = float(snapshot.jobs.time_limit[row]), action.gpus
    if gpus is None or not resizes(action) or gpus == snapshot.jobs.gpus[row]:
        return action
    seconds = seconds_needed(snapshot, row, gpus, forecasts)
    if not seconds > limit:  # also where one is NaN
        return action
    if action.kind == "resize" and seconds <= raised * limit:
        return replace(action, time_limit=seconds)
    return Reason("time limit", {"gpus": float(gpus), "needs": seconds / HOUR, "limit": limit / HOUR})


def seconds_needed(snapshot: Snapshot, row: int, gpus: int, forecasts: Forecasts) -> float:
    """Seconds of which nine of ten such jobs need less to end on so many GPUs; NaN where that is not known.

    A run that begins again has its whole time limit. Its 90% quantile changes with the size as the median speed does.
    """
    present, then = forecasts.speed.at([row, row], [snapshot.jobs.gpus[row], gpus]).median
    return _remaining(snapshot.jobs, row, forecasts) * float(present / then) if then > 0 else np.nan


def _remaining(jobs: Jobs, row: int, forecasts: Forecasts) -> float:
    """Seconds that the job needs no more than, at its present size; NaN where that is not known.

    A forecast from the time limit itself, as nothing better is known, tells nothing about it. By the pace that a job
    reports it may need less than is forecast, as that is believed only in time: here it is at once, since the veto is
    for that job's own good.
    """
    pace = float((jobs.max_iterations[row] - jobs.iteration[row]) * jobs.iteration_time[row])
    by_limit = forecasts.remaining.source[row] == FROM_THE_LIMIT
    quantile = np.nan if by_limit else float(forecasts.remaining[row].quantile(LEVEL)[0])
    return float(np.fmin(quantile, PACE_MARGIN * pace if pace > 0 else np.nan))

"""Whether a job that gets another number of GPUs would end within its time limit: a rule of the guardrails. Pure."""

import numpy as np

from policies.plan import Action, Reason
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need

NEEDS: frozenset[Need] = frozenset({"remaining", "speed"})
"""The forecasts by which the rule decides."""
LEVEL = 0.9
"""The quantile of the run time that has to be within the limit."""
FROM_THE_LIMIT = "time limit"
"""The source of a forecast by `predictors.runtime` for a job of which only the time limit is known."""
HOUR = 3_600.0


def resizes(action: Action) -> bool:
    """Whether the action decides on the job's number of GPUs."""
    return action.kind in ("resize", "release") and action.gpus is not None


def time_limit_veto(action: Action, snapshot: Snapshot, row: int, forecasts: Forecasts) -> Reason | None:
    """Why the job's remaining run time does not fit into its limit at that size; None where it does or is not known.

    A run that begins again has its whole time limit. Its 90% quantile changes with the size as the median speed does. A
    forecast from the time limit itself, as nothing better is known, tells nothing about it.
    """
    limit = float(snapshot.jobs.time_limit[row])
    if not resizes(action) or np.isnan(limit) or action.gpus == snapshot.jobs.gpus[row]:
        return None
    if forecasts.remaining.source[row] == FROM_THE_LIMIT:
        return None
    present, then = forecasts.speed.at([row, row], [snapshot.jobs.gpus[row], action.gpus]).median
    seconds = float(forecasts.remaining[row].quantile(LEVEL)[0] * present / then) if then > 0 else np.nan
    if not seconds > limit:  # also where it is NaN
        return None
    return Reason("time limit", {"gpus": float(action.gpus or 0), "needs": seconds / HOUR, "limit": limit / HOUR})

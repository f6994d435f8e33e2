"""The checks that a learnt policy's plan has to pass before it is used: known state, ranked jobs, in time. Pure."""

import numpy as np

from policies.placement.allocation import startable
from policies.plan import Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts


class NotTrusted(Exception):
    """The plan of a learnt policy is not used; the message says why."""


def require_known(policy: Policy, snapshot: Snapshot, forecasts: Forecasts) -> None:
    """Require that a learnt policy was trained on states like this one; nothing is required of others.

    Raises:
        NotTrusted: it was not, or its distance is not a number
    """
    if not isinstance(policy, LearntPolicy):
        return
    distance = float(policy.distance(snapshot, forecasts))
    if not 0.0 <= distance <= 1.0:
        raise NotTrusted(f"the state is unlike those it was trained on (distance {distance:.3g}, at most 1)")


def require_ranks(snapshot: Snapshot, plan: Plan) -> None:
    """Require that the score of one of the managed jobs that wait, where there are any, is a finite number.

    Raises:
        NotTrusted: none is
    """
    waiting = startable(snapshot.jobs) & snapshot.jobs.managed
    if waiting.any() and not np.isfinite(plan.score[waiting]).any():
        raise NotTrusted(f"it ranks none of the {waiting.sum()} jobs that wait")


def require_in_time(seconds: float, limit: float) -> None:
    """Require that a decision took no longer than its limit, both in seconds.

    Raises:
        NotTrusted: it took longer
    """
    if seconds > limit:
        raise NotTrusted(f"it took {seconds:.3g} s to decide, and the interval of cycles is {limit:.3g} s")

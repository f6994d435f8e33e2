"""Whether what a learnt policy decides may be used: it knows such states, and decided in time. Pure."""

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


def require_in_time(seconds: float, limit: float) -> None:
    """Require that a decision took no longer than its limit, both in seconds.

    Raises:
        NotTrusted: it took longer
    """
    if seconds > limit:
        raise NotTrusted(f"it took {seconds:.3g} s to decide, and the interval of cycles is {limit:.3g} s")

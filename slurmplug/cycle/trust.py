"""What a learnt policy's plan has to pass before it is used: known state, valid, ranked jobs, in time. Pure."""

from collections.abc import Callable

import numpy as np

from policies.placement.allocation import startable
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.rules.valid_plan import validate_plan


class NotTrusted(Exception):
    """The plan of a learnt policy is not used; the message says why."""


def trusted_plan(
    policy: Policy,
    snapshot: Snapshot,
    forecasts: Forecasts,
    memory: Memory,
    *,
    limit: float,
    clock: Callable[[], float],
) -> Plan:
    """The plan of a learnt policy, if it can be followed.

    limit: seconds that the decision may take, by the differences of `clock`.

    Raises:
        NotTrusted: it cannot
        ValueError: the plan is not valid
        Exception, SystemExit: whatever the policy raises
    """
    began = clock()
    plan = validate_plan(snapshot, plan_of_known(policy, snapshot, forecasts, memory))
    require_ranks(snapshot, plan)
    require_in_time(clock() - began, limit)
    return plan


def plan_of_known(policy: Policy, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
    """The plan, of a state that the policy knows: the part of `trusted_plan` that a policy's own process does.

    Raises:
        NotTrusted: it does not know the state
        Exception, SystemExit: whatever the policy raises
    """
    require_known(policy, snapshot, forecasts)
    return policy.decide(snapshot, forecasts, memory)


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

"""How much may be done in a cycle, in an hour, and to the jobs of one user: one notion of budget for every kind of
effect. Pure.

A budget is the site's. So that no user can spend it alone, each user has a part of it; what one user's jobs cause is
counted against that part.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from policies.plan import Reason
from slurmplug.config.schema import Guardrails

UNLIMITED = sys.maxsize
USER_SHARE = 0.2
"""The part of an hour's budget that one user may spend where the site sets no other number."""


class Budget(NamedTuple):
    """The most effects of one kind, such as stops: in a cycle, in an hour, and of one user in an hour."""

    effects: str
    per_cycle: int
    per_hour: int
    per_user: int


class Spending:
    """What of a budget is spent: in the last hour by user, and so far in this cycle."""

    def __init__(self, budget: Budget, last_hour: Mapping[str, int]) -> None:
        self._budget = budget
        self._of_user = Counter(last_hour)
        self._last_hour = sum(last_hour.values())
        self._now = 0

    def veto(self, user: str) -> Reason | None:
        """Why one more effect on a job of this user is not allowed; None if it is."""
        budget = self._budget
        for spent, limit, period in (
            (self._now, budget.per_cycle, "cycle"),
            (self._last_hour + self._now, budget.per_hour, "hour"),
            (self._of_user[user], budget.per_user, "user"),
        ):
            if spent >= limit:
                return Reason(f"{budget.effects} per {period}", {"limit": limit})
        return None

    def spend(self, user: str) -> None:
        """Count one effect on a job of this user."""
        self._now += 1
        self._of_user[user] += 1


def of_stops(limits: Guardrails) -> Budget:
    """The budget of stops."""
    return _budget("stops", limits.stops_per_cycle, limits.stops_per_hour, limits.stops_per_user)


def of_requeues(limits: Guardrails) -> Budget:
    """The budget of requeues of running jobs."""
    return _budget("requeues", limits.requeues_per_cycle, limits.requeues_per_hour, limits.requeues_per_user)


def of_writes(limits: Guardrails) -> Budget:
    """The budget of changes of waiting jobs' sizes; SiteFactors have what these leave of it."""
    return Budget("writes", limits.writes_per_cycle, UNLIMITED, UNLIMITED)


def of_admissions(limits: Guardrails) -> Budget:
    """The budget of admissions: releases of jobs that waited for admission."""
    return _budget("admissions", limits.admissions_per_cycle, limits.admissions_per_hour, limits.admissions_per_user)


def _budget(effects: str, per_cycle: int, per_hour: int, per_user: int | None) -> Budget:
    return Budget(effects, per_cycle, per_hour, default_per_user(per_hour) if per_user is None else per_user)


def default_per_user(per_hour: int) -> int:
    """One user's part of an hour's budget where the site sets none: a fifth, at least one unless the budget is 0."""
    return min(per_hour, max(1, int(USER_SHARE * per_hour)))

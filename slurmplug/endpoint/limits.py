"""Limits how many requests a user may send."""

from collections import OrderedDict

MAX_USERS = 10_000
"""The users remembered; those that sent nothing for longest are forgotten first."""


class RateLimit:
    """A token bucket for each user: `per_minute` requests at once, refilled evenly over a minute."""

    def __init__(self, per_minute: int) -> None:
        self._size = float(per_minute)
        self._buckets: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def allows(self, uid: int, now: float, cost: float = 1.0) -> bool:
        """Whether this user may send a request now, which is counted if so.

        `now`: in seconds, never decreasing. `cost`: as how many requests it counts.
        """
        left, since = self._buckets.pop(uid, (self._size, now))
        left = min(self._size, left + (now - since) * self._size / 60.0)
        allowed = left >= cost
        self._buckets[uid] = (left - cost if allowed else left, now)
        if len(self._buckets) > MAX_USERS:
            self._buckets.popitem(last=False)
        return allowed

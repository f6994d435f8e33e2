"""How often one user may ask."""

from collections import OrderedDict

MOST_USERS = 10_000


class RateLimit:
    """A bucket a user: `a_minute` questions at once, filled again evenly over a minute."""

    def __init__(self, a_minute: int) -> None:
        self._size = float(a_minute)
        self._buckets: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def allows(self, uid: int, now: float) -> bool:
        """Whether this user may ask at this time (seconds, never less than before); counts it where so."""
        left, since = self._buckets.pop(uid, (self._size, now))
        left = min(self._size, left + (now - since) * self._size / 60.0)
        allowed = left >= 1.0
        self._buckets[uid] = (left - allowed, now)
        if len(self._buckets) > MOST_USERS:
            self._buckets.popitem(last=False)
        return allowed

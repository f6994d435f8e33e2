"""Fair queueing of reports: the next one made is of the waiting user who used the fewest CPU seconds of late.

There are several lanes (processes that make reports). The first is reserved for users who used little of late; the
reports of others are made in the rest, which run at a lower priority. So a user who requests everything, again and
again, keeps nobody else waiting.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

HALF_LIFE = 60.0
"""Seconds in which half of what was used is forgotten."""
LITTLE = 1.0
"""CPU seconds: a user who used no more of late counts as one who used little;"""
SHARE = 0.5
"""so does one who used at most this share of what the heaviest user now waiting or served did."""
MAX_USERS = 10_000
"""How many users are remembered; beyond that, the half that used the least is forgotten."""

Lane = TypeVar("Lane")


class RecentUse:
    """The CPU seconds that each user used of late, exponentially decayed with `HALF_LIFE`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[int, tuple[float, float]] = {}

    def of(self, uid: int) -> float:
        """The decayed CPU seconds of one user."""
        seconds, at = self._used.get(uid, (0.0, 0.0))
        return seconds * math.exp2((at - self._clock()) / HALF_LIFE)

    def add(self, uid: int, seconds: float) -> None:
        """Add CPU seconds of a user."""
        self._used[uid] = (self.of(uid) + seconds, self._clock())
        if len(self._used) > MAX_USERS:
            kept = sorted(self._used, key=self.of)[MAX_USERS // 2 :]
            self._used = {each: self._used[each] for each in kept}


class _Ticket:
    def __init__(self, uid: int) -> None:
        self.uid = uid


class FairQueue(Generic[Lane]):
    """Assigns lanes to waiting requests: one request of each user at a time, the user who used the least first."""

    def __init__(self, lanes: Sequence[Lane], clock: Callable[[], float] = time.monotonic) -> None:
        """lanes: the first is for users who used little of late."""
        self._lanes, self._free = lanes, list(lanes)
        self._uses = RecentUse(clock)
        self._waiting: list[_Ticket] = []
        self._served: set[int] = set()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, uid: int, patience: float) -> Iterator[Lane]:
        """A lane, for one request of this user.

        Raises:
            TimeoutError: it was not this user's turn within so many seconds
        """
        lane = self._take(_Ticket(uid), patience)
        try:
            yield lane
        finally:
            with self._changed:
                self._free = [each for each in self._lanes if each in self._free or each is lane]
                self._served.discard(uid)
                self._changed.notify_all()

    def charge(self, uid: int, seconds: float) -> None:
        """Add the CPU seconds that a request of this user took."""
        with self._changed:
            self._uses.add(uid, seconds)

    def _take(self, ticket: _Ticket, patience: float) -> Lane:
        until = time.monotonic() + patience
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not (offered := self._offered(ticket)):
                    if (left := until - time.monotonic()) <= 0:
                        raise TimeoutError
                    self._changed.wait(left)
                self._free.remove(offered[0])
                self._served.add(ticket.uid)
                return offered[0]
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _offered(self, ticket: _Ticket) -> list[Lane]:
        """The free lanes in which this one is next."""
        waiting = [each for each in self._waiting if each.uid not in self._served]
        waiting.sort(key=lambda each: self._uses.of(each.uid))  # of those who used the same, who came first
        asking = {*self._served, *(each.uid for each in waiting)}
        little = max(LITTLE, SHARE * max(map(self._uses.of, asking), default=0.0))
        offered = []
        for lane in self._free:
            allowed = [each for each in waiting if lane is not self._lanes[0] or self._uses.of(each.uid) <= little]
            if allowed and allowed[0] is ticket:
                offered.append(lane)
        return offered

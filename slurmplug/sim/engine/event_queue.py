"""The events to come, in order of time."""

import heapq
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["end", "limit", "eligible"]


class Event(NamedTuple):
    """`order` settles ties: first added, first served. `version`: that of its subject when it was added."""

    time: float
    order: int
    kind: Kind
    which: int
    version: int


class EventQueue:
    """Events to come; obsolete ones stay until their time."""

    def __init__(self, obsolete: Callable[[Event], bool]) -> None:
        self._obsolete = obsolete
        self._heap: list[Event] = []
        self._pushed = 0

    def add(self, time: float, kind: Kind, which: int, version: int) -> None:
        """Add an event."""
        self._pushed += 1
        heapq.heappush(self._heap, Event(time, self._pushed, kind, which, version))

    def first(self) -> Event | None:
        """The next event that is not obsolete; None where there is none."""
        while self._heap and self._obsolete(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> None:
        """Remove the next event."""
        heapq.heappop(self._heap)

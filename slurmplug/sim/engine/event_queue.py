"""What will happen by itself, in order of time."""

import heapq
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["end", "limit", "eligible"]


class Event(NamedTuple):
    """`order` settles ties: what was foreseen first happens first. `version`: of what it was foreseen for."""

    time: float
    order: int
    kind: Kind
    which: int
    version: int


class Agenda:
    """Events to come; those that are overtaken by others stay in it until their time."""

    def __init__(self, overtaken: Callable[[Event], bool]) -> None:
        self._overtaken = overtaken
        self._heap: list[Event] = []
        self._pushed = 0

    def add(self, time: float, kind: Kind, which: int, version: int) -> None:
        """Foresee an event."""
        self._pushed += 1
        heapq.heappush(self._heap, Event(time, self._pushed, kind, which, version))

    def first(self) -> Event | None:
        """The next event that will come."""
        while self._heap and self._overtaken(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def pop(self) -> None:
        """It has come."""
        heapq.heappop(self._heap)

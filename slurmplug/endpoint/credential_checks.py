"""How many credentials are checked at once, and whose is next: clients that nobody knows yet take turns by address."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CredentialChecks:
    """Limits the checks at once, and those of one address to half as many.

    The next client is the first one from the address with the fewest checks under way.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once, self._of_one = at_once, max(1, at_once // 2)
        self._waiting: list[tuple[object, str]] = []
        """tickets, in the order in which they came, each with its address"""
        self._checked: Counter[str] = Counter()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, address: str, patience: float, is_open: Callable[[], bool]) -> Iterator[None]:
        """A check for a client at this address.

        is_open: whether its connection still is, asked again after each `look_again`.

        Raises:
            TimeoutError: it was not its turn within `patience` seconds, or the connection was closed meanwhile.
        """
        ticket, until = object(), time.monotonic() + patience
        with self._changed:
            self._waiting.append((ticket, address))
            try:
                while self._next() is not ticket:
                    left = until - time.monotonic()
                    if left <= 0 or not is_open():
                        raise TimeoutError
                    self._changed.wait(left)
                self._checked[address] += 1
            finally:
                self._waiting.remove((ticket, address))
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._checked -= Counter((address,))
                self._changed.notify_all()

    def look_again(self) -> None:
        """A connection was closed: if it waits here, it leaves."""
        with self._changed:
            self._changed.notify_all()

    def _next(self) -> object | None:
        if self._checked.total() >= self._at_once or not self._waiting:
            return None
        ticket, address = min(self._waiting, key=lambda each: self._checked[each[1]])  # of equal ones, the first
        return ticket if self._checked[address] < self._of_one else None

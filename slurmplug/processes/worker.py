"""A process that calls functions for the daemon, under deadlines: for folders on a file system that may hang."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from slurmplug.errors import SlurmplugError
from slurmplug.processes.child import Channel, Child

START_SECONDS = 15.0
"""that a process may take to start; until then it is not killed because a call is late"""
_READY = 0

T = TypeVar("T")


class Worker:
    """Calls module-level functions in another process, one at a time. A process whose call is late is replaced."""

    def __init__(self, name: str) -> None:
        """Start the process. `name`: for the log and for ps(1). Raises OSError."""
        self._lock = threading.RLock()
        self._until = float("inf")
        self._number = _READY
        self._child = Child(name, serve)
        self._note_start()

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether it has neither ended nor been killed."""
        return self._child.running

    def call(self, function: Callable[..., T], *arguments: object, seconds: float) -> T:
        """Call a function in the process; returns what it returns.

        Raises:
            TimeoutError: it did not return within so many seconds. The process is killed, and what it did is not known.
            OSError, SlurmplugError: as the function raises them.
        """
        with self._lock:
            until = time.monotonic() + seconds
            self.begin(function, *arguments)
            try:
                answer: T | Exception = self._receive(max(0.0, until - time.monotonic()))
            except TimeoutError:
                if self._ready or time.monotonic() - self._started > START_SECONDS:
                    self._child.kill()
                raise
        return _returned(answer)

    def begin(self, function: Callable[..., object], *arguments: object) -> None:
        """Begin a call, whose result `result` returns. Raises TimeoutError: the process cannot be reached."""
        with self._lock:
            if not self._child.running:
                if not self._child.start_again():
                    raise TimeoutError("its process cannot be ended, or has just ended")
                self._note_start()
            self._number += 1
            try:
                self._child.channel.send((self._number, function, arguments))
            except ConnectionError as error:
                raise TimeoutError("its process has ended") from error

    def result(self, seconds: float | None, go_on: Callable[[], bool] = lambda: True) -> Any:
        """What the function returned whose call was begun last.

        Args:
            seconds: to wait; None for no limit.
            go_on: called several times a second while it waits; returns whether to wait on.

        Raises:
            TimeoutError: it has not returned yet, or its process has ended.
            OSError, SlurmplugError: as the function raises them.
        """
        with self._lock:
            return _returned(self._receive(seconds, go_on))

    def finish_within(self, seconds: float) -> None:
        """Wait for no result longer than so many seconds from now; safe in a signal handler."""
        self._until = time.monotonic() + seconds

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._child.kill()

    def _receive(self, seconds: float | None, go_on: Callable[[], bool] = lambda: True) -> Any:
        until = float("inf") if seconds is None else time.monotonic() + seconds
        while True:
            left = None if seconds is None else max(0.0, until - time.monotonic())
            try:
                number, answer = self._child.channel.receive(left, lambda: go_on() and time.monotonic() < self._until)
            except (ConnectionError, ValueError) as error:  # or this end was closed meanwhile
                raise TimeoutError("its process has ended") from error
            self._ready = True
            if number == self._number:
                return answer

    def _note_start(self) -> None:
        self._ready, self._started = False, time.monotonic()


def serve(channel: Channel) -> None:
    """The process: says that it is ready, and answers each call by its number."""
    channel.send((_READY, None))
    while True:
        number, function, arguments = channel.receive()
        try:
            answer = function(*arguments)
        except (OSError, SlurmplugError) as error:
            answer = error
        channel.send((number, answer))


def _returned(answer: T | Exception) -> T:
    if isinstance(answer, Exception):
        raise answer
    return answer

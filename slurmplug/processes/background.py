"""Calls that may take long, made in threads beside the cycles: of slurmdbd, of a file system.

A cycle waits a moment for a result, and not at all if the call before took longer than that. The process does not wait
for these threads when it ends.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Generic, TypeVar

from slurmplug.processes.threads import no_thread

T = TypeVar("T")

WAIT = 1.0
"""Seconds for which the first `poll` after a start waits for the result."""


def in_thread(name: str, call: Callable[[], T]) -> "Future[T]":
    """Start a call in a daemon thread; the future has its result or its exception.

    A ThreadPoolExecutor is no use here: Python waits for its threads before it exits. If no thread can be started, the
    future's exception is an OSError.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 raised again where the result is taken
            future.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(no_thread(error))
    return future


class BackgroundCall(Generic[T]):
    """One call at a time in a background thread; its owner polls for the result."""

    def __init__(self, name: str) -> None:
        """name: of the thread."""
        self._name = name
        self._future: Future[T] | None = None
        self._prompt = True
        self._wait = 0.0
        self._took: list[float] = []
        """the seconds that the call took, once it has returned"""

    @property
    def pending(self) -> bool:
        """Whether a call was started whose result no `poll` has returned yet."""
        return self._future is not None

    def start(self, call: Callable[[], T]) -> None:
        """Start a call; the result of one that is still under way is discarded."""
        took: list[float] = []

        def timed() -> T:
            began = time.monotonic()
            try:
                return call()
            finally:
                took.append(time.monotonic() - began)

        self._took, self._future, self._wait = took, in_thread(self._name, timed), WAIT if self._prompt else 0.0

    def poll(self) -> T | None:
        """The result, once; None while there is none, or no call. Raises what the call raised."""
        if self._future is None:
            return None
        wait, self._wait = self._wait, 0.0
        try:
            self._future.exception(wait)
        except NotYet:
            self._prompt = False
            return None
        self._prompt = sum(self._took) <= WAIT
        finished, self._future = self._future, None
        return finished.result()

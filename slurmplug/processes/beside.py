"""Questions that are answered beside the cycles, by those who may not answer for long: slurmdbd, a file system.

A cycle waits a moment for an answer, and not at all where the one before took longer than that. The process ends
without waiting.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Generic, TypeVar

T = TypeVar("T")

WAIT = 1.0
"""Seconds for which an answer is waited for when it is taken the first time."""


def beside(name: str, call: Callable[[], T]) -> "Future[T]":
    """Begin a call in a thread of its own; its result, or what it raised, is in the future.

    Not by a ThreadPoolExecutor, whose threads Python waits for before it ends. Where no thread can be had, the future
    raises OSError.
    """
    future: Future[T] = Future()

    def answer() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 raised again where the result is taken
            future.set_exception(error)

    try:
        threading.Thread(target=answer, name=name, daemon=True).start()
    except RuntimeError as error:
        future.set_exception(OSError(errno.EAGAIN, f"{os.strerror(errno.EAGAIN)}: {error}"))
    return future


class Question(Generic[T]):
    """One question at a time, put by one thread and answered in another."""

    def __init__(self, name: str) -> None:
        """name: of the thread that answers."""
        self._name = name
        self._future: Future[T] | None = None
        self._prompt = True
        self._wait = 0.0
        self._took: list[float] = []
        """the seconds that the answer took, once it is there"""

    @property
    def open(self) -> bool:
        """Whether a question was put whose answer has not been taken."""
        return self._future is not None

    def put(self, call: Callable[[], T]) -> None:
        """Put another question, whose answer is what this call returns; the answer to the one before is not wanted."""
        took: list[float] = []

        def timed() -> T:
            began = time.monotonic()
            try:
                return call()
            finally:
                took.append(time.monotonic() - began)

        self._took, self._future, self._wait = took, beside(self._name, timed), WAIT if self._prompt else 0.0

    def take(self) -> T | None:
        """The answer, once; None where there is none yet, or no question. Raises what the call raised."""
        if self._future is None:
            return None
        wait, self._wait = self._wait, 0.0
        try:
            self._future.exception(wait)
        except NotYet:
            self._prompt = False
            return None
        self._prompt = sum(self._took) <= WAIT
        answered, self._future = self._future, None
        return answered.result()

"""Changes of directives, which the endpoint's process passes to the daemon: only that writes to the ledger."""

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotAnswered
from contextlib import closing
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from slurmplug.errors import LedgerError, SlurmplugError
from slurmplug.ledger.directive_changes import Author, ChangeRequest, make_change
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes.child import Channel
from slurmplug.reports import requested

ANSWER_SECONDS = 30.0

log = logging.getLogger(__name__)

Change: TypeAlias = Callable[[ChangeRequest, Author], list[str]]
"""Records a change; returns what was changed. Raises UsageError, LedgerError, SteppedDown, NotConfirmed."""


class Wanted(NamedTuple):
    """A change that the endpoint's process passes on, by a number of its own."""

    number: int
    request: ChangeRequest
    author: Author


class Answered(NamedTuple):
    """What was changed, or why it was not."""

    number: int
    result: list[str] | SlurmplugError


def recorded(
    path: Path, request: ChangeRequest, author: Author, interval: float, confirm: Callable[[], None]
) -> list[str]:
    """Record a change in the ledger, where the next cycle finds it; returns what was changed.

    confirm: raises SteppedDown or NotConfirmed if this daemon may not act, so that its ledger may not be the one that
    counts.
    """
    confirm()
    Ledger(path, readonly=True).close()  # one that was moved away is not made anew
    with closing(Ledger(path)) as ledger:
        changed = make_change(ledger, request, author, time.time())
    log.info("directives of %s changed by %s", ", ".join(changed.jobs), author.user)
    return requested.changed_sentences(changed, interval)


class ChangesByDaemon:
    """The daemon's end of the channel, as seen from the endpoint's process: any thread may ask."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._sent: SimpleQueue[Wanted] = SimpleQueue()
        self._asked: dict[int, Future[list[str]]] = {}
        self._lock = threading.Lock()
        self.woken = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """readable when there is something to send"""

    def __call__(self, request: ChangeRequest, author: Author) -> list[str]:
        """Have the daemon record a change. As `Change`."""
        wanted, answer = Wanted(next(self._numbers), request, author), Future[list[str]]()
        with self._lock:
            self._asked[wanted.number] = answer
        self._sent.put(wanted)
        os.eventfd_write(self.woken, 1)
        try:
            return answer.result(ANSWER_SECONDS)
        except NotAnswered as error:
            raise LedgerError("the daemon did not answer") from error
        finally:
            with self._lock:
                del self._asked[wanted.number]

    def send(self) -> None:
        """Send what waits for that; by the thread that has the channel."""
        os.eventfd_read(self.woken)
        try:
            while True:
                self._channel.send(self._sent.get_nowait())
        except Empty:
            self._channel.flush()

    def take(self, answered: Answered) -> None:
        """Pass an answer to who waits for it; by the thread that has the channel."""
        with self._lock:
            answer = self._asked.get(answered.number)
        if answer is None:
            return
        if isinstance(answered.result, SlurmplugError):
            answer.set_exception(answered.result)
        else:
            answer.set_result(answered.result)

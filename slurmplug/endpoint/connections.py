"""Which connections are open, and which one gives way where there are too many.

A client is unknown until it is authenticated.
"""

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConnectionLimits:
    """How many there may be, and for how long."""

    unknown: int = 64
    """of clients that are not authenticated yet"""
    per_address: int = 16
    """of these from one address"""
    per_user: int = 8
    """of one user; one more is refused"""
    in_all: int = 192
    request_seconds: float = 5.0
    """until the whole request is there"""
    seconds: float = 120.0
    """of a connection, whatever it does"""


class Stage(IntEnum):
    """How far a connection is."""

    READING = 0
    CHECKING = 1
    KNOWN = 2


@dataclass
class _Connection:
    address: str
    since: float
    stage: Stage = Stage.READING
    uid: int = -1


class Connections:
    """The open connections, in the order in which they came; thread-safe."""

    def __init__(self, limits: ConnectionLimits, closed: Callable[[], None] = lambda: None) -> None:
        """closed: called after one was closed that did not end by itself."""
        self._limits, self._closed = limits, closed
        self._open: dict[socket.socket, _Connection] = {}
        self._threads = 0
        self._lock = threading.Lock()

    def admit(self, request: socket.socket, address: str, now: float) -> bool:
        """Whether one more is served. Where there are too many unknown ones, one of them gives way to it.

        That is the oldest whose request has not come. Those whose credential waits to be checked give way only to a
        client from elsewhere, the latest from where the most are, so that a request that has come is answered.
        """
        limits = self._limits
        with self._lock:
            if self._threads >= limits.in_all:
                return False
            unknown = [each for each in self._open if self._open[each].stage < Stage.KNOWN]
            near = [each for each in unknown if self._open[each].address == address]
            if len(near) >= limits.per_address:
                given = self._first_reading(near)
            elif len(unknown) >= limits.unknown:
                given = self._first_reading(unknown) or self._latest_of_most(unknown, len(near))
            else:
                given = request
            if given is None:
                return False
            if given is not request:
                self._hang_up(given)
            self._open[request] = _Connection(address, now)
            self._threads += 1
        return True

    def is_open(self, request: socket.socket) -> bool:
        """Whether it was not closed here. Takes no lock, as it is called where `closed` waits for one."""
        return request in self._open

    def was_read(self, request: socket.socket) -> None:
        """Note that its request was received whole; from now on it does not wait for the client."""
        with self._lock:
            if request in self._open:
                self._open[request].stage = Stage.CHECKING

    def is_of(self, request: socket.socket, uid: int) -> bool:
        """Note that it was authenticated; returns whether its user may have this connection too."""
        with self._lock:
            if request in self._open:
                self._open[request].stage, self._open[request].uid = Stage.KNOWN, uid
            return Counter(each.uid for each in self._open.values())[uid] <= self._limits.per_user

    def ended(self, request: socket.socket) -> None:
        """Note that its thread has ended."""
        with self._lock:
            self._open.pop(request, None)
            self._threads -= 1

    def hang_up_late(self, now: float) -> None:
        """Close those that have lasted too long, or whose request has not come in time."""
        with self._lock:
            for request, each in list(self._open.items()):
                reading = each.stage == Stage.READING
                if now - each.since > (self._limits.request_seconds if reading else self._limits.seconds):
                    self._hang_up(request)

    def _first_reading(self, requests: Iterable[socket.socket]) -> socket.socket | None:
        return next((each for each in requests if self._open[each].stage == Stage.READING), None)

    def _latest_of_most(self, unknown: Sequence[socket.socket], near: int) -> socket.socket | None:
        """The latest from the address with the most, if these are more than `near` with one more."""
        address, most = Counter(self._open[each].address for each in unknown).most_common(1)[0]
        return (
            next(each for each in reversed(unknown) if self._open[each].address == address) if most > near + 1 else None
        )

    def _hang_up(self, request: socket.socket) -> None:
        del self._open[request]
        try:
            request.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            log.debug("endpoint: %s", error)
        self._closed()

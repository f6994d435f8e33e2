"""A process beside the daemon's, for work that may hang or that others may make expensive.

The daemon starts it, exchanges messages with it under deadlines, starts it again when it has ended, and ends without
waiting for it: no signal ends a process that sleeps in the kernel, as on a file system that hangs.
Messages are pickled, as both ends are of the same account.
"""

import contextlib
import logging
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

PAUSE = 1.0
"""Seconds from one start of a process to the next at least."""
REAP_SECONDS = 0.2
"""Seconds for which a killed process is waited for."""
END_SECONDS = 1.0
"""Seconds for which one is waited for whose last messages count."""
LEFT_SECONDS = 2.0
"""Seconds that a process has for what it does when the daemon is gone."""
_LOOK = 0.2
"""Seconds from one call of `go_on` to the next."""
_LENGTH = 8
_RUN = "import sys; from slurmplug.processes import child; child.run(int(sys.argv[1]))"

log = logging.getLogger(__name__)


class Channel:
    """One end of a connection that carries messages both ways, each whole and in order.

    What a deadline cuts off is not lost: the rest of a message goes on with the next call.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._unsent, self._received = bytearray(), bytearray()

    def fileno(self) -> int:
        """The descriptor, readable when there is a message or when the other end is gone."""
        return self._connection.fileno()

    def send(self, message: Any) -> None:
        """Send what can be sent at once; the rest is sent by `flush` and `receive`. Raises OSError."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._unsent += len(data).to_bytes(_LENGTH, "big") + data
        self._transfer(0.0)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all is sent, for so many seconds at most; None for any time. Raises OSError, so TimeoutError."""
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while self._unsent:
            left = max(0.0, until - time.monotonic())
            self._transfer(None if math.isinf(left) else left)
            if left == 0 and self._unsent:
                raise TimeoutError(f"not taken within {timeout:g} s")

    def receive(self, timeout: float | None = None, go_on: Callable[[], bool] | None = None) -> Any:
        """The next message.

        Args:
            timeout: seconds; None for any time.
            go_on: called several times a second while it waits; returns whether to wait on.

        Raises:
            TimeoutError: there is none yet.
            ConnectionError: the other end is gone.
        """
        until = time.monotonic() + (math.inf if timeout is None else timeout)
        while (message := self._whole()) is None:
            left = max(0.0, until - time.monotonic())
            if go_on is not None and not go_on():
                raise TimeoutError("not waited for")
            wait = left if go_on is None else min(left, _LOOK)
            self._transfer(None if math.isinf(wait) else wait)
            if left == 0 and not self._is_whole():
                raise TimeoutError(f"no answer within {timeout:g} s")
        return pickle.loads(message)

    def arrived(self) -> Iterator[Any]:
        """The messages that have come, without waiting: `fileno` does not show those that were received with another.

        Raises ConnectionError: the other end is gone.
        """
        with contextlib.suppress(TimeoutError):
            while True:
                yield self.receive(0.0)

    def close(self) -> None:
        """Close it: the other end sees that this one is gone."""
        self._connection.close()

    def _transfer(self, timeout: float | None) -> None:
        """Send and receive once what can be, after waiting for that at most so many seconds."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        ready = dict(poll.poll(None if timeout is None else timeout * 1000)).get(self._connection.fileno(), 0)
        if ready & select.POLLOUT:
            del self._unsent[: self._connection.send(self._unsent)]
        if ready & ~select.POLLOUT:
            data = self._connection.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the process at the other end has ended")
            self._received += data

    def _is_whole(self) -> bool:
        have = len(self._received)
        return have >= _LENGTH and have >= _LENGTH + int.from_bytes(self._received[:_LENGTH], "big")

    def _whole(self) -> bytes | None:
        """The first message that is here whole, taken out."""
        if not self._is_whole():
            return None
        end = _LENGTH + int.from_bytes(self._received[:_LENGTH], "big")
        message = bytes(self._received[_LENGTH:end])
        del self._received[:end]
        return message


Serve: TypeAlias = Callable[..., None]
"""What the process does, a function of a module: its first argument is its `Channel`. It ends when it returns, or when
`Channel.receive` finds that the daemon is gone, and within `LEFT_SECONDS` of that whatever it does; one that waits for
something else too watches `Channel.fileno()`."""


class Child:
    """A process that runs a function of a module."""

    def __init__(self, name: str, serve: Serve, *arguments: Any) -> None:
        """Start it. `name`: for the log and for ps(1). Raises OSError."""
        self._name, self._serve = name, serve
        self._killed = False
        self._start(arguments)

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has neither ended nor been killed."""
        return self._process.poll() is None and not self._killed

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def start_again(self, *arguments: Any) -> bool:
        """Start it again if it has ended, with these arguments, on a new channel.

        Returns whether it was started: not while a killed one has not ended, and once every `PAUSE` seconds at most.
        Raises OSError.
        """
        status = self._process.poll()
        if status is None or time.monotonic() - self._started < PAUSE:
            return False
        log.error("the process %s has ended (status %d); it is started again", self._name, status)
        self.channel.close()
        self._start(arguments)
        return True

    def kill(self) -> None:
        """End it, and wait for that no longer than a moment."""
        self._killed = True
        self.channel.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_SECONDS)

    def end(self) -> list[Any]:
        """End it; what it had sent by then, and was not received.

        Raises:
            TimeoutError: it has not ended within `END_SECONDS`, and may do more.
        """
        self._killed = True
        self._process.kill()
        sent: list[Any] = []
        try:
            self._process.wait(END_SECONDS)
            with contextlib.suppress(ConnectionError):
                for message in self.channel.arrived():  # after the last one it raises
                    sent.append(message)  # noqa: PERF402
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the process {self._name} cannot be ended") from error
        finally:
            self.channel.close()
        return sent

    def _start(self, arguments: tuple[Any, ...]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            end = theirs.fileno()
            command = [sys.executable, "-P", "-c", _RUN, str(end), self._name]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(end,))
        self._killed, self._started, self.channel = False, time.monotonic(), Channel(ours)
        self.channel.send(sys.path)
        self.channel.send((self._serve, arguments, _log_format()))


def _log_format() -> tuple[int, logging.Formatter | None]:
    """From which level on this process logs, and how it writes a line to standard error."""
    root = logging.getLogger()
    return root.level, next((each.formatter for each in root.handlers if type(each) is logging.StreamHandler), None)


def _log_as(level: int, formatter: logging.Formatter | None) -> None:
    """Log to standard error, which is the daemon's, as the daemon does."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def run(descriptor: int) -> None:
    """The process itself: only the daemon ends it, so that it can serve until the daemon's last cycle."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=descriptor))
    threading.Thread(target=_end_after_the_daemon, args=(descriptor,), name="daemon gone", daemon=True).start()
    with contextlib.suppress(ConnectionError):
        sys.path[:] = channel.receive()
        serve, arguments, log_format = channel.receive()
        _log_as(*log_format)
        serve(channel, *arguments)
        channel.flush()


def _end_after_the_daemon(descriptor: int) -> None:
    """End this process when the daemon is gone, also a killed one, and it is computing: the next has its own."""
    gone = select.poll()
    gone.register(descriptor, select.POLLRDHUP)
    gone.poll()
    time.sleep(LEFT_SECONDS)
    os._exit(1)

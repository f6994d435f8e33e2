"""The folder that the controllers share, reached by a process of its own, as its file system may hang."""

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from slurmplug.doctor import facts
from slurmplug.doctor.values import PathStatus
from slurmplug.errors import NotConfirmed
from slurmplug.processes.worker import Worker

ANSWER_SECONDS = 5.0
_HEARTBEAT_BYTES = 200

T = TypeVar("T")


class Heartbeat(NamedTuple):
    """A renewal of the lease: the holder's host and process, and the count of its renewals; empty without a holder."""

    host: str = ""
    process: str = ""
    number: str = ""


class SharedFolder:
    """`takeover.folder`. What it does not answer within `ANSWER_SECONDS` is not known."""

    def __init__(self, path: Path) -> None:
        """Start the process. Raises OSError."""
        self.path = path
        self._worker = Worker("takeover")
        self._temporary = f".acting.{secrets.token_hex(8)}"

    def heartbeat(self) -> Heartbeat:
        """As `read_heartbeat`, within a time."""
        return self._ask(read_heartbeat, self.path)

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Replace the last heartbeat; an empty one releases the lease. Raises NotConfirmed: it may not be written."""
        until = time.monotonic() + ANSWER_SECONDS
        self._ask(write_heartbeat, self.path, self._temporary, heartbeat, until)

    def status(self) -> PathStatus | None:
        """The folder's status; None where it does not answer."""
        try:
            return self._ask(facts.path_status, self.path)
        except NotConfirmed:
            return None

    def finish_within(self, seconds: float) -> None:
        """As `Worker.finish_within`."""
        self._worker.finish_within(seconds)

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._worker.close()

    def _ask(self, function: Callable[..., T], *arguments: object) -> T:
        try:
            return self._worker.call(function, *arguments, seconds=ANSWER_SECONDS)
        except OSError as error:
            raise NotConfirmed(f"{self.path} does not answer: {error}") from error


def read_heartbeat(folder: Path) -> Heartbeat:
    """The last heartbeat in the shared folder.

    Raises:
        NotConfirmed: the shared folder cannot be read.
    """
    try:
        with (folder / "acting").open("rb") as file:
            words = file.read(_HEARTBEAT_BYTES).decode("ascii", "replace").split()
    except FileNotFoundError:
        return Heartbeat()
    except OSError as error:
        raise NotConfirmed(f"{folder}/acting cannot be read: {error.strerror}") from error
    return Heartbeat(*words) if len(words) == len(Heartbeat._fields) else Heartbeat()


def write_heartbeat(folder: Path, temporary: str, heartbeat: Heartbeat, until: float) -> None:
    """Replace the last heartbeat, but not after `until` of the monotonic clock: another daemon may hold the lease then.

    temporary: the name that the file has until it is whole, which no other daemon uses.

    Raises:
        NotConfirmed: the shared folder cannot be written, or it took too long.
    """
    path = folder / "acting"
    try:
        (folder / temporary).write_text(" ".join(heartbeat) + "\n")
        if time.monotonic() > until:
            raise NotConfirmed(f"{path} could not be written in time")
        os.replace(folder / temporary, path)
    except OSError as error:
        raise NotConfirmed(f"{path} cannot be written: {error.strerror}") from error

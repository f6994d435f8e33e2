"""The spool in a process of its own, asked under deadlines, so that a file system that hangs stops nothing else.

A process that does not answer is left alone until it does, and meanwhile every call fails at once. What it read is not
lost. After `GIVE_UP` seconds it is killed, which ends one that does not sleep in the kernel, and another one goes on
from where it had read to.
"""

import errno
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from slurmplug.errors import AlreadyRunning, SlurmplugError
from slurmplug.processes.child import Channel, Child
from slurmplug.spool.folder import SpoolFolder
from slurmplug.spool.read_file import ReadFile
from slurmplug.spool.report_files import NOT_KNOWN, NewReports
from slurmplug.spool.requests import Request, RequestKind
from slurmplug.spool.run_files import Swept
from slurmplug.spool.values import RunId, SpoolFault

ANSWER_SECONDS = 5.0
"""for all calls from one reading to the next: so long a spool that is slow keeps a cycle"""
START_SECONDS = 15.0
"""in which the daemon's first one answers"""
LOCK_SECONDS = 4.0
"""in which the process of a daemon that has ended gives the lock back"""
STOP_SECONDS = 0.5
"""in which it answers when the daemon is to stop"""
GIVE_UP = 60.0
UNANSWERED = "does not answer"
_START = "start"

T = TypeVar("T")
Lock: TypeAlias = Callable[[Path], AbstractContextManager[None]]
"""Holds a file's lock, or raises AlreadyRunning or another SlurmplugError. A function of a module."""

log = logging.getLogger(__name__)


class SpoolProcess:
    """A `Spool` in another process, which holds the lock in it: one daemon a spool, which is one a cluster."""

    def __init__(self, path: Path, lock: Lock, go_on: Callable[[], bool] = lambda: True) -> None:
        """Start the process. `go_on`: called while it is waited for; returns whether to wait for more than a moment."""
        self._path, self._lock, self._go_on = path, lock, go_on
        self._files: dict[str, ReadFile] = {}
        self._late: NewReports | None = None
        """reports that were read for a call that had been given up"""
        self._stored: Mapping[RunId, float] = {}
        self.merge_costs: Mapping[RunId, float] = {}
        """as for `ReportReader.read`, from the next reading on"""
        self._silent = False
        self._left = ANSWER_SECONDS
        """seconds for which calls are still waited for until the next reading; before the first, for each"""
        self._has_read = False
        self._child = Child("spool", serve, path, lock, self._files)
        self._open: tuple[str, float] | None = (_START, time.monotonic())
        """what was asked and is not answered, and when; in seconds of the monotonic clock"""

    def begin(self) -> None:
        """Wait until the process holds the lock; one that hangs is left to the calls.

        Raises:
            AlreadyRunning: another daemon holds the lock.
            SlurmplugError: the lock cannot be made.
        """
        try:
            self._take(START_SECONDS)
        except OSError as error:
            self._note_silence(error)

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._child.pid

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._child.kill()

    def skip_stored(self, until: Mapping[RunId, float]) -> None:
        """As `ReportReader.read` does with `stored`, from the next reading on."""
        self._stored = dict(until)

    # --- as a Spool -------------------------------------------------------------------------------------------------

    def read(self, owners: Mapping[RunId, int], started: Mapping[RunId, float] = NOT_KNOWN) -> NewReports:
        """As `Spool.read`."""
        faults: tuple[SpoolFault, ...] = ()
        try:
            self._note_read(self._ask("read", dict(owners), dict(started), self._stored, dict(self.merge_costs)))
            self._stored = {}
        except OSError:
            faults = (SpoolFault(0, "spool", UNANSWERED, 1),)
        new, self._late = self._late or NewReports({}, ()), None
        self._files = {name: file for name, file in self._files.items() if file.run in owners}
        lines = {run: lines for run, lines in new.lines.items() if run in owners}
        return NewReports(lines, new.faults + faults)

    def write_requests(self, requests: Sequence[Request]) -> list[str]:
        """As `Spool.write_requests`."""
        errors: list[str] = self._ask("write_requests", list(requests))
        return errors

    def open_runs(self, kind: RequestKind) -> list[RunId]:
        """As `Spool.open_runs`."""
        found: list[RunId] = self._ask("open_runs", kind)
        return found

    def write_notices(self, notices: Mapping[RunId, str]) -> None:
        """As `Spool.write_notices`."""
        self._ask("write_notices", dict(notices))

    def write_waiting(self, job_ids: Iterable[int]) -> None:
        """As `Spool.write_waiting`."""
        self._ask("write_waiting", list(job_ids))

    def read_waiting(self) -> frozenset[int]:
        """As `Spool.read_waiting`."""
        found: frozenset[int] = self._ask("read_waiting")
        return found

    def sweep(self, keep: Collection[RunId], asked: Collection[RunId], before: float) -> Swept:
        """As `Spool.sweep`."""
        try:
            swept: Swept = self._ask("sweep", frozenset(keep), frozenset(asked), before)
        except OSError:
            return Swept((SpoolFault(0, "spool", UNANSWERED, 1),), finished=True)
        return swept

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function of a module that uses the spool in its own way. Raises OSError."""
        answer: T = self._ask("call", function, *arguments)
        return answer

    # --- questions and answers --------------------------------------------------------------------------------------

    def _ask(self, method: str, *arguments: Any) -> Any:
        """The answer of a method of the process' SpoolFolder.

        Raises:
            OSError: as the method does; TimeoutError: it is not known whether it was done.
            AlreadyRunning: another daemon has taken the lock since the process was started again.
        """
        if method == "read" or not self._has_read:
            self._left, self._has_read = ANSWER_SECONDS, method == "read"
        began = time.monotonic()
        try:
            self._make_ready()
            self._child.channel.send((method, arguments))
            self._open = method, time.monotonic()
            answer = self._take(self._left)
        except AlreadyRunning:
            raise
        except (TimeoutError, ConnectionError, SlurmplugError) as error:
            self._note_silence(error)
            raise TimeoutError(errno.ETIMEDOUT, UNANSWERED) from error
        finally:
            self._left -= time.monotonic() - began
        if self._silent:
            self._silent = False
            log.info("the spool %s answers again", self._path)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _make_ready(self) -> None:
        """Take an answer that is late; or start the process again. Raises as `_take`, and where no time is left."""
        if self._left <= 0:
            raise TimeoutError("it was waited for long enough in this cycle")
        started = self._child.start_again(self._path, self._lock, self._files)
        if started:
            self._open = _START, time.monotonic()
        elif not self._child.running:
            raise TimeoutError("its process has ended" if self._child.gone else "its process cannot be ended")
        if self._open is None:
            return
        asked, since = self._open
        if not started and time.monotonic() - since > GIVE_UP:
            self._child.kill()
            raise TimeoutError("its process is ended")
        answer = self._take(ANSWER_SECONDS if started else 0.0)
        if asked == "read" and not isinstance(answer, OSError):
            self._note_read(answer)

    def _take(self, timeout: float) -> Any:
        """The answer to what was asked. Raises TimeoutError, ConnectionError, and what a start failed by."""
        began = time.monotonic()
        answer = self._child.channel.receive(timeout, lambda: self._go_on() or time.monotonic() - began < STOP_SECONDS)
        self._open = None
        if isinstance(answer, SlurmplugError):
            raise answer
        return answer

    def _note_read(self, new: NewReports) -> None:
        """Add it to what `read` returns next."""
        before, self._late = self._late, new
        self._files.update(new.files)
        if before:
            lines = {run: before.lines.get(run, b"") + new.lines.get(run, b"") for run in {*before.lines, *new.lines}}
            self._late = NewReports(lines, before.faults + new.faults)

    def _note_silence(self, error: Exception) -> None:
        if not self._silent:
            log.error("the spool %s %s (%s); progress is not known until it does", self._path, UNANSWERED, error)
        self._silent = True


def serve(channel: Channel, path: Path, lock: Lock, files: Mapping[str, ReadFile]) -> None:
    """The process: answers each question, the first one, unasked, when it holds the lock."""
    with ExitStack() as stack:
        try:
            if path.is_dir():
                _hold(stack, lock, path / "daemon.lock")
        except SlurmplugError as error:
            channel.send(error)
            return
        channel.send(None)
        folder = SpoolFolder(path, files)
        while True:
            method, arguments = channel.receive()
            try:
                answer = getattr(folder, method)(*arguments)
            except OSError as error:
                answer = error
            channel.send(answer)


def _hold(stack: ExitStack, lock: Lock, path: Path) -> None:
    """Hold the lock from now on, after the process of a daemon that has ended. Raises SlurmplugError."""
    until = time.monotonic() + LOCK_SECONDS
    while time.monotonic() <= until or _held_by_killed(path):
        with suppress(AlreadyRunning):
            stack.enter_context(lock(path))
            return
        time.sleep(0.1)
    stack.enter_context(lock(path))  # the process that held it may have ended since


def _held_by_killed(path: Path) -> bool:
    """Whether the lock is of a process of this machine that was killed and sleeps in the kernel (proc(5), locks)."""
    with suppress(OSError):
        at = path.stat()
        file = f"{os.major(at.st_dev):02x}:{os.minor(at.st_dev):02x}:{at.st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, locked, *_ = line.replace("-> ", "").split()
            if (kind, locked) == ("FLOCK", file):
                pending = re.findall(
                    r"^(?:SigPnd|ShdPnd):\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
                )
                return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)
    return False

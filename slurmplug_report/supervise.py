"""Runs a program that cannot be changed, and reports its progress from what it prints, or logs in files.

This imports the standard library only and runs on Python 3.8.
"""

from __future__ import annotations

import math
import os
import re
import select
import selectors
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Iterator, Mapping, Sequence

from slurmplug_report.log_files import CsvLog
from slurmplug_report.report import Reporter
from slurmplug_report.stop import Stop

if TYPE_CHECKING:
    from slurmplug_report.tensorboard_log import TensorBoardLog

LINE_BYTES = 4_096
"""The first bytes of a line, in which patterns are searched."""
PIECE_BYTES = 65_536
LAST_PIECES = 16
"""The pieces read after the program ended: a pipe holds at most that much (pipe(7))."""
EARLY_LINES = 10_000
"""The lines after which it is said that no pattern has matched so far."""
POLL_SECONDS = 0.5
FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)


def supervise(
    command: Sequence[str],
    patterns: Sequence[re.Pattern[str]],
    stop_signal: signal.Signals,
    environment: Mapping[str, str],
    logs: Mapping[str, CsvLog | TensorBoardLog] | None = None,
) -> int:
    """Run a command to its end and report its progress; returns its exit status as a shell would, that of the request
    if the job was requested to stop. `logs`: by path, those that the command writes."""
    with ExitStack() as cleanup:
        reporter = Reporter.from_environment(environment)
        if reporter:
            reporter.start()
            cleanup.callback(reporter.close)
        try:
            # Python programs would keep their lines back now that they write into a pipe.
            child = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if _outputs_are_one_file() else subprocess.PIPE,
                env={"PYTHONUNBUFFERED": "1", **environment},
                bufsize=0,
            )
        except OSError as error:
            print(f"slurmplug: {command[0]}: {error.strerror}", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126
        cleanup.enter_context(child)
        cleanup.enter_context(_forward_signals(child))
        stop = _StopSignal(child, reporter, stop_signal)
        followed = _Followed(logs or {}, reporter)
        _pass_through(child, cleanup.enter_context(_woken_by_signals()), _Matcher(patterns, reporter), followed, stop)
        status = child.wait()
    if stop.sent:
        return stop.sent.status
    return 128 - status if status < 0 else status


class _StopSignal:
    """Sends the program the stop signal, once, when the job is requested to stop."""

    def __init__(self, child: subprocess.Popen[bytes], reporter: Reporter | None, number: signal.Signals) -> None:
        self.sent: Stop | None = None
        """the request that it was sent for"""
        self._child, self._reporter, self._signal = child, reporter, number

    def send_if_requested(self) -> None:
        stop = self._reporter.stop if self._reporter else None
        if stop and not self.sent and self._child.poll() is None:
            self.sent = stop
            self._child.send_signal(self._signal)


class _Matcher:
    """Reports what the patterns find in the lines of one or two streams."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], reporter: Reporter | None) -> None:
        self._patterns = patterns
        self._reporter = reporter if reporter and reporter.writes else None
        self._begun: dict[int, bytes] = {}
        self._iteration: str | None = None
        self._trial: str | None = None
        self._matched: set[re.Pattern[str]] = set()
        self._lines = 0

    def feed(self, stream: int, data: bytes) -> None:
        """Take a piece of a stream's output; a line ends with a newline, or a carriage return as of progress bars."""
        if self._reporter is None:
            return
        *lines, begun = re.split(rb"[\r\n]", self._begun.get(stream, b"") + data)
        for line in filter(None, lines):
            self._match(line)
        self._begun[stream] = begun[:LINE_BYTES]

    def end(self) -> None:
        """The output has ended."""
        for line in self._begun.values():
            self._match(line)
        for pattern in self._patterns:
            if self._reporter and pattern not in self._matched:
                print(f"slurmplug: no line of the output matched --pattern {pattern.pattern}", file=sys.stderr)
                self._reporter.add_unmatched()

    def _match(self, line: bytes) -> None:
        text = line[:LINE_BYTES].decode("utf-8", "replace")
        for pattern in self._patterns:
            if (match := pattern.search(text)) and self._reporter:
                self._matched.add(pattern)
                found = {name: value for name, value in match.groupdict().items() if value is not None}
                trial, checkpoint = found.pop("trial", None), found.pop("checkpoint", None)
                if trial is not None and trial != self._trial:
                    self._trial, self._iteration = trial, None
                self._iteration = found.pop("iteration", self._iteration)
                self._reporter.add(self._iteration, checkpoint, found, trial)
        self._lines += 1
        if self._lines == EARLY_LINES and self._patterns and not self._matched and self._reporter:
            print(f"slurmplug: no --pattern matched the first {EARLY_LINES:,} lines of the output", file=sys.stderr)
            self._reporter.add_unmatched()


class _Followed:
    """Reports what log files say."""

    def __init__(self, logs: Mapping[str, CsvLog | TensorBoardLog], reporter: Reporter | None) -> None:
        self._reporter = reporter if reporter and reporter.writes else None
        self._logs, self._silent = dict(logs), set(logs)
        self._read = -math.inf

    def read(self) -> None:
        """Report what is new, at most once in POLL_SECONDS."""
        if self._logs and time.monotonic() - self._read >= POLL_SECONDS:
            self._read = time.monotonic()
            for path in list(self._logs):
                self._read_one(path)

    def end(self) -> None:
        """The program has ended."""
        self._read = -math.inf
        self.read()
        for path in sorted(self._silent) if self._reporter else ():
            print(f"slurmplug: nothing was logged in {path}", file=sys.stderr)

    def _read_one(self, path: str) -> None:
        if self._reporter is None:
            return
        try:
            for iteration, found in self._logs[path].rows():
                self._silent.discard(path)
                self._reporter.add(iteration, None, found)
        except Exception as error:  # noqa: BLE001 of whatever is in the file, the program goes on
            del self._logs[path]
            self._silent.discard(path)
            print(f"slurmplug: {path} is not read on: {error}", file=sys.stderr)


def _pass_through(
    child: subprocess.Popen[bytes], woken: int, matcher: _Matcher, followed: _Followed, stop: _StopSignal
) -> None:
    """Copy what the program writes until it ends; processes that it leaves behind are not waited for.

    `woken` can be read after a signal, such as that of the program's end.
    """
    outputs = {pipe.fileno(): (pipe, target) for pipe, target in ((child.stdout, 1), (child.stderr, 2)) if pipe}
    with selectors.DefaultSelector() as selector:
        for source in (*outputs, woken):
            os.set_blocking(source, False)
            selector.register(source, selectors.EVENT_READ)
        running = True
        while running:
            running = child.poll() is None  # what it wrote is read once more after its end, however early that was
            ready = {key.fd for key, _ in selector.select(POLL_SECONDS if running else 0)}
            if woken in ready:
                os.read(woken, PIECE_BYTES)
            for source in list(outputs) if not running else ready & set(outputs):
                pipe, target = outputs[source]
                if not _copy_output(source, target, matcher, pieces=1 if running else LAST_PIECES):
                    selector.unregister(source)
                    del outputs[source]
                    pipe.close()
            followed.read()
            stop.send_if_requested()
    matcher.end()
    followed.end()


def _copy_output(source: int, target: int, matcher: _Matcher, pieces: int) -> bool:
    """Copy what was written so far, up to `pieces` pieces; False at the end of the output, or if nobody reads it."""
    for _ in range(pieces):
        try:
            data = os.read(source, PIECE_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        matcher.feed(source, data)
        try:
            _write(target, data)
        except OSError:  # the program gets the error at its own next write
            return False
    return True


def _write(target: int, data: bytes) -> None:
    pending = memoryview(data)
    while pending:
        pending = pending[_written(target, pending) :]


def _written(target: int, data: memoryview) -> int:
    """The bytes that could be written; 0 once more can be."""
    try:
        return os.write(target, data)
    except BlockingIOError:
        select.select([], [target], [])
        return 0


def _outputs_are_one_file() -> bool:
    """Whether standard output and error are the same file: one pipe for both then keeps their order."""
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:
        return False


@contextmanager
def _woken_by_signals() -> Iterator[int]:
    """A file that can be read after each signal, also that of a child's end."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    handler = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield readable
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGCHLD, handler)
        os.close(readable)
        os.close(writable)


@contextmanager
def _forward_signals(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward the signals sent to this process to the program; a terminal sends its own to both."""

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        child.send_signal(number)

    from_terminal = {signal.SIGINT, signal.SIGQUIT} if os.isatty(0) else set()
    before = {
        number: signal.signal(number, signal.SIG_IGN if number in from_terminal else forward) for number in FORWARDED
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

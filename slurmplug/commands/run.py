"""`slurmplug run`: runs a program that cannot be changed, and reports its progress from what it prints."""

import os
import re
import select
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

import click

from slurmplug_report.report import Reporter
from slurmplug_report.stop import Stop

LINE_BYTES = 4_096
"""The first bytes of a line, in which patterns are searched."""
PIECE_BYTES = 65_536
LAST_PIECES = 16
"""The pieces read after the program ended: a pipe holds at most that much (pipe(7))."""
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


def _patterns(_ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> list[re.Pattern[str]]:
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from error
        if not patterns[-1].groupindex:
            raise click.BadParameter(f"{text!r} names no quantity: write groups such as (?P<loss>[0-9.]+)")
    return patterns


def _signal(_ctx: click.Context, _param: click.Parameter, text: str) -> signal.Signals:
    try:
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except KeyError:
        raise click.BadParameter(f"{text!r} is not a signal: write TERM, INT, USR1, ...") from None


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--pattern",
    "patterns",
    callback=_patterns,
    multiple=True,
    required=True,
    help="A Python regular expression, searched in every line of output. Its named groups are reported: iteration, "
    "trial, loss, accuracy, checkpoint, or any other quantity. May be given several times.",
)
@click.option(
    "--stop-signal",
    callback=_signal,
    default="TERM",
    show_default=True,
    help="The signal sent to the program when the job is requested to stop.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(*, patterns: Sequence[re.Pattern[str]], stop_signal: signal.Signals, command: Sequence[str]) -> None:
    """Run COMMAND and report its progress from what it prints.

    Output, signals and exit status pass through unchanged; if the program ended because the job was requested to stop,
    the status is 0, or 1 where the script requires its target and that is not met. Write -- before COMMAND.
    """
    sys.exit(supervise(command, patterns, stop_signal, os.environ))


def supervise(
    command: Sequence[str],
    patterns: Sequence[re.Pattern[str]],
    stop_signal: signal.Signals,
    environment: Mapping[str, str],
) -> int:
    """Run a command to its end and report its progress; returns its exit status as a shell would, that of the request
    if the job was requested to stop."""
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
            click.echo(f"slurmplug run: {command[0]}: {error.strerror}", err=True)
            return 127 if isinstance(error, FileNotFoundError) else 126
        cleanup.enter_context(child)
        cleanup.enter_context(_forward_signals(child))
        stop = _StopSignal(child, reporter, stop_signal)
        _pass_through(child, _Matcher(patterns, reporter), stop)
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

    def feed(self, stream: int, data: bytes) -> None:
        """Take a piece of a stream's output; a line ends with a newline, or a carriage return as of progress bars."""
        if self._reporter is None:
            return
        *lines, begun = re.split(rb"[\r\n]", self._begun.get(stream, b"") + data)
        for line in filter(None, lines):
            self._match(line)
        self._begun[stream] = begun[:LINE_BYTES]

    def end(self) -> None:
        for line in self._begun.values():
            self._match(line)

    def _match(self, line: bytes) -> None:
        text = line[:LINE_BYTES].decode("utf-8", "replace")
        for pattern in self._patterns:
            if (match := pattern.search(text)) and self._reporter:
                found = {name: value for name, value in match.groupdict().items() if value is not None}
                trial, checkpoint = found.pop("trial", None), found.pop("checkpoint", None)
                if trial is not None and trial != self._trial:
                    self._trial, self._iteration = trial, None
                self._iteration = found.pop("iteration", self._iteration)
                self._reporter.add(self._iteration, checkpoint, found, trial)


def _pass_through(child: subprocess.Popen[bytes], matcher: _Matcher, stop: _StopSignal) -> None:
    """Copy what the program writes until it ends; processes that it leaves behind are not waited for."""
    outputs = {pipe.fileno(): (pipe, target) for pipe, target in ((child.stdout, 1), (child.stderr, 2)) if pipe}
    ended = os.pidfd_open(child.pid)
    with selectors.DefaultSelector() as selector:
        for source in (*outputs, ended):
            os.set_blocking(source, False)
            selector.register(source, selectors.EVENT_READ)
        running = True
        while running:
            ready = {key.fd for key, _ in selector.select(POLL_SECONDS)}
            running = ended not in ready
            for source in list(outputs) if not running else ready & set(outputs):
                pipe, target = outputs[source]
                if not _copy_output(source, target, matcher, pieces=1 if running else LAST_PIECES):
                    selector.unregister(source)
                    del outputs[source]
                    pipe.close()
            stop.send_if_requested()
    os.close(ended)
    matcher.end()


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
        try:
            pending = pending[os.write(target, pending) :]
        except BlockingIOError:
            select.select([], [target], [])


def _outputs_are_one_file() -> bool:
    """Whether standard output and error are the same file: one pipe for both then keeps their order."""
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:
        return False


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

"""Progress reports of a training job, and requests to it: `report()`, `checkpoint_requested()` and signals.

This runs inside users' programs, so it imports the standard library only, runs on Python 3.8, never raises, and never
waits for the disk: a daemon thread writes the reports and checks for requests, about twice a second while there is
something to write, else every few seconds.
"""

from __future__ import annotations

import atexit
import json
import math
import operator
import os
import signal
import stat
import sys
import threading
import time
import zlib
from collections import deque
from contextlib import suppress
from typing import Any, Mapping

from slurmplug_report.gpu_load import LoadMeter
from slurmplug_report.job_start import earliest_file_time
from slurmplug_report.report_file import opened_file, user_key
from slurmplug_report.stop import GO_ON, Stop, read_request

DEFAULT_SPOOL = "/var/spool/slurmplug"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables with a process's rank, innermost launcher first: torchrun runs under srun, mpirun under a batch step."""

BATCH_SECONDS = 0.5
IDLE_SECONDS = 5.0
CLOSE_SECONDS = 2.0
LOAD_SECONDS = 30.0
"""between two lines with the load of the job's GPUs and its node's network"""
NOTICE_BYTES = 1_000
MAX_QUEUED = 10_000
MAX_QUANTITIES = 32
MAX_NAME_LENGTH = 64
MAX_TRIAL_LENGTH = 64
RESERVED = ("time", "iteration", "checkpoint", "load", "trial")
LINES_PER_FLUSH = 1_024
THINNING_BYTES = 4 * 1024 * 1024
"""After each such amount written, a flush writes half as many lines: a file stays small however long a job runs."""


def report(
    iteration: Any = None,
    loss: Any = None,
    accuracy: Any = None,
    checkpoint: Any = None,
    trial: Any = None,
    **quantities: Any,
) -> Stop:
    """Report progress, and learn whether to stop.

    Every value may be anything that `float()` takes. Only rank 0 reports; on other ranks, and outside Slurm, nothing
    happens. Never raises.

    Args:
        iteration: the number of the iteration (usually an epoch) that just ended, counted from 0 or from 1; one more
            than the last if not given. slurmplug's own output counts from 1.
        loss, accuracy: of that iteration, in the unit of the job's target: with --target=accuracy>=0.92 a share, not
            percent.
        checkpoint: the iteration that a checkpoint saved just now holds.
        trial: the number or the short name of the training that this is of, where a job trains several models one
            after the other (folds, a sweep); it holds for the reports after it.
        **quantities: other quantities of that iteration, such as `perplexity=12.5`.

    Returns:
        True when the job is requested to stop: save, leave the training loop, and exit with its `status`; its `reason`
        says why. False on other ranks. A request for a checkpoint is never one to stop.
    """
    reporter = _current()
    if reporter is None or not reporter.writes:
        return GO_ON
    reporter.add(iteration, checkpoint, {"loss": loss, "accuracy": accuracy, **quantities}, trial)
    return reporter.stop


def checkpoint_requested() -> bool:
    """Whether a checkpoint is requested that was not reported yet: save, `report(checkpoint=...)`, and train on.

    False on ranks other than 0. Never raises.
    """
    reporter = _current()
    return reporter is not None and reporter.writes and reporter.checkpoint_requested


def checkpoint_on_signal(number: int) -> None:
    """Have this signal request a checkpoint: `checkpoint_requested()` is then true until one is reported.

    For jobs with `--checkpoint=USR1:steps` or `sbatch --signal=USR1@300`. Call it on every rank before the training,
    in the main thread. Nothing is saved in the signal's handler. Outside Slurm the signal keeps its handler.

    Raises:
        ValueError: there is no such signal, or this is not the main thread.
    """
    if Reporter.from_environment(os.environ) is not None:
        signal.signal(number, _count_signal)


class Reporter:
    """Writes the reports of one run, and reads the requests to it.

    Args:
        run: job id and restart count, joined by a dot.
        spool: the folder with `reports` and `requests`.
        writes: whether this process reports; one that does not still sees requests.
        since: seconds since the epoch; files in the spool that were last written before are of another job.
        home: the user's, where the key to the name of the file lies.
    """

    def __init__(self, run: str, spool: str, *, writes: bool, since: float = -math.inf, home: str = "") -> None:
        self.writes = writes
        self.stop = GO_ON
        self._run = run
        self._spool = spool
        self._since = since
        self._home = home
        self._queue: deque[dict[str, Any]] = deque(maxlen=MAX_QUEUED)
        self._iteration = -1.0
        self._lowest, self._latest = math.inf, -math.inf
        """iterations that were queued for writing"""
        self._trial: int | str | None = None
        self._time = 0.0
        self._stop_request: tuple[int, int] | None = None
        self._said = ""
        self._checkpoint_request: tuple[int, int] | None = None
        self._checkpoint_answered: tuple[int, int] | None = None
        self._signals_answered = 0
        self._notice: tuple[int, int] | None = None
        self._file: int | None = None
        self._written = 0
        self._unwritten = b""
        self._partial_line = False
        self._warned = False
        self._meter: LoadMeter | None = None
        self._measured = 0.0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slurmplug-report", daemon=True)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Reporter | None:
        """The reporter of the job that this process belongs to, from Slurm's variables; None outside Slurm."""
        job, restart = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")
        if not all(text.isascii() and text.isdigit() and len(text) <= 10 for text in (job, restart)):
            return None
        spool = environment.get("SLURMPLUG_SPOOL") or DEFAULT_SPOOL
        since = earliest_file_time(environment)
        run, home = f"{int(job)}.{int(restart)}", environment.get("HOME", "")
        return cls(run, spool, writes=is_rank_zero(environment), since=since, home=home)

    @property
    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint was requested since the last one that was reported."""
        by_file = self._checkpoint_request is not None and self._checkpoint_request != self._checkpoint_answered
        return by_file or self._signals_answered != _signals

    def start(self) -> None:
        """Start the thread. Raises RuntimeError where the interpreter is shutting down and none can be started."""
        self._thread.start()

    def close(self) -> None:
        """Write what is queued, for at most CLOSE_SECONDS."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def write_now(self) -> Stop:
        """Write what is queued and look for a request, where no thread does. Never raises."""
        self._flush()
        self._check_requests()
        self._close_file()
        return self.stop

    def add(self, iteration: Any, checkpoint: Any, quantities: Mapping[str, Any], trial: Any = None) -> None:
        """Queue a report, which the thread writes soon. Never raises."""
        if not self.writes:
            return
        if trial is not None:
            self._enter(_trial_name(trial))
        values = {
            name[:MAX_NAME_LENGTH]: _number(value)
            for name, value in list(quantities.items())[:MAX_QUANTITIES]
            if value is not None and name not in RESERVED
        }
        line: dict[str, Any] = {"time": self._now()}
        if iteration is not None or values:
            at = self._iteration + 1 if iteration is None else _number(iteration)
            self._iteration = self._iteration if at is None else at
            line["iteration"] = at
        if checkpoint is not None:
            line["checkpoint"] = _number(checkpoint)
            self._checkpoint_answered = self._checkpoint_request
            self._signals_answered = _signals
        if len(line) > 1:
            if self._trial is not None:
                line["trial"] = self._trial
            self._queue.append({**line, **values})
            if not self._wake.is_set():
                self._wake.set()

    def add_unmatched(self) -> None:
        """Queue that a pattern has matched no line of the output. Never raises."""
        if self.writes:
            self._queue.append({"time": self._now(), "unmatched pattern": 1})
            self._wake.set()

    def _enter(self, trial: int | str | None) -> None:
        """Count the iterations of another trial from its first one."""
        if trial is not None and trial != self._trial:
            self._trial, self._iteration = trial, -1.0

    def _now(self) -> float:
        """The time, later than that of the report before unless the clock was set back: so its reader can tell the
        first report of another training from one that it reads again."""
        now = round(time.time(), 6)
        if 0.0 <= self._time - now < 1.0:
            now = round(self._time + 1e-6, 6)
        self._time = now
        return now

    def _serve(self) -> None:
        self._check_requests()
        ending = False
        while not ending:
            self._wake.wait(IDLE_SECONDS)
            ending = self._closing.wait(BATCH_SECONDS)
            self._wake.clear()
            self._measure()
            self._flush()
            self._check_requests()
            self._print_notice()

    def _print_notice(self) -> None:
        """Print what the daemon has to tell the job's user, once for each notice and job."""
        found = self._request("notice") if self.writes else None
        if found is None or found == self._notice:
            return
        self._notice = found
        try:
            with open(f"{self._spool}/requests/{self._run}.notice", "rb") as file:
                text = file.read(NOTICE_BYTES).decode("ascii", "replace")
            shown = "".join(character if character.isprintable() else " " for character in text)
            os.write(2, f"slurmplug: {shown}\n".encode("ascii", "replace"))
        except OSError:
            return  # it is gone, or standard error is closed

    def _check_requests(self) -> None:
        stop, self._checkpoint_request = (self._request(kind) for kind in ("stop", "checkpoint"))
        if stop != self._stop_request:
            self._stop_request = stop
            self._take_stop(requested=stop is not None)

    def _take_stop(self, *, requested: bool) -> None:
        if not requested:
            self.stop = GO_ON
            return
        request = read_request(f"{self._spool}/requests/{self._run}.stop")
        self.stop = request.stop
        if self.writes and request.line != self._said:
            self._said = request.line
            _say(request.line)

    def _request(self, kind: str) -> tuple[int, int] | None:
        """Inode and time of the request's file, which differ from request to request; None where there is none.

        Ignored in a folder that others than its owner can write, and where it is older than the job.
        """
        folder = f"{self._spool}/requests"
        try:
            found = os.lstat(f"{folder}/{self._run}.{kind}")
            trusted = all(
                stat.S_ISDIR(mode) and not mode & 0o022
                for mode in (os.stat(self._spool).st_mode, os.lstat(folder).st_mode)
            )
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns) if trusted and found.st_mtime >= self._since else None

    def _measure(self) -> None:
        if self._meter is None:
            self._meter = LoadMeter()  # in the thread, since importing psutil and NVML takes a while
        if time.monotonic() - self._measured >= LOAD_SECONDS:
            self._measured = time.monotonic()
            if load := self._meter.measure():
                self._queue.append({"time": round(time.time(), 3), "load": load})

    def _flush(self) -> None:
        if not (self._unwritten or self._queue):
            return
        try:
            if self._file is None:
                self._file = opened_file(f"{self._spool}/reports", self._run, self._since, user_key(self._home))
                self._written = os.fstat(self._file).st_size
            self._unwritten = self._unwritten or self._lines()
            self._write(self._file, self._unwritten)
            self._unwritten = b""
        except OSError as error:
            self._close_file()
            self._warn(error)

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a network file system may report a full disk only here
                os.close(self._file)
            self._file = None

    def _lines(self) -> bytes:
        queued = [self._queue.popleft() for _ in range(len(self._queue))]
        points = [line for line in queued if "iteration" in line and "checkpoint" not in line]
        step = -(-len(points) // max(1, LINES_PER_FLUSH >> self._written // THINNING_BYTES)) or 1
        chosen = {id(line) for line in points[::-1][::step]}  # the last is among them
        chosen |= {id(line) for line in points if self._begins(line["iteration"])}
        kept = [
            line
            for line in queued
            if id(line) in chosen or "iteration" not in line or "checkpoint" in line or "load" in line
        ]
        text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in kept)
        return text.encode()

    def _begins(self, iteration: float | None) -> bool:
        """Whether the count is at its first iteration again, by which its reader knows that another training begins."""
        if iteration is None:
            return False
        begins = math.isinf(self._lowest) or iteration <= self._lowest < self._latest
        self._lowest, self._latest = min(self._lowest, iteration), iteration
        return begins

    def _write(self, file: int, lines: bytes) -> None:
        pending = memoryview(b"\n" + lines if self._partial_line else lines)
        self._partial_line = True
        while pending:
            done = os.write(file, pending)
            self._written += done
            pending = pending[done:]
        self._partial_line = False

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _say(f"slurmplug: progress is not reported: {error}")


def _say(line: str) -> None:
    """Write a line to the job's standard error."""
    with suppress(OSError):  # it is closed
        os.write(2, f"{line}\n".encode("utf-8", "replace"))


def is_rank_zero(environment: Mapping[str, str]) -> bool:
    """Whether this process reports for its job: rank 0 of the innermost launcher, or the only process."""
    if environment.get("LOCAL_RANK", "0") != "0":
        return False
    return next((environment[name] for name in RANKS if environment.get(name)), "0") == "0"


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  __float__ may raise anything; null in the report means not a number
        return None
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _trial_name(value: Any) -> int | str | None:
    """A whole number as it is, anything else as a text, a long one shortened so that it differs from others."""
    try:
        if not isinstance(value, (bool, str)) and hasattr(value, "__index__"):
            number = operator.index(value)
            if abs(number) < 10**12:
                return number
        text = str(value)
    except Exception:  # noqa: BLE001  __index__ and __str__ may raise anything; the trial is then the one before
        return None
    if len(text) > MAX_TRIAL_LENGTH:
        text = f"{text[: MAX_TRIAL_LENGTH - 9]}~{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
    return text or None


# The process's own reporter -------------------------------------------------------------------------------------------

_UNSET = object()
_reporter: Any = _UNSET
_signals = 0
"""how many came that request a checkpoint"""


def _current() -> Reporter | None:
    global _reporter  # noqa: PLW0603  one reporter per process, made at the first report
    if _reporter is _UNSET:
        _reporter = _started(Reporter.from_environment(os.environ))
    found: Reporter | None = _reporter
    return found


def _started(reporter: Reporter | None) -> Reporter | None:
    if reporter is None or not reporter.writes:
        return None
    try:
        reporter.start()
    except RuntimeError:  # the interpreter is shutting down
        return None
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:  # whose child processes skip atexit
        multiprocessing.Finalize(None, _close, exitpriority=0)
    return reporter


def _count_signal(_number: int, _frame: Any) -> None:
    global _signals  # noqa: PLW0603  a signal is the process's
    _signals += 1


def _close() -> None:
    if isinstance(_reporter, Reporter):
        _reporter.close()


def _forget() -> None:
    global _reporter  # noqa: PLW0603  the thread and its queue stay with the parent
    _reporter = _UNSET


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)

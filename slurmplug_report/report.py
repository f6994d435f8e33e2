"""What a training job says of itself, and what it is asked: `report()` and `checkpoint_requested()`.

This runs inside users' programs, so it imports the standard library only, never raises, and never waits for the disk:
a daemon thread writes what was reported and looks for requests, about twice a second while there is something to
write, else every few seconds.
"""

import atexit
import json
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from slurmplug_report.gpu_load import LoadMeter

DEFAULT_SPOOL = "/var/spool/slurmplug"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Who tells a process its rank, innermost launcher first: torchrun runs under srun, mpirun under a batch step."""

GATHER_SECONDS = 0.5
IDLE_SECONDS = 5.0
CLOSE_SECONDS = 2.0
LOAD_SECONDS = 30.0
"""between two lines that tell what the job's GPUs and its node's network bear"""
MOST_WAITING = 10_000
MOST_QUANTITIES = 32
NAME_LENGTH = 64
RESERVED = ("time", "iteration", "checkpoint", "load")
LINES_A_FLUSH = 1_024
THINNING_BYTES = 4 * 1024 * 1024
"""With every such piece written the lines of a flush are halved, so that a file stays small however long a job runs."""


def report(
    iteration: Any = None, loss: Any = None, accuracy: Any = None, checkpoint: Any = None, **quantities: Any
) -> bool:
    """Report progress; returns True when the job is asked to stop: save, leave the training loop and exit 0.

    `iteration` counts what the script trains on (usually epochs; one more than the last, if not given), from 0 or from
    1; what slurmplug tells counts from 1. `checkpoint` is the iteration that a saved checkpoint holds, every other
    keyword is a quantity of that iteration. Whatever `float()` takes will do. Only rank 0 reports; on other ranks, and
    outside Slurm, nothing happens and the answer is False. Never raises.
    """
    reporter = _current()
    if reporter is None or not reporter.writes:
        return False
    reporter.add(iteration, checkpoint, {"loss": loss, "accuracy": accuracy, **quantities})
    return reporter.stop_requested


def checkpoint_requested() -> bool:
    """Whether a checkpoint is asked for that has not been reported: save, `report(checkpoint=...)`, and train on.

    True on rank 0 only. Never raises.
    """
    reporter = _current()
    return reporter is not None and reporter.writes and reporter.checkpoint_requested


class Reporter:
    """The reports of one run, and the requests to it.

    Args:
        run: job id and restart, joined by a dot.
        spool: the folder with `reports` and `requests`.
        writes: whether this process reports; one that does not still sees requests.
    """

    def __init__(self, run: str, spool: str, *, writes: bool) -> None:
        self.writes = writes
        self.stop_requested = False
        self._run = run
        self._spool = spool
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self._iteration = -1.0
        self._checkpoint_request: tuple[int, int] | None = None
        self._checkpoint_answered: tuple[int, int] | None = None
        self._file: int | None = None
        self._written = 0
        self._unwritten = b""
        self._torn = False
        self._told = False
        self._meter: LoadMeter | None = None
        self._measured = 0.0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slurmplug-report", daemon=True)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> "Reporter | None":
        """The reporter of the job that this process belongs to; None outside Slurm."""
        job, restart = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_RESTART_COUNT", "0")
        if not all(text.isascii() and text.isdigit() and len(text) <= 10 for text in (job, restart)):
            return None
        spool = environment.get("SLURMPLUG_SPOOL") or DEFAULT_SPOOL
        return cls(f"{int(job)}.{int(restart)}", spool, writes=is_rank_zero(environment))

    @property
    def checkpoint_requested(self) -> bool:
        return self._checkpoint_request is not None and self._checkpoint_request != self._checkpoint_answered

    def start(self) -> None:
        """Start to write and to look. Raises RuntimeError where no thread can be started any more."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, within a bounded time."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def add(self, iteration: Any, checkpoint: Any, quantities: Mapping[str, Any]) -> None:
        """Take a report; it is written soon. Never raises."""
        if not self.writes:
            return
        values = {
            name[:NAME_LENGTH]: _number(value)
            for name, value in list(quantities.items())[:MOST_QUANTITIES]
            if value is not None and name not in RESERVED
        }
        line: dict[str, float | None] = {"time": round(time.time(), 3)}
        if iteration is not None or values:
            at = self._iteration + 1 if iteration is None else _number(iteration)
            self._iteration = self._iteration if at is None else at
            line["iteration"] = at
        if checkpoint is not None:
            line["checkpoint"] = _number(checkpoint)
            self._checkpoint_answered = self._checkpoint_request
        if len(line) > 1:
            self._waiting.append(line | values)
            if not self._wake.is_set():
                self._wake.set()

    def _serve(self) -> None:
        self._look()
        ending = False
        while not ending:
            self._wake.wait(IDLE_SECONDS)
            ending = self._closing.wait(GATHER_SECONDS)
            self._wake.clear()
            self._measure()
            self._flush()
            self._look()

    def _look(self) -> None:
        stop, checkpoint = (self._request(kind) for kind in ("stop", "checkpoint"))
        self.stop_requested = stop is not None
        self._checkpoint_request = checkpoint

    def _request(self, kind: str) -> tuple[int, int] | None:
        """What tells this request from the next of its kind. Only a folder that nobody else can write is believed."""
        folder = f"{self._spool}/requests"
        try:
            found = os.lstat(f"{folder}/{self._run}.{kind}")
            closed = all(
                stat.S_ISDIR(mode) and not mode & 0o022
                for mode in (os.stat(self._spool).st_mode, os.lstat(folder).st_mode)
            )
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns) if closed else None

    def _measure(self) -> None:
        if self._meter is None:
            self._meter = LoadMeter()  # here, since importing what it uses takes a while
        if time.monotonic() - self._measured >= LOAD_SECONDS:
            self._measured = time.monotonic()
            if load := self._meter.measure():
                self._waiting.append({"time": round(time.time(), 3), "load": load})

    def _flush(self) -> None:
        if not (self._unwritten or self._waiting):
            return
        try:
            if self._file is None:
                self._file = _open(f"{self._spool}/reports", self._run)
                self._written = os.fstat(self._file).st_size
            self._unwritten = self._unwritten or self._lines()
            self._write(self._file, self._unwritten)
            self._unwritten = b""
        except OSError as error:
            self._close_file()
            self._tell(error)

    def _close_file(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a network file system may say only now that its disk is full
                os.close(self._file)
            self._file = None

    def _lines(self) -> bytes:
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        points = [line for line in waiting if "iteration" in line and "checkpoint" not in line]
        step = -(-len(points) // max(1, LINES_A_FLUSH >> self._written // THINNING_BYTES)) or 1
        wanted = {id(line) for line in points[::-1][::step]}  # among them the last
        kept = [line for line in waiting if id(line) in wanted or "checkpoint" in line or "load" in line]
        text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in kept)
        return text.encode()

    def _write(self, file: int, lines: bytes) -> None:
        pending = memoryview(b"\n" + lines if self._torn else lines)
        self._torn = True
        while pending:
            done = os.write(file, pending)
            self._written += done
            pending = pending[done:]
        self._torn = False

    def _tell(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            try:
                os.write(2, f"slurmplug: progress is not reported: {error}\n".encode("utf-8", "replace"))
            except OSError:
                return  # standard error is closed, and nobody is there to be told


def is_rank_zero(environment: Mapping[str, str]) -> bool:
    """Whether this process speaks for its job: rank 0 of the innermost launcher, or the only process."""
    if environment.get("LOCAL_RANK", "0") != "0":
        return False
    return next((environment[name] for name in RANKS if environment.get(name)), "0") == "0"


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  a stranger's __float__ may raise anything; null says that no number came
        return None
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _open(folder: str, run: str) -> int:
    """The run's file, or another of the run's where somebody else took the name. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return _opened(f"{folder}/{run}.jsonl", flags)
    except OSError:
        return _opened(f"{folder}/{run}.{os.urandom(8).hex()}.jsonl", flags | os.O_EXCL)


def _opened(path: str, flags: int) -> int:
    file = os.open(path, flags, 0o640)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(file)
        raise FileExistsError(f"{path} is not our file")
    os.fchmod(file, 0o640)  # whatever the umask: the daemon reads it by its group
    return file


# The process's own reporter -------------------------------------------------------------------------------------------

_undecided = object()
_reporter: Any = _undecided


def _current() -> Reporter | None:
    global _reporter  # noqa: PLW0603  one reporter a process, decided at the first report
    if _reporter is _undecided:
        _reporter = _started(Reporter.of_environment(os.environ))
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
    if multiprocessing is not None:  # whose children leave without atexit
        multiprocessing.Finalize(None, _close, exitpriority=0)
    return reporter


def _close() -> None:
    if isinstance(_reporter, Reporter):
        _reporter.close()


def _forget() -> None:
    global _reporter  # noqa: PLW0603  the thread stayed with the parent, as did what waits to be written
    _reporter = _undecided


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)

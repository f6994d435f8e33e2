"""The spool, where jobs report and are asked: reading files that anybody may have put there, and writing requests.

    reports/   JOBID.RESTART.jsonl, or JOBID.RESTART.RANDOM.jsonl where somebody took that name; mode 3773, the daemon's
    requests/  JOBID.RESTART.stop and JOBID.RESTART.checkpoint; only the daemon writes here

A file counts by what it is, not by its name: regular, no link, owned by the job's user, within size. Everything else
is a `Fault`, told once, and none stops a cycle.
"""

import math
import os
import re
import stat
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from slurmplug.spool.report_lines import LINE_BYTES, Fault, Run

What = Literal["stop", "checkpoint"]

_REPORT = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})(?:\.[0-9a-f]{1,32})?\.jsonl", re.ASCII)
_REQUEST = re.compile(r"([1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,5})\.(?:stop|checkpoint)", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """How much of the spool is read, in bytes: of a file and of all files in a cycle, and of a file in its life."""

    file_cycle: int = 1 << 20
    cycle: int = 64 << 20
    file: int = 256 << 20
    files_a_run: int = 8


@dataclass(frozen=True)
class NewReports:
    """Whole lines that were not read before, by run, and what was not believed."""

    lines: Mapping[Run, bytes]
    faults: tuple[Fault, ...]


@dataclass
class _File:
    identity: tuple[int, int]
    turn: int = 0
    offset: int = 0
    torn: bytes = b""
    skipping: bool = False
    told: set[str] = field(default_factory=set)


class _Refused(Exception):
    """A file that is not believed: its rule, and a detail."""


class ReportReader:
    """Reads what is new in the report files of the runs that are asked for; remembers how far it read."""

    def __init__(self, spool: Path, limits: Limits = Limits()) -> None:
        self._folder = spool / "reports"
        self._limits = limits
        self._files: dict[str, _File] = {}
        self._turn = 0
        self._remaining = 0

    def read(self, wanted: Mapping[Run, int]) -> NewReports:
        """New whole lines of the runs in `wanted`, whose values are the uids that own them. Never raises for a file.

        A line without its end waits for it. The files that were read longest ago come first, so that where the cycle's
        bytes do not suffice, every file has its turn.
        """
        self._turn += 1
        lines: dict[Run, bytes] = {}
        look = _Look(self._limits)
        try:
            with _opened_folder(self._folder) as folder:
                found = {name: run for name, run in _names(folder, _REPORT) if run in wanted}
                self._files = {name: file for name, file in self._files.items() if name in found}
                for name in sorted(found, key=lambda name: self._files[name].turn if name in self._files else 0):
                    run = found[name]
                    if look.remaining > 0 and (new := self._read_file(look, folder, name, _Owned(run, wanted[run]))):
                        lines[run] = lines.get(run, b"") + new
        except OSError as error:
            look.faults[0, "spool", f"reports: {_why(error)}"] += 1
        return NewReports(lines, look.told())

    def _read_file(self, look: "_Look", folder: int, name: str, owned: "_Owned") -> bytes:
        try:
            at = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return b""
        job = owned.run.job_id
        identity = (at.st_dev, at.st_ino)
        file = self._files.get(name)
        if file is None or file.identity != identity:
            look.faults[job, "rotated", ""] += file is not None
            file = self._files[name] = _File(identity)
        file.turn = self._turn
        try:
            look.check(at, owned)
            if at.st_size < file.offset:
                look.faults[job, "truncated", ""] += 1
                file.offset, file.torn, file.skipping = 0, b"", False
            data = look.new_bytes(folder, name, file) if at.st_size > file.offset else b""
        except _Refused as refused:
            rule, detail = refused.args
            look.faults[job, rule, detail] += rule not in file.told
            file.told.add(rule)
            return b""
        whole, given_up = _whole_lines(file, data)
        look.faults[job, "long line", ""] += given_up
        return whole


class _Owned(NamedTuple):
    run: Run
    uid: int


class _Look:
    """One look at the spool: what may still be read, whose files were taken, and what was not believed."""

    def __init__(self, limits: Limits) -> None:
        self.faults: Counter[tuple[int, str, str]] = Counter()
        self.remaining = limits.cycle
        self._limits = limits
        self._accepted: Counter[Run] = Counter()

    def told(self) -> tuple[Fault, ...]:
        return tuple(Fault(*what, count) for what, count in self.faults.items() if count)

    def check(self, at: os.stat_result, owned: _Owned) -> None:
        """Raises _Refused for what is no report of this user."""
        if stat.S_ISLNK(at.st_mode):
            raise _Refused("link", "")
        if not stat.S_ISREG(at.st_mode):
            raise _Refused("not a file", "")
        if at.st_uid != owned.uid:
            raise _Refused("owner", f"uid {at.st_uid}")
        if at.st_size > self._limits.file:
            raise _Refused("size", f"more than {self._limits.file} bytes")
        self._accepted[owned.run] += 1
        if self._accepted[owned.run] > self._limits.files_a_run:
            raise _Refused("files", f"more than {self._limits.files_a_run}")

    def new_bytes(self, folder: int, name: str, file: _File) -> bytes:
        """Raises _Refused where the file cannot be read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
            try:
                at = os.fstat(descriptor)
                if (at.st_dev, at.st_ino) != file.identity:
                    return b""  # replaced since it was checked: the next cycle sees by what
                data = os.pread(descriptor, self._limits.file_cycle, file.offset)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _Refused("unreadable", _why(error)) from error
        file.offset += len(data)
        self.remaining -= len(data)
        return data


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _whole_lines(file: _File, data: bytes) -> tuple[bytes, int]:
    """The whole lines that `data` completes, and how many were given up because they are too long."""
    if file.skipping:
        _, newline, data = data.partition(b"\n")
        file.skipping = not newline
    whole, newline, file.torn = (file.torn + data).rpartition(b"\n")
    if len(file.torn) <= LINE_BYTES:
        return whole + newline, 0
    file.torn, file.skipping = b"", True
    return whole + newline, 1


class Requests:
    """What the daemon asks of runs. Raises OSError where the spool cannot be written."""

    def __init__(self, spool: Path) -> None:
        self._folder = spool / "requests"

    def ask(self, run: Run, what: What) -> None:
        """Ask; asking again for a checkpoint asks for another."""
        self.withdraw(run, what)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(self._path(run, what), flags, 0o644))

    def withdraw(self, run: Run, what: What) -> None:
        """Ask no longer; fine where nothing was asked."""
        self._path(run, what).unlink(missing_ok=True)

    def asked(self, run: Run, what: What) -> bool:
        return self._path(run, what).exists()

    def open_ones(self, what: What) -> list[Run]:
        """The runs that are asked."""
        with _opened_folder(self._folder) as folder:
            return [run for name, run in _names(folder, _REQUEST) if name.endswith(f".{what}")]

    def _path(self, run: Run, what: What) -> Path:
        return self._folder / f"{run.job_id}.{run.restart}.{what}"


def write_waiting(spool: Path, job_ids: Iterable[int]) -> None:
    """Say who waits for admission; when the file was written is the daemon's last sign of life.

    `site_config/slurmplug-release` lets these go when it has been gone for long. Raises OSError.
    """
    path = spool / "waiting"
    beside = path.with_suffix(".new")
    beside.write_text("".join(f"{job_id}\n" for job_id in sorted(job_ids)))
    beside.replace(path)


def read_waiting(spool: Path) -> frozenset[int]:
    """Who waited for admission when the daemon last lived; nobody where it never wrote that. Raises OSError."""
    try:
        words = (spool / "waiting").read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(word) for word in words if word.isdecimal() and word.isascii())


def sweep(spool: Path, keep: Container[Run], before: float) -> tuple[Fault, ...]:
    """Remove requests to runs that are not in `keep`, and their reports where last written before that time (seconds
    since the epoch). What cannot be removed, such as a directory with a report's name, is a fault."""
    faults: Counter[tuple[int, str, str]] = Counter()
    for name, pattern, until in (("reports", _REPORT, before), ("requests", _REQUEST, math.inf)):
        try:
            with _opened_folder(spool / name) as folder:
                for entry, run in list(_names(folder, pattern)):
                    if run not in keep:
                        _remove(folder, entry, run, until, faults)
        except OSError as error:
            faults[0, "spool", f"{name}: {_why(error)}"] += 1
    return tuple(Fault(*what, count) for what, count in faults.items())


def _remove(folder: int, name: str, run: Run, until: float, faults: Counter[tuple[int, str, str]]) -> None:
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < until:
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return  # somebody else removed it
    except OSError as error:
        faults[run.job_id, "not removed", _why(error)] += 1


@contextmanager
def _opened_folder(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _names(folder: int, pattern: re.Pattern[str]) -> Iterator[tuple[str, Run]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := pattern.fullmatch(entry.name):
                yield entry.name, Run(int(match[1]), int(match[2]))

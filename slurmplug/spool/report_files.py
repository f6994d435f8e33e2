"""Reading new lines of report files, in a folder where every user may put files.

What decides is the file, not its name: it counts when it is regular, no link, owned by the job's user, within the
limits, and written since the run started. Everything else is a `SpoolFault`, reported once, and none stops a cycle.
"""

import math
import os
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from slurmplug.spool.report_lines import MAX_LINE_BYTES, RunId, SpoolFault
from slurmplug.spool.run_files import (
    REPORT_NAME,
    REPORTS,
    FaultCounts,
    faults_of,
    names_in,
    opened_folder,
    reason_of,
)

NOT_KNOWN: Mapping[RunId, float] = MappingProxyType({})
OLDER = "another job"
"""The rule of a file that was last written before the run started."""
CLOCK_DIFFERENCE = 5.0
"""Seconds by which the clocks of slurmctld and of the spool's file server may differ."""


@dataclass(frozen=True)
class ReadLimits:
    """How much of the spool is read in a cycle, and how large a file may grow in its life, in bytes."""

    file_bytes_per_cycle: int = 1 << 20
    bytes_per_cycle: int = 64 << 20
    file_bytes: int = 256 << 20
    files_per_run: int = 8


@dataclass(frozen=True)
class NewReports:
    """Whole lines that were not read before, by run, and the faults that were found."""

    lines: Mapping[RunId, bytes]
    faults: tuple[SpoolFault, ...]


@dataclass
class _File:
    """How far one file was read."""

    identity: tuple[int, int]
    last_read: int = 0
    offset: int = 0
    partial_line: bytes = b""
    skipping: bool = False
    """the rest of a line that is too long"""
    reported: set[str] = field(default_factory=set)
    """the rules of faults"""


class _FileRejected(Exception):
    """A file that is not read; its arguments are the rule and the detail of a fault."""


class ReportReader:
    """Reads what is new in the report files of runs, and remembers how far it read."""

    def __init__(self, spool: Path, limits: ReadLimits = ReadLimits()) -> None:
        self._folder = spool / REPORTS
        self._limits = limits
        self._files: dict[str, _File] = {}
        self._cycle = 0

    def read(self, owners: Mapping[RunId, int], started: Mapping[RunId, float] = NOT_KNOWN) -> NewReports:
        """New whole lines of some runs. A line without its end is returned when it is complete.

        The files that were read longest ago come first, so that every file has its turn where the bytes of a cycle
        do not suffice for all. No file makes it raise.

        Args:
            owners: the uid of the user of each run that is read.
            started: when each run started, seconds since the epoch. What was in a file before is not read: it is of an
                earlier job with the same id.
        """
        self._cycle += 1
        lines: dict[RunId, bytes] = {}
        cycle = _CycleRead(self._limits)
        try:
            with opened_folder(self._folder) as folder:
                found = {name: run for name, run in names_in(folder, REPORT_NAME) if run in owners}
                self._files = {name: file for name, file in self._files.items() if name in found}
                for name in sorted(found, key=lambda name: self._files[name].last_read if name in self._files else 0):
                    run = found[name]
                    owned = _Owned(run, owners[run], started.get(run, -math.inf))
                    if cycle.bytes_left > 0 and (new := self._read_file(cycle, folder, name, owned)):
                        lines[run] = lines.get(run, b"") + new
        except OSError as error:
            cycle.faults[0, "spool", f"{REPORTS}: {reason_of(error)}"] += 1
        return NewReports(lines, faults_of(cycle.faults))

    def _read_file(self, cycle: "_CycleRead", folder: int, name: str, owned: "_Owned") -> bytes:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return b""
        job = owned.run.job_id
        identity = (status.st_dev, status.st_ino)
        file = self._files.get(name)
        if file is None or file.identity != identity:
            cycle.faults[job, "rotated", ""] += file is not None
            file = self._files[name] = _File(identity)
        file.last_read = self._cycle
        try:
            cycle.check(status, owned)
            if status.st_size < file.offset:
                cycle.faults[job, "truncated", ""] += 1
                file.offset, file.partial_line, file.skipping = 0, b"", False
            data = cycle.new_bytes(folder, name, file) if status.st_size > file.offset else b""
        except _FileRejected as rejected:
            rule, detail = rejected.args
            if rule == OLDER:  # what is written from now on may be the run's
                file.offset, file.partial_line, file.skipping = status.st_size, b"", False
            cycle.faults[job, rule, detail] += rule not in file.reported
            file.reported.add(rule)
            return b""
        lines, dropped = _whole_lines(file, data)
        cycle.faults[job, "long line", ""] += dropped
        return lines


class _Owned(NamedTuple):
    """A run, the uid of its user, and when it started."""

    run: RunId
    uid: int
    started: float


class _CycleRead:
    """What one cycle may still read, how many files of each run were accepted, and the faults that were found."""

    def __init__(self, limits: ReadLimits) -> None:
        self.faults: FaultCounts = Counter()
        self.bytes_left = limits.bytes_per_cycle
        self._limits = limits
        self._accepted: Counter[RunId] = Counter()

    def check(self, status: os.stat_result, owned: _Owned) -> None:
        """Raises _FileRejected for what is no report of this user."""
        if stat.S_ISLNK(status.st_mode):
            raise _FileRejected("link", "")
        if not stat.S_ISREG(status.st_mode):
            raise _FileRejected("not a file", "")
        if status.st_uid != owned.uid:
            raise _FileRejected("owner", f"uid {status.st_uid}")
        if status.st_size > self._limits.file_bytes:
            raise _FileRejected("size", f"more than {self._limits.file_bytes} bytes")
        if status.st_mtime < owned.started - CLOCK_DIFFERENCE:
            raise _FileRejected(OLDER, "")
        self._accepted[owned.run] += 1
        if self._accepted[owned.run] > self._limits.files_per_run:
            raise _FileRejected("files", f"more than {self._limits.files_per_run}")

    def new_bytes(self, folder: int, name: str, file: _File) -> bytes:
        """The bytes after those that were read. Raises _FileRejected where the file cannot be read."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=folder)
            try:
                status = os.fstat(descriptor)
                if (status.st_dev, status.st_ino) != file.identity:
                    return b""  # replaced since it was checked: the next cycle reads the new file
                data = os.pread(descriptor, self._limits.file_bytes_per_cycle, file.offset)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _FileRejected("unreadable", reason_of(error)) from error
        file.offset += len(data)
        self.bytes_left -= len(data)
        return data


def _whole_lines(file: _File, data: bytes) -> tuple[bytes, int]:
    """The whole lines that `data` completes, and how many were dropped because they are too long."""
    if file.skipping:
        _, newline, data = data.partition(b"\n")
        file.skipping = not newline
    lines, newline, file.partial_line = (file.partial_line + data).rpartition(b"\n")
    if len(file.partial_line) <= MAX_LINE_BYTES:
        return lines + newline, 0
    file.partial_line, file.skipping = b"", True
    return lines + newline, 1

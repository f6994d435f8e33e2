"""Reading new lines of report files, in a folder where every user may put files.

What decides is the file, not its name: it counts when it is regular, no link, owned by the job's user, within the
limits, and written since the run started. Everything else is a `SpoolFault`, reported once, and none stops a cycle.

Users take turns: whoever has cost least in a cycle is next, with the file that was read longest ago. A file is its
owner's, whatever its name, so files that are named as another's cost that one nothing.
"""

import heapq
import math
import os
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slurmplug.spool.json_lines import fault_of
from slurmplug.spool.read_file import TURN_BYTES, ReadFile, place_of, whole_lines
from slurmplug.spool.report_lines import MAX_CLOCK_BEHIND
from slurmplug.spool.run_files import (
    REPORT_NAME,
    REPORTS,
    FaultCounts,
    Names,
    faults_of,
    opened_folder,
    reason_of,
    run_of,
)
from slurmplug.spool.values import RunId, SpoolFault

NOT_KNOWN: Mapping[RunId, float] = MappingProxyType({})
OLDER = "another job"
"""The rule of a file that was last written before the run started."""
CLOCK_DIFFERENCE = 5.0
"""Seconds by which the clocks of slurmctld and of the spool's file server may differ."""

LOOK_COST, READ_COST, LINE_COST, BYTE_COST = 8, 30, 25, 0.1
"""Microseconds of the processor, about: of a look at a file, of reading it, and of a line and a byte until they are in
the ledger. By these, and not by a clock, turns are the same on every machine."""
PLACE_COST = 60
"""The cost of each step of the search for the place in a file from which it is read."""
MERGE_COST = 150
"""The cost of merging what is new of a run into its points, and of writing these; of some runs it is more."""
LIST_SHARE, LOOK_SHARE = 1 / 6, 1 / 3
"""Shares of the wall-clock time: for listing names, and for finding out whose the new files are."""
LIST_NAMES = 1_000
"""The clock is looked at after so many names."""
FIRST_SECONDS, MOST_SECONDS, LEAST_SECONDS = 60.0, 60.0, 1.0
"""What the first reading counts as the time since the one before, and what others count at most and at least."""


@dataclass(frozen=True)
class ReadLimits:
    """How much is read in a cycle, and of a file in its life. Costs are counted by the constants above."""

    user_share: float = 0.005
    """what is read of a user costs no more than this share of the time since the last reading,"""
    share: float = 0.05
    """and what is read of all"""
    file_cost: float = 100_000.0
    """microseconds"""
    seconds: float = 3.0
    """of a cycle by the clock, however slow the file system is"""
    file_bytes: int = 256 << 20
    files_per_run: int = 8
    unreadable_lines: int = 1_000
    """a file with so many is left"""


@dataclass(frozen=True)
class NewReports:
    """Whole lines that were not read before, by run, and the faults that were found.

    `files`: the files that were read from, each with how far; a reader that begins with them goes on from there.
    """

    lines: Mapping[RunId, bytes]
    faults: tuple[SpoolFault, ...]
    files: Mapping[str, ReadFile] = field(default_factory=dict, compare=False)


class _FileRejected(Exception):
    """A file that is not read; its arguments are the rule and the detail of a fault."""


@dataclass(slots=True)
class _UserQueue:
    """The report files of one user, which are read in turns, and what reading them costs.

    waiting: files that wait for their turn. had_turn: those that had it in this cycle. cost: in this cycle, and what
    earlier cycles cost above the user's share. last_turn: the cycle.
    """

    waiting: deque[ReadFile] = field(default_factory=deque)
    had_turn: list[ReadFile] = field(default_factory=list)
    cost: float = 0.0
    last_turn: int = 0

    def begin(self, paid: float) -> None:
        """Begin a cycle: files without a turn in the last one come first. paid: what they might cost in that one."""
        self.waiting.extend(self.had_turn)
        self.had_turn.clear()
        self.cost = max(0.0, self.cost - paid)

    def next(self) -> ReadFile | None:
        """The next file that is still there; None if all had their turn."""
        while self.waiting:
            if not (file := self.waiting.popleft()).gone:
                return file
        return None


class ReportReader:
    """Reads what is new in the report files of runs, and remembers how far it read."""

    def __init__(
        self,
        spool: Path,
        limits: ReadLimits = ReadLimits(),
        files: Mapping[str, ReadFile] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`files`: how far another reader has read."""
        self._folder = spool / REPORTS
        self._limits, self._clock = limits, clock
        self._files = dict(files)
        self._users: dict[int, _UserQueue] = {}
        self._accepted = Counter(file.run for file in files.values() if file.accepted)
        for file in files.values():
            self._queue(file)
        self._names = Names(self._folder)
        self._new: dict[RunId, deque[ReadFile]] = {}
        """those that were not looked at yet, by the run that they are named as"""
        self._stored: dict[RunId, float] = {}
        self._merge_costs: Mapping[RunId, float] = {}
        self._cycle = 0
        self._read_at = -math.inf
        self._user_cost = 0.0

    def read(
        self,
        owners: Mapping[RunId, int],
        started: Mapping[RunId, float] = NOT_KNOWN,
        stored: Mapping[RunId, float] = NOT_KNOWN,
        merge_costs: Mapping[RunId, float] = NOT_KNOWN,
    ) -> NewReports:
        """New whole lines of some runs, those alone that are JSON objects. A line without its end waits for it.

        Where the limits of a cycle do not suffice for all, the next one begins with those that had no turn. No file
        makes it raise.

        Args:
            owners: the uid of the user of each run that is read.
            started: when each run started, seconds since the epoch. What was in a file before is not read: it is of an
                earlier job with the same id.
            stored: until when reports of a run are in the ledger, from now on: of a file that was not read yet, what is
                well before is passed over without reading it.
            merge_costs: microseconds of CPU time to merge what is new of some runs; of others, `MERGE_COST`.
        """
        self._cycle += 1
        self._stored.update(stored)
        self._merge_costs = merge_costs
        cycle = _Cycle(owners, started)
        try:
            with opened_folder(self._folder) as folder:
                began, seconds = self._clock(), self._limits.seconds
                self._list(owners, began + LIST_SHARE * seconds)
                self._look_at_new(cycle, folder, began + (LIST_SHARE + LOOK_SHARE) * seconds)
                self._take_turns(cycle, folder, began + seconds)
        except OSError as error:
            cycle.faults[0, "spool", f"{REPORTS}: {reason_of(error)}"] += 1
        lines = {run: b"".join(parts) for run, parts in cycle.lines.items()}
        return NewReports(lines, faults_of(cycle.faults), cycle.files)

    # --- whose turn it is -------------------------------------------------------------------------------------------

    def _list(self, owners: Mapping[RunId, int], until: float) -> None:
        """Forget the files of runs that are not read, and note the new ones, as many as can be listed in time.

        The next call goes on from there. Raises OSError.
        """
        for file in [file for file in self._files.values() if file.run not in owners]:
            self._forget(file)
        while self._clock() < until:
            for name in self._names.next(LIST_NAMES):
                if name not in self._files and (run := run_of(name, REPORT_NAME)) and run in owners:
                    self._files[name] = file = ReadFile(name, run)
                    self._new.setdefault(run, deque()).append(file)
            if self._names.at_start:
                return

    def _look_at_new(self, cycle: "_Cycle", folder: int, until: float) -> None:
        """Find out whose the new files are: one with the name of each run, then the second of each, and so on."""
        runs = deque(self._new)
        while runs and self._clock() < until:
            run = runs.popleft()
            file = self._new[run].popleft()
            if self._new[run]:
                runs.append(run)
            else:
                del self._new[run]
            status = None if file.gone else self._look(cycle, folder, file)
            if status:
                file.identity, file.owner = _identity(status), status.st_uid
                self._queue(file)
            else:
                self._forget(file)

    def _forget(self, file: ReadFile) -> None:
        """Forget a file that is gone, or whose run is."""
        if self._files.get(file.name) is file:
            del self._files[file.name]
            file.gone = True
            self._accepted[file.run] -= file.accepted
            if not self._accepted[file.run]:
                del self._accepted[file.run]

    def _queue(self, file: ReadFile) -> None:
        self._users.setdefault(file.owner, _UserQueue()).waiting.append(file)

    def _take_turns(self, cycle: "_Cycle", folder: int, until: float) -> None:
        seconds, cost = self._seconds_since_last(), 0.0
        most, before = self._limits.share * seconds * 1e6, self._user_cost
        self._user_cost = self._limits.user_share * seconds * 1e6
        self._users = {uid: user for uid, user in self._users.items() if user.waiting or user.had_turn}
        for user in self._users.values():
            user.begin(before)
        turns = [(each.cost, each.last_turn, uid) for uid, each in self._users.items() if each.cost < self._user_cost]
        heapq.heapify(turns)
        while turns and cost < most and self._clock() < until:
            uid = heapq.heappop(turns)[2]
            user = self._users[uid]
            if (file := user.next()) is None:
                continue
            user.last_turn = self._cycle
            turn_cost, more = self._turn(cycle, folder, file)
            cost += turn_cost
            user.cost += turn_cost
            if file.gone:
                pass
            elif file.owner == uid:
                (user.waiting if more else user.had_turn).append(file)
            else:
                self._queue(file)
            if user.cost < self._user_cost:
                heapq.heappush(turns, (user.cost, user.last_turn, uid))

    def _seconds_since_last(self) -> float:
        before, self._read_at = self._read_at, self._clock()
        seconds = FIRST_SECONDS if math.isinf(before) else self._read_at - before
        return min(max(seconds, LEAST_SECONDS), MOST_SECONDS)

    # --- one turn ---------------------------------------------------------------------------------------------------

    def _turn(self, cycle: "_Cycle", folder: int, file: ReadFile) -> tuple[float, bool]:
        """Read a piece of a file. Returns what that cost, and whether there is more for this cycle."""
        job, status = file.run.job_id, self._look(cycle, folder, file)
        if status is None:
            self._forget(file)
            return LOOK_COST, False
        if file.identity != _identity(status):
            cycle.faults[job, "rotated", ""] += 1
            file.replace(_identity(status))
        file.owner = status.st_uid
        try:
            self._check(cycle, status, file)
            if status.st_size < file.offset:
                cycle.faults[job, "truncated", ""] += 1
                file.restart()
            data, searched = self._new_bytes(folder, file, status)
        except _FileRejected as rejected:
            rule, detail = rejected.args
            if rule == OLDER:  # what is written from now on may be the run's
                file.offset, file.partial_line, file.skipping = status.st_size, b"", False
            cycle.faults[job, rule, detail] += rule not in file.reported
            file.reported |= {rule}
            return LOOK_COST, False
        if not data:
            return LOOK_COST + searched, False
        cycle.files[file.name] = file
        is_first = file.run not in cycle.lines
        count = self._keep_readable(cycle, file, data)
        cost = LOOK_COST + searched + READ_COST + LINE_COST * count + BYTE_COST * len(data)
        if is_first and file.run in cycle.lines:
            cost += self._merge_costs.get(file.run, MERGE_COST)
        before = file.spent[1] if file.spent[0] == self._cycle else 0.0
        file.spent = self._cycle, before + cost
        return cost, status.st_size > file.offset and before + cost < self._limits.file_cost

    def _look(self, cycle: "_Cycle", folder: int, file: ReadFile) -> os.stat_result | None:
        """The status of a file; None where there is none."""
        try:
            return os.stat(file.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            cycle.faults[file.run.job_id, "unreadable", reason_of(error)] += 1
            return None

    def _check(self, cycle: "_Cycle", status: os.stat_result, file: ReadFile) -> None:
        """Raises _FileRejected for what is no report of the run's user."""
        if stat.S_ISLNK(status.st_mode):
            raise _FileRejected("link", "")
        if not stat.S_ISREG(status.st_mode):
            raise _FileRejected("not a file", "")
        if status.st_uid != cycle.owners[file.run]:
            raise _FileRejected("owner", f"uid {status.st_uid}")
        if status.st_size > self._limits.file_bytes:
            raise _FileRejected("size", f"more than {self._limits.file_bytes} bytes")
        if status.st_mtime < cycle.started.get(file.run, -math.inf) - CLOCK_DIFFERENCE:
            raise _FileRejected(OLDER, "")
        if not file.accepted and self._accepted[file.run] >= self._limits.files_per_run:
            raise _FileRejected("files", f"more than {self._limits.files_per_run}")
        self._accepted[file.run] += not file.accepted
        file.accepted = True

    def _new_bytes(self, folder: int, file: ReadFile, status: os.stat_result) -> tuple[bytes, float]:
        """Some bytes after those that were read, and what it cost to find these.

        Raises _FileRejected where the file cannot be read, or is left.
        """
        if file.unreadable >= self._limits.unreadable_lines:
            raise _FileRejected("left", f"{self._limits.unreadable_lines} unreadable lines")
        if status.st_size <= file.offset:
            return b"", 0.0
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open(file.name, flags, dir_fd=folder)
            try:
                if _identity(os.fstat(descriptor)) != file.identity:
                    return b"", 0.0  # replaced since it was checked: the next cycle reads the new file
                steps = 0
                if not file.placed and file.offset == 0 and file.run in self._stored:
                    until = self._stored[file.run] - MAX_CLOCK_BEHIND
                    file.offset, steps = place_of(until, descriptor, status.st_size)
                file.placed = True
                data = os.pread(descriptor, TURN_BYTES, file.offset)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return b"", 0.0
        except OSError as error:
            raise _FileRejected("unreadable", reason_of(error)) from error
        file.offset += len(data)
        return data, PLACE_COST * steps

    def _keep_readable(self, cycle: "_Cycle", file: ReadFile, data: bytes) -> int:
        """Add the readable ones of the lines that `data` completes to those of the run. Returns how many there were."""
        lines, too_long = whole_lines(file, data)
        readable, faults = list[bytes](), Counter({"long line": too_long})
        for line in lines.split(b"\n"):
            if line.strip():
                if fault := fault_of(line):
                    faults[fault] += 1
                else:
                    readable.append(line)
        file.unreadable += faults.total()
        for rule, count in faults.items():
            cycle.faults[file.run.job_id, rule, ""] += count
        if readable:
            cycle.lines.setdefault(file.run, []).append(b"\n".join(readable) + b"\n")
        return lines.count(b"\n")


class _Cycle:
    """What one cycle reads, and what it found."""

    def __init__(self, owners: Mapping[RunId, int], started: Mapping[RunId, float]) -> None:
        self.owners, self.started = owners, started
        self.lines: dict[RunId, list[bytes]] = {}
        self.files: dict[str, ReadFile] = {}
        self.faults: FaultCounts = Counter()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino

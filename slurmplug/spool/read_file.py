"""One report file: how far it was read, and its whole lines."""

import math
import os
from dataclasses import dataclass

from slurmplug.spool.json_lines import MAX_LINE_BYTES, time_of
from slurmplug.spool.values import RunId

TURN_BYTES = 4_096
"""read of a file at once"""


@dataclass(slots=True)
class ReadFile:
    """How far one file was read."""

    name: str
    run: RunId
    identity: tuple[int, int] = (0, 0)
    owner: int = -1
    offset: int = 0
    partial_line: bytes = b""
    skipping: bool = False
    """the rest of a line that is too long"""
    unreadable: int = 0
    """lines"""
    reported: frozenset[str] = frozenset()
    """the rules of faults"""
    placed: bool = False
    """whether it was found from where it is read"""
    accepted: bool = False
    """as one of its run's files"""
    gone: bool = False
    spent: tuple[int, float] = (0, 0.0)
    """the last cycle with a turn, and what its turns cost then"""

    def restart(self) -> None:
        """Read it from its start, as it was truncated."""
        self.offset, self.partial_line, self.skipping, self.placed = 0, b"", False, True

    def replace(self, identity: tuple[int, int]) -> None:
        """Read another file with its name."""
        self.restart()
        self.identity, self.unreadable, self.reported = identity, 0, frozenset()


def place_of(time: float, descriptor: int, size: int) -> tuple[int, int]:
    """Where in a file a line starts before which all were reported before that time, and how many steps that took.

    By bisection, as lines are in order of time but for the differences of clocks. Raises OSError.
    """
    before, after, steps = 0, size, 0
    while after - before > TURN_BYTES:
        middle, steps = (before + after) // 2, steps + 1
        part, newline, rest = os.pread(descriptor, 2 * MAX_LINE_BYTES, middle).partition(b"\n")
        line, end, _ = rest.partition(b"\n")
        if newline and end and -math.inf < time_of(line) < time:
            before = middle + len(part) + 1
        else:
            after = middle
    return before, steps


def whole_lines(file: ReadFile, data: bytes) -> tuple[bytes, int]:
    """The whole lines that `data` completes, and how many were dropped because they are too long."""
    if file.skipping:
        _, newline, data = data.partition(b"\n")
        file.skipping = not newline
    lines, newline, file.partial_line = (file.partial_line + data).rpartition(b"\n")
    if len(file.partial_line) <= MAX_LINE_BYTES:
        return lines + newline, 0
    file.partial_line, file.skipping = b"", True
    return lines + newline, 1

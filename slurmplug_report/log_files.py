"""CSV logs that a program writes anyway, read as it writes them. The standard library only, Python 3.8."""

from __future__ import annotations

import csv
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, Tuple

from slurmplug_report.logged_metrics import quantities

Row = Tuple[str, Dict[str, Any]]
"""An iteration, and quantities of it."""
ITERATIONS = ("iteration", "epoch", "step", "global_step")
"""The column of iterations is the first of these that there is."""
PIECE_BYTES = 1_048_576
LINE_BYTES = 65_536
"""What is beyond in a line is not read."""


class CsvLog:
    """A CSV file whose first line names its columns. What it had before is of an earlier run, and not read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode: int | None = None
        self._at, self._begun = 0, b""
        self._head: list[str] = []
        self._iteration = ""
        for _ in self.rows():
            pass

    def rows(self) -> Iterator[Row]:
        """The whole rows that were written since the last call; none while there is no file.

        Raises:
            OSError
            ValueError: it has no column of iterations.
        """
        for line in self._lines():
            cells = [cell.strip() for cell in next(csv.reader([line]), [])]
            if not self._head:
                self._head = cells
                self._iteration = self._column_of_iterations()
                continue
            row = dict(zip(self._head, cells))
            iteration = row.get(self._iteration, "")
            found = {name: row[column] for name, column in self._columns() if is_number(row.get(column, ""))}
            if is_number(iteration) and found:
                yield iteration, found

    def _columns(self) -> Iterator[tuple[str, str]]:
        """The quantities, and which column each is."""
        named = {column: column for column in self._head if column != self._iteration}
        return iter(quantities(named).items())

    def _column_of_iterations(self) -> str:
        found = {column.lower(): column for column in reversed(self._head)}
        for name in ITERATIONS:
            if name in found:
                return found[name]
        raise ValueError(f"its first line names none of {', '.join(ITERATIONS)}")

    def _lines(self) -> Iterator[str]:
        if not os.path.isfile(self._path):
            return
        with open(self._path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._at:
                self._inode, self._at, self._begun, self._head = status.st_ino, 0, b"", []
            file.seek(self._at)
            for piece in iter(lambda: file.read(PIECE_BYTES), b""):
                self._at += len(piece)
                *lines, begun = (self._begun + piece).split(b"\n")
                self._begun = begun[:LINE_BYTES]
                for line in lines:
                    if line.strip():
                        yield line[:LINE_BYTES].decode("utf-8", "replace")


def is_number(text: str) -> bool:
    """Whether `float()` takes it."""
    with suppress(ValueError):
        float(text)
        return True
    return False

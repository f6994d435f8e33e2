"""Reads tables row by row; an error names file, line, column and reason.

The input is not trusted: its size is bounded, and nothing is evaluated.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slurmplug.console.table import printable
from slurmplug.errors import DataError

FILE_BYTES = 2**29
"""The most that is read of one file, after unpacking."""
LINE_BYTES = 2**20
"""The longest line."""
MOST_ROWS = 2_000_000
QUOTED_LENGTH = 40
"""How many characters of a bad value a message repeats."""
T = TypeVar("T")


class WorkloadError(DataError):
    """A workload cannot be read: the message names the file and, where there are such, line, column and reason."""


class BadRow(WorkloadError):
    """One row cannot be used; with --skip-bad the others are."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its cells by the name of the column; `fault` says what is wrong with the row as a whole.

    A cell that is empty is one that is not there.
    """

    path: str
    line: int
    cells: Mapping[str, str]
    fault: str = ""

    def bad(self, column: str, reason: str) -> BadRow:
        """What is wrong with a cell, as the error to raise."""
        place = f"{self.path}, line {self.line}" + (f", column {column}" if column else "")
        return BadRow(f"{place}: {reason}")

    def _cell(self, column: str, *, must: bool) -> str:
        value = self.cells.get(column, "").strip()
        if must and not value:
            raise self.bad(column, "is missing")
        return value

    def text(self, column: str, default: str | None = None, *, longest: int = 256) -> str:
        """Printable text.

        Raises:
            BadRow
        """
        value = self._cell(column, must=default is None)
        if default is not None and not value:
            return default
        if len(value) > longest:
            raise self.bad(column, f"is longer than {longest} characters")
        if not value.isprintable():
            raise self.bad(column, f"holds what cannot be printed: {quoted(value)}")
        return value

    def number(self, column: str, default: float | None = None, *, least: float = 0.0, most: float = math.inf) -> float:
        """A finite number from least to most.

        Raises:
            BadRow
        """
        value = self._cell(column, must=default is None)
        if default is not None and not value:
            return default
        number = as_number(value)
        if number is None:
            raise self.bad(column, f"is not a number: {quoted(value)}")
        if not least <= number <= most:
            raise self.bad(column, f"is {quoted(value)}, not from {least:g} to {most:g}")
        return number

    def integer(self, column: str, default: int | None = None, *, least: int = 0, most: int = 2**53) -> int:
        """A whole number from least to most; 4.0 is one.

        Raises:
            BadRow
        """
        number = self.number(column, None if default is None else float(default), least=least, most=most)
        if number != int(number):
            raise self.bad(column, f"is not a whole number: {quoted(self.cells.get(column, ''))}")
        return int(number)


def quoted(value: str) -> str:
    """Text of the input for an error message: printable, quoted and cut to QUOTED_LENGTH characters."""
    text = printable(value)
    return repr(text if len(text) <= QUOTED_LENGTH else text[:QUOTED_LENGTH] + "...")


def as_number(text: str) -> float | None:
    """The finite number in this ASCII text; None where it is none."""
    if not text.isascii() or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def collect(rows: Iterable[Row], make: Callable[[Row], T | None], *, skip_bad: bool) -> tuple[list[T], int]:
    """The value of each row, without None, and the number of bad rows that were skipped.

    Raises:
        WorkloadError: for the first bad row, unless they are skipped
    """
    made: list[T] = []
    skipped = 0
    for row in rows:
        try:
            if row.fault:
                raise row.bad("", row.fault)
            value = make(row)
        except BadRow:
            if not skip_bad:
                raise
            skipped += 1
        else:
            if value is not None:
                made.append(value)
    return made, skipped


def comma_separated(
    path: Path, needed: Sequence[str], delimiter: str = ",", known: Sequence[str] = ()
) -> Iterator[Row]:
    """The rows of a table whose heading has every column of `needed`, and none but `known` where given.

    Raises:
        WorkloadError
    """
    with open_lines(path) as lines:
        numbered = _Numbered(line for line in lines)
        reader = (
            csv.reader(numbered, strict=True)
            if delimiter == ","
            else csv.reader(numbered, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        )
        try:
            heading = [name.strip() for name in next(reader, [])]
            missing = [name for name in needed if name not in heading]
            if missing:
                raise WorkloadError(
                    f"{path}: its heading lacks {', '.join(missing)}; it has {quoted(','.join(heading))}"
                )
            unknown = [name for name in heading if known and name not in known]
            if unknown:
                raise WorkloadError(
                    f"{path}: no such column: {quoted(', '.join(unknown))}; there are {', '.join(known)}"
                )
            if len(set(heading)) != len(heading):
                raise WorkloadError(f"{path}: its heading names a column twice")
            for cells in reader:
                if not cells:
                    continue
                fault = "" if len(cells) == len(heading) else f"has {len(cells)} cells; the heading has {len(heading)}"
                yield Row(str(path), numbered.line, dict(zip(heading, cells, strict=False)), fault)
                _bounded(path, numbered.line)
        except csv.Error as error:
            raise WorkloadError(f"{path}, line {numbered.line}: {error}") from error


def space_separated(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a table of these columns without a heading; a line that begins with `;` is a comment.

    Raises:
        WorkloadError
    """
    with open_lines(path) as lines:
        for number, line in enumerate(lines, 1):
            _bounded(path, number)
            if not line.strip() or line.lstrip().startswith(";"):
                continue
            cells = line.split()
            fault = "" if len(cells) == len(columns) else f"has {len(cells)} fields, not {len(columns)}"
            yield Row(str(path), number, dict(zip(columns, cells, strict=False)), fault)


@contextmanager
def open_lines(path: Path, errors: str = "strict") -> Iterator[Iterator[str]]:
    """The lines of a text, which gzip may have packed; a byte order mark is left out. errors: as of `bytes.decode`.

    Raises:
        WorkloadError: where it cannot be read, is no text, or is too long
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            raw = gzip.GzipFile(fileobj=file) if packed else file
            yield _lines(path, raw, errors)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise WorkloadError(f"{path} cannot be read: {reason}") from error


def _lines(path: Path, raw: io.BufferedIOBase | gzip.GzipFile, errors: str) -> Iterator[str]:
    total = number = 0
    while line := raw.readline(LINE_BYTES + 1):
        number += 1
        total += len(line)
        if len(line) > LINE_BYTES:
            raise WorkloadError(f"{path}, line {number}: is longer than {LINE_BYTES} bytes")
        if total > FILE_BYTES:
            raise WorkloadError(f"{path}: is longer than {FILE_BYTES} bytes")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8", errors)
        except UnicodeDecodeError:
            raise WorkloadError(f"{path}, line {number}: is not text in UTF-8") from None


def _bounded(path: Path, line: int) -> None:
    if line > MOST_ROWS:
        raise WorkloadError(f"{path}: has more than {MOST_ROWS} rows")


class _Numbered:
    """Lines, less remarks, that know the number of the one given last."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.line = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            line = next(self._lines)
            self.line += 1
            if "\0" in line:
                raise csv.Error("holds a NUL")
            if not line.startswith("#"):
                return line

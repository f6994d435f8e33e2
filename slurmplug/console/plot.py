"""Curves as lines of text: of braille characters, each of two by four dots, or of ASCII."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

Span: TypeAlias = tuple[float, float]
Points: TypeAlias = Sequence[tuple[float, float]]

_NO_DOT = 0x2800
_DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""The bits of a braille character, from its lowest row of dots to its highest, left and right."""
_LABEL = 11
"""columns of a label of the vertical axis"""
MARGIN = _LABEL + 2


class Plot:
    """A plot of which later curves cover earlier ones."""

    def __init__(self, width: int, height: int, x: Span, y: Span, *, braille: bool) -> None:
        """width, height: in characters, of the plot without its axes. x, y: what it spans; where an end is as large as
        its beginning, it is widened."""
        self._x, self._y, self._braille = _widened(x), _widened(y), braille
        self._columns, self._rows = (2, 4) if braille else (1, 1)
        self._cells = [[" "] * width for _ in range(height)]

    def curve(self, points: Points, mark: str) -> None:
        """Draw lines from point to point: of dots, or of the mark in ASCII."""
        placed = [self._dot(x, y) for x, y in points]
        for column, row in placed[:1]:
            self._set(column, row, mark)
        for (left, low), (right, high) in pairwise(placed):
            steps = max(abs(right - left), abs(high - low), 1)
            for step in range(1, steps + 1):
                self._set(left + round((right - left) * step / steps), low + round((high - low) * step / steps), mark)

    def marks(self, points: Points, mark: str) -> None:
        """Put this character at each point."""
        for x, y in points:
            column, row = self._dot(x, y)
            self._cells[row // self._rows][column // self._columns] = mark

    def horizontal(self, y: float, mark: str) -> None:
        """Draw a line of this character across the plot."""
        row = self._dot(self._x[0], y)[1] // self._rows
        self._cells[row] = [mark] * len(self._cells[row])

    def vertical(self, x: float, mark: str) -> None:
        """Draw a line of this character from the bottom to the top."""
        column = self._dot(x, self._y[0])[0] // self._columns
        for cells in self._cells:
            cells[column] = mark

    def lines(self) -> Iterator[str]:
        """The plot with its axes and their ends."""
        wall, corner, floor = ("│", "└", "─") if self._braille else ("|", "+", "-")
        last, width = len(self._cells) - 1, len(self._cells[0])
        for row in range(last, -1, -1):
            label = f"{self._y[row == last]:.4g}" if row in (0, last) else ""
            yield f"{label:>{_LABEL}} {wall}{''.join(self._cells[row])}".rstrip()
        yield f"{'':{_LABEL}} {corner}{floor * width}"
        first, end = (f"{each:.6g}" for each in self._x)
        yield f"{'':{_LABEL + 2}}{first}{end:>{max(width - len(first), len(end) + 1)}}"

    def _dot(self, x: float, y: float) -> tuple[int, int]:
        """The nearest dot, by its column from the left and its row from the bottom."""
        width, height = len(self._cells[0]) * self._columns, len(self._cells) * self._rows
        return _place(x, self._x, width), _place(y, self._y, height)

    def _set(self, column: int, row: int, mark: str) -> None:
        cells, at = self._cells[row // self._rows], column // self._columns
        if self._braille:
            before = ord(cells[at]) if ord(cells[at]) >> 8 == _NO_DOT >> 8 else _NO_DOT
            cells[at] = chr(before | _DOTS[row % self._rows][column % self._columns])
        else:
            cells[at] = mark


def _place(value: float, span: Span, places: int) -> int:
    share = (value - span[0]) / (span[1] - span[0])
    return min(max(round(share * (places - 1)), 0), places - 1)


def _widened(span: Span) -> Span:
    low, high = span
    if low < high:
        return span
    by = abs(low) * 0.05 or 0.5
    return low - by, low + by

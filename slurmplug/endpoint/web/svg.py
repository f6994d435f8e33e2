"""Charts as SVG elements of a page: drawn here, coloured by the page's style sheet, with a text on each mark.

Every text may be a user's: it is escaped.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from markupsafe import Markup, escape

from slurmplug.console.table import printable

Span: TypeAlias = tuple[float, float]
Point: TypeAlias = tuple[float, float]

WIDTH = 900
LEFT, RIGHT, TOP, BOTTOM = 80, 16, 10, 44
"""The margins, in which the axes are."""
TICKS = 6


def number(value: float) -> str:
    """A number as an axis shows it."""
    return f"{value:.4g}"


def spanned(values: Iterable[float], room: float = 0.05) -> Span:
    """From the least to the greatest value, and that share of it more on both sides; not empty."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(found), max(found)
    more = (high - low) * room if high > low else abs(high) * 0.05 or 0.5
    return low - more, high + more


def steps(span: Span, most: int = TICKS) -> list[float]:
    """Round values within a span, at even steps of 1, 2 or 5 times a power of ten."""
    size = (span[1] - span[0]) / most
    power = 10.0 ** math.floor(math.log10(size))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= size)
    first = math.ceil(span[0] / step - 1e-9)
    return [round(place * step, 12) for place in range(first, math.floor(span[1] / step + 1e-9) + 1)]


def powers(span: Span) -> list[float]:
    """The powers of ten within a span of logarithms, as their logarithms."""
    return [float(power) for power in range(math.ceil(span[0]), math.floor(span[1]) + 1)]


class Chart:
    """A chart with two axes. Later marks cover earlier ones. `kind` is a class of the style sheet."""

    def __init__(self, title: str, x: Span, y: Span, *, height: int = 300) -> None:
        """title: what it shows, for who cannot see it. x, y: what it spans, in the unit of the marks."""
        self._title, self._x, self._y, self._height = title, x, y, height
        self._parts: list[str] = []
        self._leads = False

    def axes(
        self,
        x: Sequence[float],
        y: Sequence[float],
        labels: tuple[str, str],
        texts: tuple[Callable[[float], str], Callable[[float], str]] = (number, number),
    ) -> None:
        """Draw lines at these values of x and y, with their texts, and label both axes."""
        bottom, middle = self._height - BOTTOM, (LEFT + WIDTH - RIGHT) / 2
        for value in x:
            at = self._across(value)
            self._add('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>', at, TOP, bottom)
            self._add('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>', at, bottom + 16, texts[0](value))
        for value in y:
            at = self._up(value)
            self._add('<line class="grid" x1="{1}" x2="{2}" y1="{0:.1f}" y2="{0:.1f}"/>', at, LEFT, WIDTH - RIGHT)
            self._add('<text x="{}" y="{:.1f}" text-anchor="end">{}</text>', LEFT - 6, at + 4, texts[1](value))
        self._add('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>', middle, self._height - 8, labels[0])
        self._add(
            '<text transform="translate(14 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>',
            (TOP + bottom) / 2,
            labels[1],
        )

    def line(self, kind: str, points: Sequence[Point]) -> None:
        """Join these points."""
        self._add('<polyline class="{}" points="{}"/>', kind, self._places(points))

    def area(self, kind: str, lower: Sequence[Point], upper: Sequence[Point]) -> None:
        """Fill what is between two lines."""
        self._add('<polygon class="{}" points="{}"/>', kind, self._places([*lower, *reversed(upper)]))

    def dot(self, kind: str, at: Point, text: str) -> None:
        """A point with a text."""
        x, y = self._across(at[0]), self._up(at[1])
        self._add('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="2.5"><title>{}</title></circle>', kind, x, y, text)

    def box(self, kind: str, x: Span, y: Span, text: str, link: str = "") -> None:
        """A rectangle with a text, that leads to a page where one is given."""
        left, right, top, bottom = self._across(x[0]), self._across(x[1]), self._up(y[1]), self._up(y[0])
        width, height, told = max(right - left, 0.7), max(bottom - top, 0.0), _safe(text)
        drawn = (
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}">'
            f"<title>{told}</title></rect>"
        )
        self._leads |= bool(link)
        self._parts.append(f'<a href="{_safe(link)}" aria-label="{told}">{drawn}</a>' if link else drawn)

    def horizontal(self, kind: str, y: float, text: str) -> None:
        """A line across, with a text."""
        self._add(
            '<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"><title>{}</title></line>',
            kind, LEFT, WIDTH - RIGHT, self._up(y), self._up(y), text,
        )  # fmt: skip

    def vertical(self, kind: str, x: float, text: str) -> None:
        """A line from bottom to top, with a text."""
        self._add(
            '<line class="{}" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"><title>{}</title></line>',
            kind, self._across(x), self._across(x), TOP, self._height - BOTTOM, text,
        )  # fmt: skip

    def markup(self) -> Markup:
        """The element."""
        role = "group" if self._leads else "img"
        head = (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {self._height}" role="{role}" aria-label="{_safe(self._title)}" '
            'xmlns="http://www.w3.org/2000/svg">'
        )
        return Markup("".join([head, "\n".join(self._parts), "</svg>"]))  # every text in it was escaped

    def _add(self, form: str, *values: object) -> None:
        self._parts.append(form.format(*(_safe(each) if isinstance(each, str) else each for each in values)))

    def _places(self, points: Sequence[Point]) -> str:
        return " ".join(f"{self._across(x):.1f},{self._up(y):.1f}" for x, y in points)

    def _across(self, x: float) -> float:
        share = (min(max(x, self._x[0]), self._x[1]) - self._x[0]) / (self._x[1] - self._x[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def _up(self, y: float) -> float:
        share = (min(max(y, self._y[0]), self._y[1]) - self._y[0]) / (self._y[1] - self._y[0])
        return self._height - BOTTOM - share * (self._height - TOP - BOTTOM)


def _safe(text: str) -> str:
    return str(escape(printable(text)))

"""The time on charts: how much of it is shown, and where its axis has values."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

HOUR, DAY = 3_600.0, 86_400.0
WINDOWS: Mapping[str, tuple[str, float]] = {
    "hour": ("last hour", HOUR),
    "day": ("last day", DAY),
    "week": ("last week", 7 * DAY),
    "month": ("last 30 days", 30 * DAY),
}
_STEPS = (600.0, HOUR, 3 * HOUR, DAY, 2 * DAY, 5 * DAY)
_MOST = 10


class Window(NamedTuple):
    """A time that ends now, in seconds since the epoch."""

    name: str
    start: float
    end: float

    def axis(self) -> list[float]:
        """Round times of this machine's clock within it, at even steps."""
        step = next((each for each in _STEPS if (self.end - self.start) / each <= _MOST), _STEPS[-1])
        midnight = datetime.fromtimestamp(self.start).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
        first = midnight + -(-(self.start - midnight) // step) * step
        return [first + place * step for place in range(int((self.end - first) // step) + 1)]

    def text(self, at: float) -> str:
        """A time as its axis shows it."""
        return datetime.fromtimestamp(at).strftime("%H:%M" if self.end - self.start <= DAY else "%m-%d")


def window(name: str, now: float) -> Window:
    """The window of this name; the last day, where there is none of that name."""
    known = name if name in WINDOWS else "day"
    return Window(known, now - WINDOWS[known][1], now)

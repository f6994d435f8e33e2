"""Parses and formats times as Slurm's commands do (sacct(1), --starttime and Elapsed)."""

import re
from datetime import datetime, timedelta

from slurmplug.errors import UsageError

HOURS = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}

LATEST = 253_402_214_400.0
"""9999-12-31, in seconds since the epoch."""

_NOW = re.compile(r"now(?: *([+-]) *(\d{1,9}) *(?:(second|minute|hour|day|week)s?)?)?", re.IGNORECASE)
_EPOCH = re.compile(r"uts(\d{7,11})|(\d{9,11})", re.IGNORECASE)
_WORD = re.compile(r"(?:today|tomorrow)(?!\w)|(?:midnight|elevenses|noon|fika|teatime)(?!\w)", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(?: *([ap]m))?(?!\w)", re.IGNORECASE)
_ISO_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?!\d)")
_DATE = re.compile(r"(\d{1,2})[./]?(\d{2}|(?<=[./])\d)(?:[./]?(\d{2}))?(?!\d)")
_BETWEEN = re.compile(r"[ \t]*[-T]?[ \t]*")


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch of a time as sacct takes it, in this machine's time zone.

    HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY] or MM.DD[.YY], YYYY-MM-DD, each date followed by -HH:MM[:SS] or THH:MM[:SS]
    or not; today, tomorrow, midnight, noon, fika, teatime; now[{+|-}count[seconds|minutes|hours|days|weeks]];
    seconds since the epoch, with or without Slurm's `uts` before them. A time without a date is today's, a date
    without a year the last one.

    Raises:
        UsageError: it is none of these.
    """
    try:
        return _parse_time(text.strip(), now)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"Invalid time specification: {text!r}; write 2026-11-30T18:00, 18:00, 11/30-18:00, today or now-2hours"
        ) from error


def parse_limit(text: str) -> float:
    """Seconds of a time limit as Slurm takes it: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes
    [:seconds]].

    Raises:
        UsageError: it is none of these.
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"Invalid time limit specification: {text!r}; write 90, 1:30:00 or 1-12")
    days, *parts = (int(part) if part else None for part in match.groups())
    given = [part for part in parts if part is not None]
    units = (3_600, 60, 1) if days is not None or len(given) == 3 else (60, 1)
    return float((days or 0) * 86_400 + sum(part * unit for part, unit in zip(given, units, strict=False)))


def format_time(seconds: float | None, unknown: str = "Unknown") -> str:
    """2026-11-30T18:00:00, in this machine's time zone; at most `LATEST`."""
    return unknown if seconds is None else datetime.fromtimestamp(min(seconds, LATEST)).isoformat(timespec="seconds")


def format_day(seconds: float, now: float) -> str:
    """11-30T18:00 for a time of this year, else 2027-01-31, in this machine's time zone."""
    whole = format_time(seconds)
    return whole[5:16] if whole[:4] == format_time(now)[:4] else whole[:10]


def format_duration(seconds: float | None, unknown: str = "") -> str:
    """A duration as [days-]hours:minutes:seconds."""
    if seconds is None:
        return unknown
    days, rest = divmod(int(max(seconds, 0.0)), 86_400)
    clock = f"{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _parse_time(text: str, seconds: float) -> float:
    if match := _NOW.fullmatch(text):
        sign, count, unit = match.groups()
        apart = int(count or 0) * UNITS[(unit or "second").lower()]
        return datetime.fromtimestamp(seconds - apart if sign == "-" else seconds + apart).timestamp()
    if match := _EPOCH.fullmatch(text):
        return float(match[1] or match[2])
    now = datetime.fromtimestamp(seconds)
    day: datetime | None = None
    clock: tuple[int, int, int] | None = None
    at = 0
    if not text:
        raise ValueError("empty")
    while at < len(text):
        if (match := _WORD.match(text, at)) and match[0].lower() in HOURS:
            clock = (HOURS[match[0].lower()], 0, 0)
        elif match:
            day = now + timedelta(days=match[0].lower() == "tomorrow")
        elif match := _CLOCK.match(text, at):
            clock = _clock(match)
        elif match := _ISO_DATE.match(text, at):
            day = now.replace(year=int(match[1]), month=int(match[2]), day=int(match[3]))
        elif match := _DATE.match(text, at):
            day = _date(match, now)
        else:
            raise ValueError(text[at:])
        at = match.end()
        between = _BETWEEN.match(text, at)
        at = between.end() if between and between.end() < len(text) else at
    hour, minute, second = clock or (0, 0, 0)
    return (day or now).replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()


def _clock(match: re.Match[str]) -> tuple[int, int, int]:
    hour, half = int(match[1]), (match[4] or "").lower()
    if half and not 1 <= hour <= 12:
        raise ValueError(match[0])
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return hour, int(match[2]), int(match[3] or 0)


def _date(match: re.Match[str], now: datetime) -> datetime:
    month, day = int(match[1]), int(match[2])
    if match[3]:
        return now.replace(year=2000 + int(match[3]), month=month, day=day)
    return now.replace(year=now.year - (month > now.month), month=month, day=day)


_LIMIT = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,7}))?(?::(\d{1,7}))?", re.ASCII)

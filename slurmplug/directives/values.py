"""Parsing the value of a directive, from text to a typed value.

Every number is finite and within the grammar's bounds, every pattern matches in linear time, every digit is ASCII.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Literal, cast

from slurmplug.directives import grammar
from slurmplug.directives.grammar import Directive

Way = Literal["batch", "steps", "full"]


@dataclass(frozen=True, slots=True)
class Target:
    """A goal of the training: `quantity` at least (`>=`) or at most (`<=`) `value`."""

    quantity: str
    relation: Literal[">=", "<="]
    value: float

    def reached(self, value: float) -> bool:
        """Whether the quantity, at this value, is at the target or better."""
        return value >= self.value if self.relation == ">=" else value <= self.value


@dataclass(frozen=True, slots=True)
class GpuRange:
    """The numbers of GPUs a job can train on, both ends included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a checkpoint is requested from a job.

    `signal` is a signal's name without SIG, or None where the program checks for the request's file itself; `way` is
    what receives the signal (`steps` is scancel's own default); `grace` is how long saving may take, in seconds.
    """

    signal: str | None
    way: Way
    grace: float | None


@dataclass(frozen=True, slots=True)
class Utility:
    """OASiS' utility of finishing x hours after submission: worth / (1 + exp(steepness (x - target)))."""

    worth: float
    steepness: float
    target: float


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of the model that the job holds, and sizes and kinds of its work, by name."""

    model: float | None
    work: tuple[tuple[str, float | str], ...]

    @property
    def text(self) -> str:
        """The work as the directive has it, in the order of the names: classes:10,rows:2000."""
        return ",".join(
            f"{name}:{value if isinstance(value, str) else format(value, '.12g')}" for name, value in sorted(self.work)
        )


@dataclass(frozen=True, slots=True)
class Clock:
    """The first submission, in seconds since the epoch, and the cluster's time zone (None: this machine's)."""

    submitted: float
    zone: tzinfo | None


class InvalidValue(Exception):
    """A value that is not valid; the argument is the rule it breaks, a key of `grammar.MESSAGES`."""


def read(written: str, row: Directive, clock: Clock) -> Any:
    """The value of a directive, of the type that `Directives` gives it. Raises InvalidValue."""
    value = _unquoted(written)
    if not value or len(value) > grammar.VALUE_BYTES:
        raise InvalidValue("value")
    if row.kind == "deadline":
        return _deadline(value, clock)
    return _READERS[row.kind](value, row)


def _unquoted(value: str) -> str:
    quoted = len(value) >= 2 and value[0] in "\"'" and value[-1] == value[0]
    return (value[1:-1] if quoted else value).strip(" ")


_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,3})?")
_AMOUNT = re.compile(r"(.*?)([KkMmBbGgTt]?)")
_WHOLE = re.compile(r"[0-9]{1,10}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SIZE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,31}):([A-Za-z][A-Za-z0-9._-]{0,31}|[0-9+.-][0-9A-Za-z+.-]{0,31})")
_TARGET = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,63}) *(>=|<=) *(.+)")
_STOP = re.compile(r"([a-z]{1,16})(?::([A-Za-z_][A-Za-z0-9_]{0,63}))?")
_RANGE = re.compile(r"([0-9]{1,5})(?:\.\.([0-9]{1,5}))?")
_CHECKPOINT = re.compile(r"([A-Za-z0-9]{1,16})(?::([a-z]{1,8}))?(?:@([0-9a-z]{1,16}))?")
_SPAN = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")
_SLURM_SPAN = re.compile(r"([0-9]{1,4})-([0-9]{1,2})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?")
_TIME_OF_DAY = re.compile(r"(?:(today|tomorrow) )?([0-9]{1,2}):([0-9]{2})")
_DATE_AND_TIME = re.compile(
    r"([12][0-9]{3})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def _matched(pattern: re.Pattern[str], value: str) -> re.Match[str]:
    match = pattern.fullmatch(value)
    if not match:
        raise InvalidValue("value")
    return match


def _bounded(number: float, least: float, most: float) -> float:
    if not least <= number <= most:
        raise InvalidValue("value")
    return number


def _decimal(value: str, least: float, most: float) -> float:
    return _bounded(float(_matched(_DECIMAL, value)[0]), least, most)


def _integer(value: str, row: Directive) -> int:
    return int(_bounded(int(_matched(_WHOLE, value)[0]), row.least, row.most))


def _number(value: str, row: Directive) -> float:
    return _decimal(value, row.least, row.most)


def _choice(value: str, row: Directive) -> str:
    if value not in row.choices:
        raise InvalidValue("value")
    return value


def _name(value: str, _: Directive) -> str:
    return _matched(_NAME, value)[0]


def _amount(value: str, row: Directive) -> float:
    number, suffix = _matched(_AMOUNT, value).groups()
    factor = grammar.SUFFIXES[suffix.upper()] if suffix else 1.0
    return _bounded(_decimal(number, 0, row.most) * factor, row.least, row.most)


def _params(value: str, row: Directive) -> float | Params:
    """A number of parameters alone as a number, as jobs of all times have it."""
    first, *rest = (part.strip(" ") for part in value.split(","))
    model = None if ":" in first else _amount(first, row)
    if model is not None and not rest:
        return model
    work = dict(_size(part, row) for part in (rest if model is not None else (first, *rest)))
    if len(work) < len(rest) + (model is None):
        raise InvalidValue("value")
    return Params(model, tuple(work.items()))


def _size(text: str, row: Directive) -> tuple[str, float | str]:
    name, value = _matched(_SIZE, text).groups()
    return name, value if value[0].isalpha() else _amount(value, replace(row, least=0, most=grammar.MAX_SIZE))


def _range(value: str, row: Directive) -> GpuRange:
    first, second = _matched(_RANGE, value).groups()
    least = int(_bounded(int(first), row.least, row.most))
    return GpuRange(least, int(_bounded(int(second or first), least, row.most)))


def _target(value: str, _: Directive) -> Target:
    quantity, relation, written = _matched(_TARGET, value).groups()
    if quantity in grammar.RESERVED_QUANTITIES:
        raise InvalidValue("value")
    number = written.removesuffix("%").rstrip(" ")
    limit = _decimal(number, -grammar.MAX_TARGET, grammar.MAX_TARGET) / (1.0 if number == written else 100.0)
    return Target(quantity, ">=" if relation == ">=" else "<=", limit)


def _stop(value: str, row: Directive) -> str:
    """The option, with a colon and a quantity where one is named."""
    option, quantity = _matched(_STOP, value).groups()
    if option not in row.choices or (quantity and (option != "optstop" or quantity in grammar.RESERVED_QUANTITIES)):
        raise InvalidValue("value")
    return value


def _checkpoint(value: str, row: Directive) -> Checkpoint:
    word, way, grace = _matched(_CHECKPOINT, value).groups()
    by_file = word == "file"
    signal = word.upper().removeprefix("SIG")
    if (by_file and way) or not (by_file or signal in row.choices) or (way and way not in grammar.WAYS):
        raise InvalidValue("value")
    seconds = None
    if grace:
        seconds = _bounded(float(grace) if _WHOLE.fullmatch(grace) else _span(grace), row.least, row.most)
    return Checkpoint(None if by_file else signal, cast(Way, way or "steps"), seconds)


def _utility(value: str, _: Directive) -> Utility:
    numbers = [number.strip(" ") for number in value.split(",")]
    if len(numbers) != len(grammar.UTILITY_BOUNDS):
        raise InvalidValue("value")
    return Utility(*(_decimal(each, *bounds) for each, bounds in zip(numbers, grammar.UTILITY_BOUNDS, strict=True)))


_READERS: Mapping[str, Callable[[str, Directive], Any]] = {
    "integer": _integer,
    "number": _number,
    "choice": _choice,
    "name": _name,
    "params": _params,
    "range": _range,
    "target": _target,
    "stop": _stop,
    "checkpoint": _checkpoint,
    "utility": _utility,
}


# Deadlines ------------------------------------------------------------------------------------------------------------


def _deadline(value: str, clock: Clock) -> float:
    try:
        when = _moment(value, clock)
    except (ValueError, OverflowError, OSError) as impossible:  # no such day, or beyond the range of dates
        raise InvalidValue("value") from impossible
    if not when > clock.submitted:
        raise InvalidValue("past")
    if when > clock.submitted + grammar.HORIZON_DAYS * 86_400:
        raise InvalidValue("far")
    return when


def _moment(value: str, clock: Clock) -> float:
    if match := _TIME_OF_DAY.fullmatch(value):
        return _time_of_day(match[1], int(match[2]), int(match[3]), clock)
    if match := _DATE_AND_TIME.fullmatch(value):
        year, month, day, hour, minute = (int(part) for part in match.groups()[:5])
        zone = _zone(match[7]) if match[7] else clock.zone
        return datetime(year, month, day, hour, minute, int(match[6] or 0), tzinfo=zone).timestamp()
    return clock.submitted + _span(value)


def _time_of_day(day: str | None, hour: int, minute: int, clock: Clock) -> float:
    """That time on the day of submission or the next; without a day, whichever comes first after the submission."""
    at = datetime.fromtimestamp(clock.submitted, clock.zone).replace(hour=hour, minute=minute, second=0, microsecond=0)
    passed = at.timestamp() <= clock.submitted
    if day == "tomorrow" or (day is None and passed):
        at += timedelta(days=1)
    return at.timestamp()


def _zone(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 14 or minutes > 59:
        raise InvalidValue("value")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _span(value: str) -> float:
    """Seconds of a span: 1d12h, 90m, or Slurm's days-hours:minutes:seconds (sbatch(1), --time)."""
    if match := _SLURM_SPAN.fullmatch(value):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        if hours > 23 or minutes > 59 or seconds > 59:
            raise InvalidValue("value")
    else:
        days, hours, minutes, seconds = (int(part or 0) for part in _matched(_SPAN, value).groups())
    return float(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)

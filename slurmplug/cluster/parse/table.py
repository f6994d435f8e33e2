"""The marked tables of squeue and sinfo, as columns, and the words in them. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats, Ints
from slurmplug.errors import ReadFailed

T = TypeVar("T")

WORD = 128
"""Characters that are kept of a text that Slurm or an operator writes."""
UNSET = frozenset(("", "(null)", "N/A"))
"""How Slurm writes that nothing is set."""
_NEVER = frozenset(("", "N/A", "NONE", "None", "Unknown"))
_NO_LIMIT = frozenset(("UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "N/A"))
_LIMIT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Marks:
    """What ends a field and what ends a record, different for each look; each begins with a letter."""

    field: str
    record: str

    def format(self, fields: Sequence[str]) -> str:
        """The argument of --Format. With a suffix and no width, nothing is cut."""
        return ",".join([*(f"{name}:{self.field}" for name in fields[:-1]), f"{fields[-1]}:{self.record}"])


def table(text: str, fields: Sequence[str], marks: Marks, client: str) -> dict[str, list[str]]:
    """The columns of what the client answers, by field. Raises ReadFailed."""
    records = text.split(f"{marks.record}\n")
    if records.pop():
        raise ReadFailed(f"{client}'s answer ends in the middle of a record")
    return split(records, fields, marks.field, client)


def split(records: Sequence[str], fields: Sequence[str], mark: str, client: str) -> dict[str, list[str]]:
    """The columns of records whose fields end in this mark. Raises ReadFailed."""
    inner = len(fields) - 1
    if any(record.count(mark) != inner for record in records):
        raise ReadFailed(
            f"{client} answers a record that has not {len(fields)} fields; is this Slurm older than 22.05?"
        )
    flat = mark.join(records).split(mark) if records else []
    return {name: flat[at :: len(fields)] for at, name in enumerate(fields)}


def values(told: Mapping[str, Sequence[str]], name: str, convert: Callable[[str], T]) -> list[T]:
    """The column, each different text converted once. Raises ReadFailed."""
    column = told[name]
    known = {}
    for text in set(column):
        try:
            known[text] = convert(text)
        except ValueError as error:
            raise ReadFailed(f"{name} is told as {text[:80]!r}: {error}") from error
    return list(map(known.__getitem__, column)) if len(known) > 1 else [*known.values()] * len(column)


def column(told: Mapping[str, Sequence[str]], name: str, convert: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
    return np.array(values(told, name, convert), dtype=dtype)


def ints(told: Mapping[str, Sequence[str]], name: str) -> Ints:
    try:
        return np.fromiter(map(int, told[name]), np.int64, len(told[name]))
    except (ValueError, OverflowError) as error:
        raise ReadFailed(f"{name} is told otherwise than as whole numbers: {error}") from error


def floats(told: Mapping[str, Sequence[str]], name: str) -> Floats:
    try:
        return np.fromiter(map(float, told[name]), np.float64, len(told[name]))
    except ValueError as error:
        raise ReadFailed(f"{name} is told otherwise than as numbers: {error}") from error


def moments(told: Mapping[str, Sequence[str]], name: str) -> Floats:
    try:
        return np.fromiter(map(moment, told[name]), np.float64, len(told[name]))
    except ValueError as error:
        raise ReadFailed(f"{name} is told otherwise than in seconds since the epoch: {error}") from error


def texts(told: Mapping[str, list[str]], name: str) -> NDArray[np.str_]:
    return column(told, name, lambda text: "" if text in UNSET else text[:WORD], np.str_)


def strings(told: Mapping[str, list[str]], name: str, most: int | None) -> NDArray[np.object_]:
    column = np.empty(len(told[name]), dtype=object)
    column[:] = values(told, name, lambda text: "" if text in UNSET else text[:most])
    return column


def moment(text: str) -> float:
    return np.nan if text in _NEVER else float(int(text))


def duration(text: str) -> float:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04`; NaN for no limit. Raises ValueError."""
    if text in _NO_LIMIT:
        return np.nan
    if (match := _LIMIT.fullmatch(text)) is None:
        raise ValueError("not a duration")
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def exit_code(text: str) -> int:
    """A wait status (squeue of 22.05) or `STATUS:SIGNAL` as a shell tells it: 128 and the signal."""
    status, colon, signal = text.partition(":")
    code, by = (int(status), int(signal)) if colon else (int(status) >> 8, int(status) & 0x7F)
    return 128 + by if by else code


def names(text: str) -> frozenset[str]:
    return frozenset(() if text in UNSET else text.split(","))


def measured(text: str) -> float:
    return np.nan if text in UNSET else float(text)

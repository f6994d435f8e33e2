"""The tables that squeue and sinfo print, as columns, and the values in them. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats, Ints
from slurmplug.errors import ReadFailed

T = TypeVar("T")

WORD_LENGTH = 128
"""Characters that are kept of a text that Slurm or an administrator writes."""
UNSET = frozenset(("", "(null)", "N/A"))
"""How Slurm prints what is not set."""
_NO_TIME = frozenset(("", "N/A", "NONE", "None", "Unknown"))
_NO_LIMIT = frozenset(("UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "N/A"))
_LARGEST = 2**63 - 1
_DURATION = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")

Columns: TypeAlias = Mapping[str, Sequence[str]]
"""Texts by the name of their field, one for each record."""


@dataclass(frozen=True)
class Separators:
    """What ends a field and what ends a record; each begins with a letter, since --Format takes digits for a width."""

    field: str
    record: str

    def format(self, fields: Sequence[str]) -> str:
        """The argument of --Format. With a suffix and no width, Slurm prints values in full."""
        return ",".join([*(f"{name}:{self.field}" for name in fields[:-1]), f"{fields[-1]}:{self.record}"])


def parse_table(text: str, fields: Sequence[str], separators: Separators, client: str) -> dict[str, list[str]]:
    """The columns of what a client printed, by field. Raises ReadFailed where a record is not whole."""
    records = text.split(f"{separators.record}\n")
    if records.pop():
        raise ReadFailed(f"{client}'s answer ends in the middle of a record")
    return split_records(records, fields, separators.field, client)


def split_records(records: Sequence[str], fields: Sequence[str], separator: str, client: str) -> dict[str, list[str]]:
    """The columns of records whose fields end in this separator. Raises ReadFailed where one has more or fewer."""
    inner = len(fields) - 1
    if any(record.count(separator) != inner for record in records):
        raise ReadFailed(
            f"{client} answers a record that has not {len(fields)} fields; is this Slurm older than 22.05?"
        )
    flat = separator.join(records).split(separator) if records else []
    return {name: flat[at :: len(fields)] for at, name in enumerate(fields)}


def values(columns: Columns, name: str, convert: Callable[[str], T]) -> list[T]:
    """A column, converted; each distinct text once. Raises ReadFailed where `convert` raises ValueError."""
    texts = columns[name]
    known = {}
    for text in set(texts):
        try:
            known[text] = convert(text)
        except ValueError as error:
            raise ReadFailed(f"{name} is printed as {text[:80]!r}: {error}") from error
    return list(map(known.__getitem__, texts)) if len(known) > 1 else [*known.values()] * len(texts)


def column(columns: Columns, name: str, convert: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
    """A column as an array; each distinct text is converted once. Raises ReadFailed."""
    return np.array(values(columns, name, convert), dtype=dtype)


def ints(columns: Columns, name: str) -> Ints:
    """A column of whole numbers. Raises ReadFailed."""
    try:
        return np.fromiter(map(int, columns[name]), np.int64, len(columns[name]))
    except (ValueError, OverflowError) as error:
        raise ReadFailed(f"{name} is not printed as whole numbers: {error}") from error


def floats(columns: Columns, name: str) -> Floats:
    """A column of numbers. Raises ReadFailed."""
    try:
        return np.fromiter(map(float, columns[name]), np.float64, len(columns[name]))
    except ValueError as error:
        raise ReadFailed(f"{name} is not printed as numbers: {error}") from error


def timestamps(columns: Columns, name: str) -> Floats:
    """A column of times in seconds since the epoch, NaN where there is none. Raises ReadFailed."""
    try:
        return np.fromiter(map(timestamp, columns[name]), np.float64, len(columns[name]))
    except ValueError as error:
        raise ReadFailed(f"{name} is not printed in seconds since the epoch: {error}") from error


def words(columns: Columns, name: str) -> NDArray[np.str_]:
    """A column of texts of at most WORD_LENGTH characters, empty where nothing is set."""
    return column(columns, name, lambda text: "" if text in UNSET else text[:WORD_LENGTH], np.str_)


def strings(columns: Columns, name: str, length: int | None) -> NDArray[np.object_]:
    """A column of Python strings of at most `length` characters (None: any), empty where nothing is set."""
    found = np.empty(len(columns[name]), dtype=object)
    found[:] = values(columns, name, lambda text: "" if text in UNSET else text[:length])
    return found


def whole(text: str) -> int:
    """A whole number of at most 64 bits, as all of Slurm's are. Raises ValueError."""
    number = int(text)
    if not -_LARGEST <= number <= _LARGEST:
        raise ValueError("a number too large for Slurm")
    return number


def timestamp(text: str) -> float:
    """Seconds since the epoch, as printed with SLURM_TIME_FORMAT=%s; NaN for no time. Raises ValueError."""
    return np.nan if text in _NO_TIME else float(whole(text))


def duration(text: str) -> float:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04`; NaN for no limit. Raises ValueError."""
    if text in _NO_LIMIT:
        return np.nan
    if (match := _DURATION.fullmatch(text)) is None:
        raise ValueError("not a duration")
    days, hours, minutes, seconds = (whole(group or "0") for group in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def exit_code(text: str) -> int:
    """The exit status as a shell has it, 128 plus the signal, of a wait status (squeue of 22.05) or `STATUS:SIGNAL`.

    Raises ValueError.
    """
    status, colon, signal = text.partition(":")
    code, by = (whole(status), whole(signal)) if colon else (whole(status) >> 8, whole(status) & 0x7F)
    return 128 + by if by else code


def name_set(text: str) -> frozenset[str]:
    """The names in a list joined by commas, none where it is not set."""
    return frozenset(() if text in UNSET else text.split(","))


def float_or_nan(text: str) -> float:
    """A number, NaN where it is not set. Raises ValueError."""
    return np.nan if text in UNSET else float(text)

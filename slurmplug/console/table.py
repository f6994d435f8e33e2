"""Columns of values, as lines for people, rows for programs, or JSON.

What a user chose (a job's name, its comment) may hold anything: no character reaches a terminal that could move its
cursor, and none breaks a row.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from slurmplug.console import times
from slurmplug.errors import UsageError

Row = TypeVar("Row")
Value: TypeAlias = str | float | int | bool | None
Kind: TypeAlias = Literal["text", "integer", "number", "share", "time", "span"]


@dataclass(frozen=True)
class Field(Generic[Row]):
    """One column. `value` gives what JSON tells: a number, seconds, seconds since the epoch, a text, or None.

    `width` is that of the column for people; `left` puts text at its left edge. `unknown` stands for None.
    """

    name: str
    kind: Kind
    width: int
    about: str
    value: Callable[[Row], Value]
    unknown: str = ""
    left: bool = False

    def text(self, row: Row) -> str:
        """The value for people, whole and fit for a terminal."""
        return printable(shown(self.value(row), self.kind, self.unknown))


def shown(value: Value, kind: Kind, unknown: str = "") -> str:
    """A value as people read it."""
    if value is None:
        return unknown
    if kind == "time":
        return times.shown(float(value))
    if kind == "span":
        return times.span(float(value))
    if kind == "share":
        return f"{float(value):.1%}"
    if isinstance(value, float):
        return f"{value:.0f}" if kind == "integer" else f"{value:.6g}"
    return str(value)


def printable(text: str) -> str:
    """The text with everything escaped that a terminal would not simply show: control and format characters, lone
    surrogates, unassigned ones."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def counted(number: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def chosen(wanted: str, fields: Sequence[Field[Row]]) -> list[Field[Row]]:
    """The fields of a list such as `jobid%20,name%-30`, as sacct takes it: any case, the beginning is enough.

    Raises:
        UsageError: there is no such field.
    """
    found: list[Field[Row]] = []
    for item in filter(None, (part.strip() for part in wanted.split(","))):
        match = _ITEM.fullmatch(item)
        name = match[1].lower() if match else ""
        if name == "all":
            found += fields
            continue
        field = next((each for each in fields if name and each.name.lower().startswith(name)), None)
        if match is None or field is None:
            raise UsageError(f"Invalid field requested: {item!r}; --helpformat lists those there are")
        if match[3]:
            field = replace(field, width=int(match[3]), left=bool(match[2]))
        found.append(field)
    if not found:
        raise UsageError("no field requested; --helpformat lists those there are")
    return found


def lines(fields: Sequence[Field[Row]], rows: Iterable[Row], *, header: bool = True, rule: bool = True) -> list[str]:
    """Columns of fixed width; what is cut ends in +, as sacct's. `rule`: dashes under the heading, as sacct's too."""
    out = []
    if header:
        out = [" ".join(_fitted(each.name, each) for each in fields)]
    if header and rule:
        out.append(" ".join("-" * each.width for each in fields))
    return out + [" ".join(_fitted(each.text(row), each) for each in fields) for row in rows]


def uncut(field: Field[Row]) -> Field[Row]:
    """The field without a bound on its width."""
    return replace(field, width=_UNBOUNDED)


def as_wide_as_needed(fields: Sequence[Field[Row]], rows: Sequence[Row]) -> list[Field[Row]]:
    """The fields with the widths of what stands in them, up to their own."""

    def needed(field: Field[Row]) -> int:
        return min(field.width, max((cells(field.text(row)) for row in rows), default=0))

    return [replace(field, width=max(needed(field), len(field.name))) for field in fields]


def separated(
    fields: Sequence[Field[Row]], rows: Iterable[Row], delimiter: str, *, header: bool = True, ending: bool = False
) -> list[str]:
    """Rows for programs, never cut; `ending` adds a delimiter at the end of each.

    A backslash, an unprintable character and every character of the delimiter are escaped in a value as \\xNN, so that
    each row splits into its fields, and each field unescapes to what it was.

    Raises:
        UsageError: the delimiter has a character that an escape is made of.
    """
    if not delimiter or re.search(r"[0-9A-Za-z\\\s]", delimiter.replace("\t", "")):
        raise UsageError("--delimiter is one or several characters, without letters, digits, spaces and backslashes")

    def escaped(value: str) -> str:
        return "".join(_escaped(c) if c in delimiter or c == "\\" or not c.isprintable() else c for c in value)

    end = delimiter if ending else ""
    out = [delimiter.join(field.name for field in fields) + end] if header else []
    return out + [
        delimiter.join(escaped(shown(field.value(row), field.kind, field.unknown)) for field in fields) + end
        for row in rows
    ]


def as_mapping(fields: Iterable[Field[Row]], row: Row) -> dict[str, Value]:
    """A row for JSON: numbers as numbers, times in seconds since the epoch, nothing cut."""
    return {field.name.lower(): field.value(row) for field in fields}


def as_json(value: Mapping[str, Any]) -> str:
    """JSON in ASCII: whatever a user chose is escaped in it."""
    return json.dumps(value, indent=1, allow_nan=False)


def cells(text: str) -> int:
    """The terminal columns that a text takes: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fitted(text: str, field: Field[Row]) -> str:
    text = text[: field.width * 4]
    if cells(text) > field.width:
        while text and cells(text) > field.width - 1:
            text = text[:-1]
        text += "+"
    space = " " * (field.width - cells(text))
    return text + space if field.left else space + text


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_UNBOUNDED = 1_000_000
_ITEM = re.compile(r"([A-Za-z_]+)(?:%(-)?([1-9]\d{0,3}))?")

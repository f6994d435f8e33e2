"""Tables of values: fixed-width lines for people, delimited rows for programs, or JSON.

A text that a user chose (a job's name, its comment) may hold any character: none that could move a terminal's cursor
reaches it, and none breaks a row.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from rich.cells import cell_len, chop_cells

from slurmplug.console import times
from slurmplug.errors import UsageError

Row = TypeVar("Row")
Value: TypeAlias = str | float | int | bool | None
Kind: TypeAlias = Literal["text", "integer", "number", "share", "time", "span"]


@dataclass(frozen=True)
class Field(Generic[Row]):
    """One field of a table, as in sacct's --format. `value` returns it as in JSON: a number, seconds, seconds since
    the epoch, a text, or None.

    `width`: of the column in terminal cells; `left`: aligned to the left. `unknown` is shown for None; `about` is the
    description of --helpformat.
    """

    name: str
    kind: Kind
    width: int
    about: str
    value: Callable[[Row], Value]
    unknown: str = ""
    left: bool = False

    def text(self, row: Row) -> str:
        """The value as shown on a terminal, not cut, unprintable characters escaped."""
        return printable(format_value(self.value(row), self.kind, self.unknown))


def format_value(value: Value, kind: Kind, unknown: str = "") -> str:
    """A value as text for people; `unknown` for None."""
    if value is None:
        return unknown
    if kind == "time":
        return times.format_time(float(value))
    if kind == "span":
        return times.format_duration(float(value))
    if kind == "share":
        return f"{float(value):.1%}"
    if isinstance(value, float):
        return f"{value:.0f}" if kind == "integer" else f"{value:.6g}"
    return str(value)


def printable(text: str) -> str:
    """The text with its unprintable characters escaped: control and format characters, lone surrogates, unassigned
    ones."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 11th, 21st."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def counted(number: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def parse_fields(listed: str, fields: Sequence[Field[Row]]) -> list[Field[Row]]:
    """The fields of a list such as `jobid%20,name%-30`, as sacct's --format: in any case, a prefix is enough.

    Raises:
        UsageError: there is no such field.
    """
    found: list[Field[Row]] = []
    for item in filter(None, (part.strip() for part in listed.split(","))):
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


def format_lines(
    fields: Sequence[Field[Row]], rows: Iterable[Row], *, header: bool = True, rule: bool = True
) -> list[str]:
    """Lines of fixed-width columns; a cut value ends in +, as sacct's. `rule`: dashes under the heading, as sacct's."""
    out = []
    if header:
        out = [" ".join(_padded(each.name, each) for each in fields)]
    if header and rule:
        out.append(" ".join("-" * each.width for each in fields))
    return out + [" ".join(_padded(each.text(row), each) for each in fields) for row in rows]


def unlimited(field: Field[Row]) -> Field[Row]:
    """The field without a bound on its width."""
    return replace(field, width=_UNBOUNDED)


def fit_widths(fields: Sequence[Field[Row]], rows: Sequence[Row]) -> list[Field[Row]]:
    """The fields, narrowed to their longest value or name."""

    def needed(field: Field[Row]) -> int:
        return min(field.width, max((cell_len(field.text(row)) for row in rows), default=0))

    return [replace(field, width=max(needed(field), len(field.name))) for field in fields]


def delimited_lines(
    fields: Sequence[Field[Row]], rows: Iterable[Row], delimiter: str, *, header: bool = True, ending: bool = False
) -> list[str]:
    """Delimited rows for programs, never cut; `ending` adds a delimiter at the end of each.

    A backslash, an unprintable character and every character of the delimiter are escaped in a value as \\xNN, so that
    each row splits into its fields, and each field can be unescaped.

    Raises:
        UsageError: the delimiter has a character that occurs in escapes.
    """
    if not delimiter or re.search(r"[0-9A-Za-z\\\s]", delimiter.replace("\t", "")):
        raise UsageError("--delimiter is one or several characters, without letters, digits, spaces and backslashes")

    def escaped(value: str) -> str:
        return "".join(_escape(c) if c in delimiter or c == "\\" or not c.isprintable() else c for c in value)

    end = delimiter if ending else ""
    out = [delimiter.join(field.name for field in fields) + end] if header else []
    return out + [
        delimiter.join(escaped(format_value(field.value(row), field.kind, field.unknown)) for field in fields) + end
        for row in rows
    ]


def as_dict(fields: Iterable[Field[Row]], row: Row) -> dict[str, Value]:
    """A row as a dict for JSON, by the fields' names in lower case: times in seconds since the epoch, nothing cut."""
    return {field.name.lower(): field.value(row) for field in fields}


def to_json(value: Mapping[str, Any]) -> str:
    """JSON in ASCII, so that any text of a user is escaped."""
    return json.dumps(value, indent=1, allow_nan=False)


def _padded(text: str, field: Field[Row]) -> str:
    text = text[: field.width * 4]  # of a text that is mostly zero-width characters
    if cell_len(text) > field.width:
        text = (chop_cells(text, field.width - 1)[0] if field.width > 1 else "") + "+"
    space = " " * (field.width - cell_len(text))
    return text + space if field.left else space + text


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_UNBOUNDED = 1_000_000
_ITEM = re.compile(r"([A-Za-z_]+)(?:%(-)?([1-9]\d{0,3}))?")

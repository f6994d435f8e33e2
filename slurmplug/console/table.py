"""Tables of values: fixed-width lines for people, delimited rows for programs, or JSON.

A text that a user chose (a job's name, its comment) may hold any character: none that could move a terminal's cursor
reaches it, and none breaks a row.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from rich.cells import cell_len, chop_cells

from slurmplug.console import times
from slurmplug.errors import UsageError

Row = TypeVar("Row")
Value: TypeAlias = str | float | int | bool | Mapping[str, float] | None
Kind: TypeAlias = Literal["text", "integer", "number", "share", "time", "span", "memory"]
Columns: TypeAlias = Sequence[Sequence[Any]]
"""The values of a table, a sequence for each field."""


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

    def texts(self, values: Sequence[Any]) -> list[str]:
        """The values as shown on a terminal, not cut, unprintable characters escaped."""
        types = set(map(type, values))
        if self.kind == "text":
            known = types == {str}
            texts = list(values) if known else [self.unknown if value is None else str(value) for value in values]
            return texts if "".join(texts).isprintable() else list(map(printable, texts))
        if self.kind in ("time", "span"):  # many are the same, and take the longest
            shown = {value: format_value(value, self.kind, self.unknown) for value in set(values)}
            return list(map(shown.__getitem__, values))
        if self.kind == "integer" and types == {int}:
            return list(map(str, values))
        return [self.unknown if value is None else format_value(value, self.kind) for value in values]


def columns(fields: Sequence[Field[Row]], rows: Sequence[Row]) -> list[list[Value]]:
    """The values of the fields, by field."""
    return [list(map(field.value, rows)) for field in fields]


def format_value(value: Any, kind: Kind, unknown: str = "") -> str:
    """A value as text for people; `unknown` for None."""
    if value is None:
        return unknown
    if kind == "time":
        return times.format_time(float(value))
    if kind == "span":
        return times.format_duration(float(value))
    if kind == "memory":
        return f"{float(value):.6g}"
    if kind == "share":
        return f"{float(value):.1%}"
    if isinstance(value, float):
        return f"{value:.0f}" if kind == "integer" else f"{value:.6g}"
    return str(value)


def in_unit(mebibytes: float, unit: str) -> str:
    """A size as Slurm writes it in one of its units, K, M, G, T or P: 1.50G."""
    value = mebibytes * 1_024.0 ** (1 - "KMGTP".index(unit))
    return f"{value:.0f}{unit}" if value.is_integer() else f"{value:.2f}{unit}"


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


def parse_fields(listed: str, fields: Sequence[Field[Row]], everything: Sequence[Field[Row]] = ()) -> list[Field[Row]]:
    """The fields of a list such as `jobid%20,name%-30`, as sacct's --format: in any case, a prefix is enough.

    everything: those of `all`, where they are not all of the fields.

    Raises:
        UsageError: there is no such field.
    """
    found: list[Field[Row]] = []
    for item in filter(None, (part.strip() for part in listed.split(","))):
        match = _ITEM.fullmatch(item)
        name = match[1].lower() if match else ""
        if name == "all":
            found += everything or fields
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
    fields: Sequence[Field[Any]], values: Columns, *, header: bool = True, rule: bool = True, fit: bool = False
) -> list[str]:
    """Lines of fixed-width columns; a cut value ends in +, as sacct's.

    rule: dashes under the heading, as sacct's; fit: columns are narrowed to their longest value or name.
    """
    texts = [field.texts(column) for field, column in zip(fields, values, strict=True)]
    if fit:
        fields = [fitted(field, column) for field, column in zip(fields, texts, strict=True)]
    return text_lines(fields, texts, header=header, rule=rule)


def text_lines(
    fields: Sequence[Field[Any]], texts: Sequence[Sequence[str]], *, header: bool, rule: bool = False
) -> list[str]:
    """As `format_lines`, of values that are texts already (`Field.texts`)."""
    out = []
    if header:
        out = [" ".join(_padded(each.name, each) for each in fields)]
    if header and rule:
        out.append(" ".join("-" * each.width for each in fields))
    padded = [_padded_column(field, column) for field, column in zip(fields, texts, strict=True)]
    template = " ".join(place for place, _ in padded)
    return out + [template % cells for cells in zip(*(column for _, column in padded), strict=True)]


def unlimited(field: Field[Row]) -> Field[Row]:
    """The field without a bound on its width."""
    return replace(field, width=_UNBOUNDED)


def fitted(field: Field[Any], texts: Sequence[str]) -> Field[Any]:
    """The field, narrowed to the longest of its texts or its name."""
    needed = min(field.width, max(map(len if _narrow(texts) else cell_len, texts), default=0))
    return replace(field, width=max(needed, len(field.name)))


def _narrow(texts: Sequence[str]) -> bool:
    """Whether each of their characters, all printable, takes one cell of a terminal."""
    return "".join(texts).isascii()


def _padded_column(field: Field[Any], texts: Sequence[str]) -> tuple[str, Iterable[str]]:
    """The place of a column in a template of %, which is faster than padding each text, and what stands there."""
    if not _narrow(texts) or max(map(len, texts), default=0) > field.width:
        return "%s", [_padded(text, field) for text in texts]
    return f"%{'-' if field.left else ''}{field.width}s", texts


def delimited_lines(
    fields: Sequence[Field[Any]], values: Columns, delimiter: str, *, header: bool = True, ending: bool = False
) -> list[str]:
    """Delimited rows for programs, never cut; `ending` adds a delimiter at the end of each.

    A backslash, an unprintable character and every character of the delimiter are escaped in a value as \\xNN, so that
    each row splits into its fields, and each field can be unescaped.

    Raises:
        UsageError: the delimiter has a character that occurs in escapes.
    """
    if not delimiter or re.search(r"[0-9A-Za-z\\\s]", delimiter.replace("\t", "")):
        raise UsageError("--delimiter is one or several characters, without letters, digits, spaces and backslashes")

    marks = frozenset(delimiter)

    def escaped(value: str) -> str:
        if value.isprintable() and "\\" not in value and marks.isdisjoint(value):
            return value
        return "".join(_escape(c) if c in marks or c == "\\" or not c.isprintable() else c for c in value)

    end = delimiter if ending else ""
    out = [delimiter.join(field.name for field in fields) + end] if header else []
    cells = (
        [escaped(format_value(value, field.kind, field.unknown)) for value in column]
        for field, column in zip(fields, values, strict=True)
    )
    return out + [delimiter.join(row) + end for row in zip(*cells, strict=True)]


def as_dict(fields: Iterable[Field[Row]], row: Row) -> dict[str, Value]:
    """A row as a dict for JSON, by the fields' names in lower case: times in seconds since the epoch, nothing cut."""
    return {field.name.lower(): field.value(row) for field in fields}


def finite(value: Any) -> Any:
    """The value with NaN and infinity replaced by None, as JSON has neither."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def to_json(value: Mapping[str, Any]) -> str:
    """JSON in ASCII, so that any text of a user is escaped."""
    return json.dumps(value, indent=1, allow_nan=False)


def rows_as_json(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The lines of {"jobs": [...]} in ASCII, with a line for each job: an indented one takes four times as long."""
    yield '{"jobs": ['
    encode, before = json.JSONEncoder(allow_nan=False).encode, ""
    for row in rows:
        if before:
            yield f"{before},"
        before = encode(dict(zip(names, row, strict=True)))
    if before:
        yield before
    yield "]}"


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

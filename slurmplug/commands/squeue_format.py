"""squeue's `--format`, `--Format` and `--sort`, for the fields of `slurmplug queue`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slurmplug.errors import UsageError
from slurmplug.reports.queue_fields import FIELDS


class Type(NamedTuple):
    """A field of squeue: its letter in --format, its name in --Format, its heading, and the field of FIELDS."""

    letter: str
    name: str
    heading: str
    field: str


TYPES = (
    Type("a", "Account", "ACCOUNT", "account"),
    Type("A", "JobID", "JOBID", "jobidraw"),
    Type("C", "NumCPUs", "CPUS", "ncpus"),
    Type("D", "NumNodes", "NODES", "nnodes"),
    Type("E", "Dependency", "DEPENDENCY", "dependency"),
    Type("e", "EndTime", "END_TIME", "endtime"),
    Type("f", "Feature", "FEATURES", "constraints"),
    Type("i", "JobArrayID", "JOBID", "jobid"),
    Type("j", "Name", "NAME", "jobname"),
    Type("k", "Comment", "COMMENT", "comment"),
    Type("L", "TimeLeft", "TIME_LEFT", "timeleft"),
    Type("l", "TimeLimit", "TIME_LIMIT", "timelimit"),
    Type("M", "TimeUsed", "TIME", "elapsed"),
    Type("N", "NodeList", "NODELIST", "nodelist"),
    Type("P", "Partition", "PARTITION", "partition"),
    Type("Q", "PriorityLong", "PRIORITY", "priority"),
    Type("q", "QOS", "QOS", "qos"),
    Type("R", "ReasonList", "NODELIST(REASON)", "reasonlist"),
    Type("r", "Reason", "REASON", "reason"),
    Type("S", "StartTime", "START_TIME", "starttime"),
    Type("T", "State", "STATE", "state"),
    Type("t", "StateCompact", "ST", "statecompact"),
    Type("U", "UserID", "UID", "uid"),
    Type("u", "UserName", "USER", "user"),
    Type("V", "SubmitTime", "SUBMIT_TIME", "submit"),
    Type("v", "Reservation", "RESERVATION", "reservation"),
)
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
"""squeue --long"""
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %.19e %R"
"""squeue --start, with the end in place of SCHEDNODES, which slurmplug does not read"""
_LETTERS = {each.letter: each for each in TYPES}
_NAMES = {each.name.lower(): each for each in TYPES}
_DEFAULT_SIZE = 20
"""of --Format"""
_EMPTY_TIME = {"starttime": "N/A", "endtime": "N/A", "submit": "N/A"}
_SPANS = {"elapsed", "timelimit", "timeleft"}
"""which squeue never cuts"""
_NULL = {"comment", "constraints", "dependency", "reservation"}
"""which squeue shows as (null) where there is none"""


class Column(NamedTuple):
    """A column, after the text `before`; `size` 0: as wide as each value."""

    before: str
    heading: str
    field: str
    size: int
    right: bool

    @property
    def head(self) -> str:
        """The heading, cut and filled."""
        return self.before + self._filled(self.heading)[: self.size or None]

    def cell(self, text: str) -> str:
        """The text, cut and filled as squeue does."""
        return self.before + self._filled(text)[: None if self.field in _SPANS else self.size or None]

    def _filled(self, text: str) -> str:
        return text.rjust(self.size) if self.right else text.ljust(self.size)


def parse_format(text: str) -> list[Column]:
    """The columns of --format: `%[[.]size]type` and text between them. Raises UsageError."""
    found, at = [], 0
    for match in re.finditer(r"%(\.?)(\d*)([A-Za-z])", text):
        each = _LETTERS.get(match[3])
        if each is None:
            raise UsageError(
                f"Invalid job format specification: {match[3]}; known: {''.join(_LETTERS)}, and more by --Format"
            )
        found.append(Column(text[at : match.start()], each.heading, each.field, int(match[2] or 0), bool(match[1])))
        at = match.end()
    if not found:
        raise UsageError(f"Invalid job format specification: {text}")
    return found


def parse_long_format(text: str) -> list[Column]:
    """The columns of --Format: `type[:[.]size],...`, with squeue's types and slurmplug's fields. Raises UsageError."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\w+)(?::(\.?)(\d*))?", item)
        heading, field = _named(match[1]) if match else ("", "")
        if match is None or not field:
            raise UsageError(f"Invalid job format specification: {item}; --helpformat lists those there are")
        size = int(match[3]) if match[3] else _DEFAULT_SIZE
        found.append(Column("", heading, field, size, bool(match[2])))
    return found


def _named(name: str) -> tuple[str, str]:
    """Heading and field of a name of --Format; empty where there is none."""
    if each := _NAMES.get(name.lower()):
        return each.heading, each.field
    if name.lower() == "score":  # the heading of that field's column in `slurmplug queue`, where RANK is the place
        return "SCORE", "rank"
    field = FIELDS.get(name.lower())
    return (field.name.upper(), name.lower()) if field else ("", "")


class SortKey(NamedTuple):
    """A field to sort by."""

    field: str
    reverse: bool


def parse_sort(text: str) -> list[SortKey]:
    """The keys of --sort: `[+|-]type,...`, a letter of --format or a name of --Format. Raises UsageError."""
    keys = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name = item.lstrip("+-")
        field = _LETTERS[name].field if name in _LETTERS else _named(name)[1]
        if not field:
            raise UsageError(f"Invalid sort specification: {item}")
        keys.append(SortKey(field, item.startswith("-")))
    return keys


def sorted_rows(keys: Sequence[SortKey], values: Mapping[str, Sequence[Any]], count: int) -> list[int]:
    """The numbers of the rows in their order; unknown values come last, and so do `nan` and `inf`, which are texts.

    values: by field, those of `count` rows. Job ids are ordered as numbers: 8, 10_9, 10_11.
    """
    order = list(range(count))
    for key in reversed(keys):
        column = values[key.field]
        if key.field == "jobid":
            column = [[int(number) for number in re.findall("[0-9]+", text)] for text in column]
        elif FIELDS[key.field].kind != "text":
            column = [None if isinstance(value, str) else value for value in column]
        known = [row for row in order if column[row] is not None]
        known.sort(key=column.__getitem__, reverse=key.reverse)
        order = known + [row for row in order if column[row] is None]
    return order


def lines(columns: Sequence[Column], values: Mapping[str, Sequence[Any]], *, header: bool) -> list[str]:
    """The lines, as squeue prints them. `values`: by field."""
    cells = [[column.cell(text) for text in texts_of(column.field)(values[column.field])] for column in columns]
    heading = ["".join(column.head for column in columns)] if header else []
    return heading + ["".join(row) for row in zip(*cells, strict=True)]


def texts_of(field: str) -> Callable[[Sequence[Any]], list[str]]:
    """How squeue writes the values of a field."""
    if field in _SPANS:
        return lambda values: [squeue_duration(value) for value in values]
    if field in _EMPTY_TIME:
        return lambda values: FIELDS[field].texts(values) if None not in values else _times(field, values)
    if field in _NULL:
        return lambda values: [text or "(null)" for text in FIELDS[field].texts(values)]
    return FIELDS[field].texts


def _times(field: str, values: Sequence[Any]) -> list[str]:
    texts = FIELDS[field].texts(values)
    return [_EMPTY_TIME[field] if value is None else text for value, text in zip(values, texts, strict=True)]


def squeue_duration(seconds: float | None) -> str:
    """[days-][hours:]minutes:seconds, as squeue writes durations; UNLIMITED for None."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(int(max(seconds, 0.0)), 86_400)
    hours, minutes, rest = rest // 3_600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

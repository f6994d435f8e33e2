"""The table of `slurmplug queue`: its columns, and how they are narrowed to fit a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from slurmplug.console import table, times
from slurmplug.console.table import Field
from slurmplug.reports.deadlines import MARKS
from slurmplug.reports.queue_fields import FIELDS

Values = Mapping[str, Sequence[Any]]
"""The values of a report by the names of their fields."""


class Column(NamedTuple):
    """A column: its field as it is shown, of which `value` is not used, and its values from those of a report."""

    shown: Field[Any]
    values: Callable[[Values], Sequence[Any]]

    def fitted(self, values: Values) -> "Texts":
        """The texts of the column, and its field narrowed to the longest of them."""
        texts = self.shown.texts(self.values(values))
        return Texts(table.fitted(self.shown, texts), texts)


class Texts(NamedTuple):
    """A column as it is printed."""

    shown: Field[Any]
    texts: Sequence[str]


def column(heading: str, name: str, width: int | None = None) -> Column:
    """A column of one field, by its name in JSON."""
    field = FIELDS[name]
    shown = replace(field, name=heading, width=width or field.width, left=field.kind == "text")
    return Column(shown, lambda values: values[name])


def _deadlines(values: Values) -> list[str | None]:
    """Deadlines with their marks: 2026-11-30T18:00:00!!"""
    return [
        None if at is None else times.format_time(at) + MARKS.get(chance, "")
        for at, chance in zip(values["deadline"], values["chance"], strict=True)
    ]


def _short_deadlines(values: Values) -> list[str | None]:
    """Deadlines with their marks, shortened: 11-30T18:00!!"""
    return [
        None if at is None else times.format_day(at, seen) + MARKS.get(chance, "")
        for at, chance, seen in zip(values["deadline"], values["chance"], values["seen"], strict=True)
    ]


def _time(heading: str, name: str) -> Column:
    return Column(replace(FIELDS[name], name=heading, unknown=""), lambda values: values[name])


def _text(heading: str, width: int, values: Callable[[Values], Sequence[Any]]) -> Column:
    return Column(Field(heading, "text", width, "", lambda _: None, left=True), values)


COLUMNS = (
    column("RANK", "position"),
    column("JOBID", "jobid", 14),
    column("PARTITION", "partition", 12),
    column("USER", "user", 12),
    column("NAME", "jobname", 20),
    column("STATE", "state"),
    column("TIME", "elapsed"),
    column("GPUS", "gpus"),
    Column(replace(FIELDS["iteration"], name="ITERATION"), lambda values: values["iteration"]),
    column("VALUE", "judged"),
    column("SCORE", "rank", 12),
    column("LEFT", "remaining", 11),
    _time("START", "starttime"),
    _time("END", "endtime"),
    column("AT LEAST", "remaininglow", 11),
    column("AT MOST", "remaininghigh", 11),
    column("FINAL", "finalrange"),
    column("PROGRESS", "progress"),
    _text("DEADLINE", 21, _deadlines),
    column("NODELIST(REASON)", "reasonlist", 30),
    column("DOING", "doing"),
)
FIELDS_SHOWN = (
    "position", "jobid", "partition", "user", "jobname", "state", "statecompact", "elapsed", "gpus", "iteration",
    "judged", "judgedvalue", "rank", "remaining", "starttime", "endtime", "remaininglow", "remaininghigh", "finalrange",
    "progress", "deadline", "chance", "seen", "reasonlist", "doing",
)  # fmt: skip
"""The fields that these columns need, also narrowed."""
_NARROWER: tuple[tuple[int, Mapping[str, Column | None]], ...] = (
    (60, {"START": None, "END": None, "AT LEAST": None, "AT MOST": None, "FINAL": None}),
    (30, {"PROGRESS": None}),
    (30, {"NODELIST(REASON)": column("NODELIST(REASON)", "reasonlist", 16)}),
    (20, {"NODELIST(REASON)": None, "PARTITION": None, "TIME": None}),
    (20, {"SCORE": None}),
    (20, {"NAME": column("NAME", "jobname", 8)}),
    (20, {"USER": column("USER", "user", 8)}),
    (20, {"STATE": column("ST", "statecompact", 4)}),
    (20, {"DEADLINE": _text("DEADLINE", 13, _short_deadlines)}),
    (20, {"ITERATION": Column(replace(FIELDS["iteration"], name="ITER"), lambda values: values["iteration"])}),
    (12, {"VALUE": Column(replace(FIELDS["judgedvalue"], name="VALUE"), lambda values: values["judgedvalue"])}),
    (8, {"VALUE": None}),
    (0, {"USER": None}),
    (0, {"GPUS": None}),
)
"""How the table is narrowed, step by step, until so many terminal columns are left for the last field."""


def lines(values: Values, width: int | None, *, header: bool) -> list[str]:
    """The table of these values; for a terminal of `width` columns the least important columns are left out, and the
    last one is cut. All are shown, uncut, where there is none."""
    if width is None:
        shown = [Column(table.unlimited(each.shown), each.values).fitted(values) for each in COLUMNS]
    else:
        shown = _narrowed([each.fitted(values) for each in COLUMNS], values, width)
    made = table.text_lines([each.shown for each in shown], [each.texts for each in shown], header=header)
    return [line[:width].rstrip() for line in made]


def _narrowed(columns: list[Texts], values: Values, width: int) -> list[Texts]:
    *shown, last = columns
    for wanted, less in _NARROWER:
        if sum(each.shown.width + 1 for each in shown) + min(last.shown.width, wanted) <= width:
            break
        kept = []
        for each in shown:
            if each.shown.name not in less:
                kept.append(each)
            elif (other := less[each.shown.name]) is not None:
                kept.append(other.fitted(values))
        shown = kept
    room = width - sum(each.shown.width + 1 for each in shown)
    if room < len(last.shown.name):
        return shown
    return [*shown, last._replace(shown=replace(last.shown, width=min(last.shown.width, room)))]

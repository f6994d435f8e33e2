"""Which jobs of the queue are shown, and in which order: the filter and the sort key that a user chose. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slurmplug.commands import queue_table, squeue_format
from slurmplug.commands.queue_table import Values
from slurmplug.commands.squeue_format import SortKey
from slurmplug.ledger.selection import QUEUE_STATE_CODES

SORTED_BY: Mapping[str, str] = {
    "RANK": "position", "JOBID": "jobid", "PARTITION": "partition", "USER": "user", "NAME": "jobname", "STATE": "state",
    "TIME": "elapsed", "GPUS": "gpus", "ITERATION": "iterations", "VALUE": "value", "SCORE": "rank",
    "LEFT": "remaining", "START": "starttime", "END": "endtime", "AT LEAST": "remaininglow",
    "AT MOST": "remaininghigh", "FINAL": "final", "DEADLINE": "deadline", "NODELIST(REASON)": "reasonlist",
    "DOING": "doing",
}  # fmt: skip
"""The field by which each column of the table is sorted."""
FIELDS_READ = tuple(dict.fromkeys((*queue_table.FIELDS_SHOWN, *SORTED_BY.values())))
_SELECTED_BY = {"user": "user", "name": "jobname", "state": "state", "partition": "partition"}
_SEARCHED = ("jobid", "partition", "user", "jobname", "state", "judged", "reasonlist", "doing")
"""The fields in which a word without a field's name is looked for."""


class Order(NamedTuple):
    """A column, or empty for the queue's own order."""

    column: str = ""
    reverse: bool = False

    def chosen(self, column: str) -> "Order":
        """By this column, the other way round where it is by it already."""
        return Order(column, bool(column) and column == self.column and not self.reverse)

    def rows(self, values: Values) -> list[int]:
        """The numbers of the rows of a report in this order; those come last of which the value is not known."""
        keys = [SortKey(SORTED_BY[self.column], self.reverse)] if self.column else []
        return squeue_format.sorted_rows(keys, values, len(values["jobid"]))


class Searchable:
    """The texts of a report in lower case, made once, as a filter is applied with each letter that is typed."""

    def __init__(self, values: Values) -> None:
        """values: with FIELDS_READ."""
        lowered = {name: [str(value or "").lower() for value in values[name]] for name in _SEARCHED}
        self._columns = {name: lowered[field] for name, field in _SELECTED_BY.items()}
        self._lines = list(map("\n".join, zip(*lowered.values(), strict=True)))

    def filtered(self, text: str, rows: Iterable[int]) -> list[int]:
        """Those of the rows in which every word of a filter occurs: anywhere, or where it is user=ada in that field.

        A state is also written as squeue's code of it.
        """
        for word in text.lower().split():
            rows = filter(self._having(word), rows)
        return list(rows)

    def _having(self, word: str) -> Callable[[int], bool]:
        name, equals, wanted = word.partition("=")
        if not equals or name not in _SELECTED_BY:
            return lambda row: word in self._lines[row]
        column = self._columns[name]
        state = QUEUE_STATE_CODES.get(wanted.upper()) if name == "state" else None
        if state is not None:
            return lambda row: column[row] == state.lower()
        return lambda row: wanted in column[row]

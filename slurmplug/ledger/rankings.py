"""How a cycle ranked its jobs, read from the ledger job by job."""

from collections.abc import Collection, Mapping
from typing import Any

COLUMNS = ("rank", "allowed", "spared", "priority")
"""The columns of `rows.rankings_row` that every cycle has."""


class CycleRankings:
    """The rank of each job of a cycle and what goes with it, as `rows.rankings_row` stored them.

    Jobs are given by their row ids in the ledger. What was not known is None, or left out of mappings.
    """

    def __init__(self, cycle: int, started: float | None, stored: Mapping[str, Any]) -> None:
        """`started`: when that cycle began, None if it has been deleted since."""
        self.started = started
        self.cycle = cycle
        self._places = {job: place for place, job in enumerate(stored["job"].tolist())}
        self._columns, self._terms, self._forecast = (
            {name: column.tolist() for name, column in columns.items()}
            for columns in ({name: stored[name] for name in COLUMNS}, stored["terms"], stored["forecast"])
        )
        self._notes = dict(stored["notes"])

    @property
    def jobs(self) -> Collection[int]:
        """The jobs of that cycle."""
        return self._places.keys()

    def column(self, name: str, job: int) -> Any:
        """The value of one job in a column of `rankings_row`."""
        value = self._columns[name][self._places[job]]
        return value if value == value else None

    def forecast(self, name: str, job: int) -> Any:
        """One value of the forecasts of one job."""
        values = self._forecast.get(name)
        value = None if values is None else values[self._places[job]]
        return value if value == value else None

    def terms(self, job: int) -> dict[str, float]:
        """The terms of one job's score."""
        place = self._places[job]
        return {name: value for name, column in self._terms.items() if (value := column[place]) == value}

    def note(self, job: int) -> Mapping[str, Any] | None:
        """What the policy found wrong with one job: `rule`, and `facts` as they are stored."""
        found: Mapping[str, Any] | None = self._notes.get(job)
        return found

"""How a cycle ranked its jobs, read from the ledger column by column."""

from collections.abc import Mapping, Sequence
from typing import Any


class ByJob(dict[str, dict[int, Any]]):
    """Columns by their names, each with its values by job, read when it is first asked for; one that there is not has
    None for every job."""

    def __init__(self, jobs: Sequence[int], stored: Mapping[str, Any]) -> None:
        super().__init__()
        self._jobs, self._stored = jobs, stored

    def __missing__(self, name: str) -> dict[int, Any]:
        values = self._stored[name].tolist() if name in self._stored else [None] * len(self._jobs)
        known = (value if value == value else None for value in values)
        column = self[name] = dict(zip(self._jobs, known, strict=True))
        return column


class CycleRankings:
    """The rank of each job of a cycle and what goes with it, as `rows.rankings_row` stored them.

    Jobs are given by their row ids in the ledger. What was not known is None, or left out of mappings.
    """

    def __init__(self, cycle: int, started: float | None, stored: Mapping[str, Any]) -> None:
        """`started`: when that cycle began, None if it has been deleted since."""
        self.started = started
        self.cycle = cycle
        rows = stored["job"].tolist()
        self.jobs = frozenset(rows)
        """the jobs of that cycle"""
        self.columns = ByJob(rows, stored)
        """those of `rankings_row` that every cycle has"""
        self.forecasts = ByJob(rows, stored["forecast"])
        self._terms, self._term_names = ByJob(rows, stored["terms"]), list(stored["terms"])
        self._notes = dict(stored["notes"])

    def terms(self, job: int) -> dict[str, float]:
        """The terms of one job's score."""
        terms = self._terms
        return {name: value for name in self._term_names if (value := terms[name][job]) is not None}

    def note(self, job: int) -> Mapping[str, Any] | None:
        """What the policy found wrong with one job: `rule`, and `facts` as they are stored."""
        found: Mapping[str, Any] | None = self._notes.get(job)
        return found

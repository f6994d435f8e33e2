"""How the last cycle ranked one job."""

from collections.abc import Mapping
from typing import Any

from policies.plan import OtherJob, Reason
from slurmplug.ledger.facts import facts_from
from slurmplug.ledger.rankings import CycleRankings


class JobRanking:
    """How the last cycle ranked a job."""

    __slots__ = ("_others", "_rankings", "_row")

    def __init__(self, rankings: CycleRankings, row: int, *, others: bool) -> None:
        """row: the job's, in the ledger; others: whether the facts about other jobs are shown."""
        self._rankings, self._row, self._others = rankings, row, others

    @property
    def score(self) -> float | None:
        """The policy's, higher first."""
        score: float | None = self._rankings.columns["rank"][self._row]
        return score

    @property
    def allowed(self) -> bool:
        """Whether it may be written to Slurm."""
        return bool(self._rankings.columns["allowed"][self._row])

    @property
    def protected_by(self) -> str:
        """The rule by which only Slurm decides, or empty."""
        return str(self._rankings.columns["spared"][self._row])

    @property
    def priority(self) -> float | None:
        """Slurm's own."""
        priority: float | None = self._rankings.columns["priority"][self._row]
        return priority

    @property
    def terms(self) -> Mapping[str, float]:
        """What the score adds up."""
        return self._rankings.terms(self._row)

    def forecast(self, name: str) -> Any:
        """A value that was forecast; None where it was not."""
        return self._rankings.forecasts[name][self._row]

    @property
    def note(self) -> Reason | None:
        """What the policy found wrong."""
        note = self._rankings.note(self._row)
        if note is None:
            return None
        facts = facts_from(note["facts"])
        shown = {name: fact for name, fact in facts.items() if self._others or not isinstance(fact, OtherJob)}
        return Reason(note["rule"], shown)

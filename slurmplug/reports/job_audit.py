"""What the ledger has of one job: what was decided about it and done to it, and which of its reports were doubted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from slurmplug.ledger.ledger import Ledger
from slurmplug.reports.job_view import Job


@dataclass(frozen=True)
class Deeds:
    """The rows of one job, the earliest first."""

    operations: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    commands: Sequence[Mapping[str, Any]]
    decisions: Sequence[Mapping[str, Any]]
    faults: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, ledger: Ledger, job: Job) -> "Deeds":
        """Raises LedgerError."""
        return cls(
            operations=ledger.query("SELECT * FROM operations WHERE job = ? ORDER BY opened", job.row),
            steps=ledger.query(_STEPS, job.row),
            commands=ledger.query(_COMMANDS, job.row),
            decisions=ledger.query("SELECT * FROM decisions WHERE job = ? ORDER BY first", job.row),
            faults=ledger.query(
                "SELECT * FROM faults WHERE job_id = ? AND last >= ? ORDER BY first",
                job.record.facts.job_id,
                job.record.key.first_submit,
            ),
        )

    def as_mapping(self) -> dict[str, list[dict[str, Any]]]:
        """For JSON."""
        return {table.name: [_plain(row) for row in getattr(self, table.name)] for table in fields(self)}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _STORED_AS_JSON else value for name, value in row.items()}


_STORED_AS_JSON = frozenset({"facts", "veto_facts", "fields"})
_STEPS = """
SELECT steps.* FROM steps JOIN operations ON operations.id = steps.operation WHERE operations.job = ? ORDER BY steps.at
"""
_COMMANDS = """
SELECT commands.*, cycles.started AS at FROM commands JOIN cycles ON cycles.id = commands.cycle
WHERE commands.job = ? ORDER BY commands.cycle
"""
